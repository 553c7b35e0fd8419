"""Chunks that a target cannot take are re-encoded, and only these."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.data.arrays import one_inline_chunk
from tests.data.stores import publish
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import CodecError
from virtualstack.errors import SourceNotFoundError, WriterError
from virtualstack.kerchunk.reader import read_references
from virtualstack.kerchunk.writer import how_taken, write_kerchunk
from virtualstack.manifests import ABSENT, INLINE, ChunkEncoding, ManifestGroup, unpack
from virtualstack.manifests.plain import why_not_plain
from virtualstack.reading import read_array
from virtualstack.storage import MemoryTarget
from virtualstack.testing.strategies import ZLIB, basic_keys, known_arrays, store_array
from virtualstack.zarr.client import Client
from virtualstack.zarr.metadata.encode import encode_chunk
from virtualstack.zarr.rewrite import split as splitting
from virtualstack.zarr.rewrite.plan import plan_rewrite
from virtualstack.zarr.rewrite.rewrite import rewrite
from virtualstack.zarr.rewrite.split import split_uncompressed

ALL = 10**9


@pytest.fixture(autouse=True)
def granted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grant the objects in memory that tests make, which references in files may not name otherwise."""
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", "memory://rewrite/ memory://known/")


def stored(values, chunks, name, **options):
    array, values, sources = store_array(np.asarray(values), chunks, url=f"memory://rewrite/{name}", **options)
    publish(sources)
    return array, values


def joined(*parts, axis=0):
    return np.concatenate([x[0] for x in parts], axis), np.concatenate([x[1] for x in parts], axis)


class DecodesAnything(Client):
    def why_not(self, encoding, chunks, order, variable=""):
        return None


def plan_of(array):
    return plan_rewrite(array, DecodesAnything(zarr_format=2))


def written(array, budget=ALL, *, inline_limit=0):
    """Write references, and give the array that our reader finds in them."""
    array = replace(array, dimension_names=tuple(f"d{i}" for i in range(array.ndim)))
    references = write_kerchunk(
        ManifestGroup(arrays={"v": array}), None, inline_limit=inline_limit, fill_budget=1 << 30, rewrite=budget
    )
    return read_references(references).arrays["v"]


def refusal(array, budget, **options):
    """Give the message with which references are refused."""
    with pytest.raises(WriterError) as caught:
        written(array, budget, **options)
    return str(caught.value)


def advertised(message):
    """Give the first budget that a message names."""
    return re.search(r"rewrite='([^']+)'", message)[1]


def n_inline(array):
    return int(np.count_nonzero(array.in_memory().entries["location"] == INLINE))


# -- plans ----------------------------------------------------------------------------------------------------


def test_a_partial_chunk_mid_array_leaves_what_is_before_it():
    """365 rows in chunks of 30, then 366: the chunks of the first file but its last one stay."""
    first = stored(np.arange(365.0), (30,), "y0")
    second = stored(np.arange(366.0) + 1000, (30,), "y1")
    array, values = joined(first, second)
    plan = plan_of(array)
    assert plan.chunks == (30,)
    assert len(plan.cells) == 25 - 12
    assert plan.nbytes == 13 * 240
    assert plan.stored == 26 * 240
    new = rewrite(plan, plan.nbytes)
    assert why_not_plain(new) is None
    assert n_inline(new) == 13
    np.testing.assert_array_equal(read_array(new, ()), values)


def test_the_chunk_length_that_leaves_most_chunks_wins():
    """Files in chunks of one row and one file in chunks of five: chunks of one row stay."""
    rows = [stored(np.arange(40.0).reshape(10, 4) + i, (1, 4), f"r{i}") for i in range(3)]
    odd = stored(np.arange(40.0).reshape(10, 4) + 9, (5, 4), "odd")
    array, values = joined(rows[0], odd, *rows[1:])
    plan = plan_of(array)
    assert plan.chunks == (1, 4)
    assert plan.cells.tolist() == list(range(10, 20))
    np.testing.assert_array_equal(read_array(rewrite(plan, 10**6), ()), values)


def test_cells_that_other_grids_have_cut_are_whole_chunks_again():
    """A file with other chunks on another axis cuts the cells of all; whole chunks of the others stay."""
    parts = [stored(np.arange(48.0).reshape(4, 12) + i, (2, 6), f"w{i}", codecs=(ZLIB,)) for i in range(3)]
    odd = stored(np.arange(48.0).reshape(4, 12) + 9, (2, 4), "w9", codecs=(ZLIB,))
    array, values = joined(parts[0], odd, *parts[1:])
    plan = plan_of(array)
    assert plan.chunks == (2, 6)
    assert plan.cells.tolist() == [4, 5, 6, 7]
    assert plan.stored == sum(x[0].manifest.summary().nbytes for x in (*parts, odd))
    np.testing.assert_array_equal(read_array(rewrite(plan, 10**6), ()), values)


@pytest.mark.parametrize("options", [{"codecs": (ZLIB,)}, {"stored_dtype": ">f8"}, {"order": (1, 0)}])
def test_one_file_with_another_encoding_among_many(options):
    """Codec, byte order, order of axes."""
    parts = [stored(np.arange(24.0).reshape(6, 4) + i, (2, 4), f"e{i}") for i in range(4)]
    array, values = joined(*parts, stored(np.arange(24.0).reshape(6, 4), (2, 4), "e9", **options))
    plan = plan_of(array)
    assert plan.cells.tolist() == [12, 13, 14]
    np.testing.assert_array_equal(read_array(rewrite(plan, 10**6), ()), values)


def test_one_file_with_another_dtype_among_many():
    """Numbers of a narrower dtype are written in that of the others."""
    parts = [stored(np.arange(6.0) + i, (3,), f"d{i}") for i in range(4)]
    array, values = joined(*parts, stored(np.arange(6, dtype="f4"), (3,), "d9"))
    assert plan_of(array).cells.tolist() == [8, 9]
    new = rewrite(plan_of(array), 10**6)
    assert {x.dtype.str for x in new.in_memory().encodings} == {"<f8"}
    np.testing.assert_array_equal(read_array(new, ()), values)


def test_where_the_main_dtype_does_not_hold_values_all_are_encoded_as_they_are():
    """Most chunks are cast from float32; one file of float64 has values that float32 would round."""
    parts = [stored(np.arange(6, dtype="f4") + i, (3,), f"n{i}") for i in range(4)]
    array, values = joined(*parts, stored(np.arange(6) + 0.1, (3,), "n9"))
    assert plan_of(array).cells.tolist() == [8, 9]
    back = written(array)
    assert (n_inline(back), back.dtype) == (10, np.float64)
    assert read_array(back, ()).tobytes() == values.tobytes()


def test_a_budget_for_a_part_does_not_do_where_all_must_be_encoded():
    """The error says what would; nothing but that budget is needed then."""
    parts = [stored(np.arange(6, dtype="f4") + i, (3,), f"s{i}") for i in range(4)]
    array, values = joined(*parts, stored(np.arange(6) + 0.1, (3,), "s9"))
    first = refusal(array, None)
    assert re.search(r"can store their values\. (Or write a vstack, .*)?Or allow rewrite='", first)
    second = refusal(array, advertised(first))
    assert re.search(
        r"'v' has 2 of 10 chunks .* cannot be stored as numcodecs.astype: other values would be read back\. Allow "
        r"rewrite='\d+B' to re-encode 10 of 10 chunks .*\. Or write a vstack",
        second,
    )
    back = written(array, advertised(second))
    assert read_array(back, ()).tobytes() == values.tobytes()
    assert advertised(first.partition(". Or allow ")[2]) == advertised(second)


def test_values_that_the_main_dtype_holds_are_written_in_it():
    """Most chunks are cast from float32, and the values of the odd file have a place in it."""
    parts = [stored(np.arange(6, dtype="f4") + i, (3,), f"m{i}") for i in range(4)]
    array, values = joined(*parts, stored(np.arange(6) + 0.5, (3,), "m9"))
    back = written(array)
    assert (n_inline(back), back.dtype) == (2, np.float64)
    np.testing.assert_array_equal(read_array(back, ()), values)


def test_holes_with_another_fill_are_written_out():
    """The fill that most holes have stays the array's."""
    holes = np.array([[1], [0]], np.uint8)
    parts = [stored(np.arange(8.0).reshape(4, 2), (2, 2), f"h{i}", fill=7, holes=holes) for i in range(3)]
    array, values = joined(stored(np.arange(8.0).reshape(4, 2), (2, 2), "h9", fill=5, holes=holes), *parts)
    plan = plan_of(array)
    assert plan.cells.tolist() == [0]
    assert plan.manifest.fill.value == 7
    new = rewrite(plan, 10**6)
    assert why_not_plain(new) is None
    np.testing.assert_array_equal(read_array(new, ()), values)


def test_equal_chunks_stand_in_the_heap_once():
    """Holes of one odd fill value are equal chunks."""
    holes = np.ones((4, 1), np.uint8)
    array, _ = joined(
        stored(np.arange(40.0).reshape(20, 2), (2, 2), "once"),
        stored(np.zeros((8, 2)), (2, 2), "holes", fill=3, holes=holes),
        stored(np.zeros((20, 2)), (2, 2), "more", fill=4, holes=np.ones((10, 1), np.uint8)),
    )
    new = rewrite(plan_of(array), 10**6)
    assert n_inline(new) == 4
    assert len(new.in_memory().inline) == 32


def test_a_hole_with_missing_parts_stays_missing():
    """A chunk of which nothing was found is ABSENT; nothing is read for it."""
    array, _ = stored(np.zeros((6, 4)), (2, 2), "lost", holes=np.array([[2, 2], [0, 0], [1, 2]], np.uint8))
    plan = plan_of(array)
    assert not plan.cells.size
    assert plan.manifest.entries["location"].tolist() == [[ABSENT, ABSENT], [3, 3], [0, ABSENT]]


def test_missing_chunks_are_not_written_as_values():
    """A chunk that is half ABSENT could not be told from one that is whole."""
    lost = stored(np.arange(12.0), (3,), "l0", holes=np.array([0, 2, 0, 0], np.uint8))
    array, _ = joined(stored(np.arange(4.0), (3,), "l1"), lost)
    with pytest.raises(WriterError, match=r"'v' has 5 of 6 chunks .* 2 parts of them would come from ABSENT chunks"):
        rewrite(plan_of(array), 10**6)
    assert how_taken(array, inline_limit=0).startswith("no: 5 of 6 chunks")


def test_where_a_target_takes_no_encoding_all_is_encoded_anew():
    """Reversed chunks have no zarr form."""
    array, values = stored(np.arange(24.0).reshape(6, 4), (2, 4), "back")
    plan = plan_of(array[::-1])
    assert plan.cells.size == plan.n_chunks == 3
    np.testing.assert_array_equal(read_array(rewrite(plan, 10**6), ()), values[::-1])


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_references_of_any_join_have_its_values(data):
    """Random chunks, codecs, dtypes, fills, slices: references written with any budget read back equal."""
    shape = tuple(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3), label="shape"))
    axis = data.draw(st.integers(0, len(shape) - 1), label="axis")
    dtypes = st.sampled_from(["<f4", ">f8", "<i2"]) if data.draw(st.booleans()) else st.just("<f4")
    parts = []
    for _ in range(data.draw(st.integers(1, 4))):
        n = data.draw(st.integers(1, 7))
        part = data.draw(known_arrays(shape=(*shape[:axis], n, *shape[axis + 1 :]), dtype=data.draw(dtypes)))
        publish(part.sources)
        parts.append(part)
    array, values = joined(*parts, axis=axis)
    if data.draw(st.booleans()):
        key = data.draw(basic_keys(values.shape))
        array, values = array[key], values[key]
    try:
        back = written(array)
    except WriterError as error:
        assert "would come from ABSENT chunks" in str(error)
        assert (array.in_memory().entries["location"] == ABSENT).any()
        return
    assert back.dtype == values.dtype
    np.testing.assert_array_equal(read_array(back, ()), values)


@settings(deadline=None, max_examples=examples(100))
@given(known_arrays())
def test_plain_arrays_stay_as_they_are(known):
    """Nothing is read of an array that the target takes as it is."""
    plan = plan_of(known.array)
    if why_not_plain(known.array) is None:
        assert not plan.cells.size
        assert rewrite(plan, 0).equals(known.array)


# -- uncompressed chunks --------------------------------------------------------------------------------------


def test_months_in_one_piece_become_days():
    """Uncompressed values are cut into ranges of bytes; nothing is re-encoded."""
    months = [stored(np.random.default_rng(n).random((n, 50, 50)), (n, 50, 50), f"month{n}") for n in (31, 28, 30)]
    array, values = joined(*months)
    plan = plan_of(array)
    assert (plan.chunks, plan.cells.size) == ((1, 50, 50), 0)
    new = rewrite(plan, 0)
    assert why_not_plain(new) is None
    assert new.manifest.summary().n_references == 89
    np.testing.assert_array_equal(read_array(new, ()), values)
    np.testing.assert_array_equal(read_array(rewrite(plan_of(array[5:]), 0), ()), values[5:])


def test_parts_are_as_long_as_lines_allow():
    """The longest that all files can be cut into."""
    parts = [stored(np.random.default_rng(n).random((n, 600)), (n, 600), f"part{n}") for n in (60, 40, 100)]
    array, values = joined(*parts)
    plan = plan_of(array)
    assert (plan.chunks, plan.cells.size) == ((20, 600), 0)
    np.testing.assert_array_equal(read_array(rewrite(plan, 0), ()), values)


def test_parts_are_not_too_small():
    """Eight bytes are no chunk: the lines of the first file are kept, and the second one is re-encoded."""
    array, _ = joined(stored(np.arange(365.0), (365,), "long0"), stored(np.arange(366.0), (366,), "long1"))
    plan = plan_of(array)
    assert plan.chunks == (365,)
    assert plan.cells.tolist() == [1, 2]


def test_compressed_chunks_are_not_cut():
    """Their parts have no place."""
    months = [stored(np.ones((n, 50, 50)), (n, 50, 50), f"zip{n}", codecs=(ZLIB,)) for n in (31, 28, 30)]
    assert split_uncompressed(joined(*months)[0]) is None


def test_chunks_that_cannot_be_cut_stay_beside_those_that_are(monkeypatch):
    """Of wider chunks a column is not a run of bytes; they keep their lines, and their lengths."""
    monkeypatch.setattr(splitting, "_MIN_PART_BYTES", 1)
    wide = stored(np.arange(4.0).reshape(4, 1), (2, 2), "wide")
    narrow = [stored(np.arange(float(n)).reshape(n, 1), (n, 1), f"narrow{n}") for n in (3, 5)]
    array, values = joined(wide, *narrow)
    split = split_uncompressed(array[:, 0])
    split.validate()
    np.testing.assert_array_equal(read_array(split, ()), values[:, 0])


@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cut_chunks_have_the_same_values(data, monkeypatch):
    """Of any join and slice, were parts allowed to be of any size."""
    monkeypatch.setattr(splitting, "_MIN_PART_BYTES", 1)
    inner = tuple(data.draw(st.lists(st.integers(1, 4), max_size=2)))
    parts = []
    for i in range(data.draw(st.integers(1, 3))):
        shape = (data.draw(st.integers(1, 12)), *inner)
        if data.draw(st.integers(0, 3)):
            options = {
                "codecs": (ZLIB,) if not data.draw(st.integers(0, 5)) else (),
                "is_padded": data.draw(st.booleans()),
            }
            chunks = (data.draw(st.integers(1, 12)), *inner)
            parts.append(stored(np.random.default_rng(i).random(shape), chunks, f"cut{i}", **options))
        else:
            known = data.draw(known_arrays(shape=shape, dtype="<f8"))
            publish(known.sources)
            parts.append(known[:2])
    array, values = joined(*parts)
    if data.draw(st.booleans()):
        order = data.draw(st.permutations(range(values.ndim)))
        array, values = array.transpose(order), values.transpose(order)
    key = data.draw(basic_keys(values.shape))
    array, values = array[key], values[key]
    split = split_uncompressed(array)
    if split is not None:
        split.validate()
        np.testing.assert_array_equal(read_array(split, ()), values)
    plan = plan_of(array)
    if not plan.n_absent:
        np.testing.assert_array_equal(read_array(rewrite(plan, 10**9), ()), values)


# -- budgets --------------------------------------------------------------------------------------------------


@pytest.fixture
def odd():
    parts = [stored(np.arange(24.0).reshape(6, 4) + i, (2, 4), f"b{i}") for i in range(4)]
    return joined(*parts, stored(np.arange(24.0).reshape(6, 4), (2, 4), "b9", codecs=(ZLIB,)))


def test_the_refusal_counts_what_would_be_written(odd):
    """And names the budget that does, which then does."""
    array, values = odd
    with pytest.raises(
        WriterError,
        match=r"'v' cannot be written .*: chunks have 2 encodings .* 3 of 15 chunks \(about 192 bytes, (\S+%) of 866 "
        r"stored ones\) would have to be re-encoded .*\. Allow rewrite='\1'\. Or write",
    ) as caught:
        written(array, None)
    np.testing.assert_array_equal(read_array(written(array, advertised(str(caught.value))), ()), values)
    with pytest.raises(WriterError, match=r"takes about 192 bytes, more than the 191 allowed\. Allow rewrite='23%'"):
        written(array, 191)
    assert n_inline(written(array, 192)) == 3


def test_no_budget_is_more_than_all_stored_bytes():
    """Chunks that must all be encoded, larger than they are stored: bytes are named, and do."""
    rising = [stored(np.arange(4000.0) + i, (4000,), f"all{i}", codecs=(ZLIB,)) for i in range(2)]
    array, values = joined(*rising)
    array, values = array[::2], values[::2]
    message = refusal(array, None)
    assert re.search(r"Write a vstack, .* allow rewrite='\d+B', which copies the values", message)
    assert "%'" not in message
    np.testing.assert_array_equal(read_array(written(array, advertised(message)), ()), values)


def test_chunks_that_compress_worse_than_others_are_counted_as_they_are_stored():
    """Noise among zeros takes what it takes now."""
    noise = np.random.default_rng(0).random((2, 400))
    parts = [stored(np.zeros((2, 400)), (1, 400), f"z{i}", codecs=(ZLIB,)) for i in range(4)]
    array, values = joined(*parts, stored(noise, (1, 400), "z9"))
    assert plan_of(array).nbytes == noise.nbytes
    back = written(array, advertised(refusal(array, None)))
    np.testing.assert_array_equal(read_array(back, ()), values)


def test_a_budget_counts_what_other_codecs_have_compressed_as_uncompressed():
    """Shuffled numbers that rise take next to nothing; by the codec of the others alone they take much more."""
    values = np.arange(40_000, dtype="i4") * 7
    shuffle = Codec.from_config("numcodecs.shuffle", elementsize=4)
    raw = encode_chunk(values, ChunkEncoding.c_order("i4", (40_000,), (shuffle, ZLIB)))
    part, _ = stored(values, (40_000,), "shuffled")
    manifest = part.in_memory()
    MemoryTarget("memory://rewrite").put("shuffled", raw.ljust(manifest.locations[0].size))
    entries = manifest.entries.copy()
    entries["offset"], entries["length"] = 0, len(raw)
    encodings = tuple(replace(x, codecs=(shuffle, ZLIB)) for x in manifest.encodings)
    part = replace(part, manifest=replace(manifest, entries=entries, encodings=encodings))
    others = [stored(np.zeros(40_000, "i4"), (40_000,), f"plain{i}", codecs=(ZLIB,)) for i in range(3)]
    array, values = joined(*others, (part, values))
    assert plan_of(array).nbytes < len(encode_chunk(values[-40_000:], plan_of(array).encoding))
    np.testing.assert_array_equal(read_array(written(array, advertised(refusal(array, None))), ()), values)


def test_bytes_are_counted_after_encoding_too():
    """What repeats within a long chunk does not in short ones; then the most that they can be is named."""
    period = np.random.default_rng(0).random(300)
    parts = [stored(np.zeros(9000), (300,), f"z{i}", codecs=(ZLIB,)) for i in range(4)]
    array, values = joined(*parts, stored(np.tile(period, 100), (30_000,), "long", codecs=(ZLIB,)))
    first = refusal(array, None)
    second = refusal(array, advertised(first))
    assert re.search(
        r"takes about 2\d\d,\d+ bytes, more than the [\d,]+ allowed\. Allow rewrite='\S+', which is the most", second
    )
    np.testing.assert_array_equal(read_array(written(array, advertised(second)), ()), values)


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_the_budget_that_a_refusal_names_does(data):
    """Files of random lengths, chunks and codecs, some cut by a slice: one number where nothing is packed or cast."""
    n_inner = data.draw(st.integers(100, 400))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    smooth = np.round(random.normal(size=(80, n_inner)).cumsum(0), 1)
    parts, begin = [], 0
    for i in range(data.draw(st.integers(1, 3))):
        n = data.draw(st.integers(1, 25))
        chunks = (data.draw(st.sampled_from([4, 10])), data.draw(st.sampled_from([n_inner, n_inner // 2 + 1])))
        codecs = data.draw(st.sampled_from([(ZLIB,), ()]))
        padded = data.draw(st.booleans())
        parts.append(stored(smooth[begin : begin + n], chunks, f"named{i}", codecs=codecs, is_padded=padded))
        begin += n
    array, values = joined(*parts)
    if data.draw(st.booleans()):
        first = data.draw(st.integers(0, len(values) - 1))
        array, values = array[first:], values[first:]
    if plan_of(array).cells.size:
        message = refusal(array, None)
        back = written(array, advertised(message))
    else:
        back = written(array, None)
    assert read_array(back, ()).tobytes() == values.tobytes()


@settings(deadline=None, max_examples=examples(150))
@given(st.data())
def test_a_budget_that_a_refusal_names_does_where_holes_must_be_written_out(data):
    """Files of two dtypes, with chunks that were never written: what they read as may not fit where most chunks are."""
    parts = []
    for i in range(data.draw(st.integers(2, 5))):
        dtype, fills = data.draw(st.sampled_from([("i2", [-32767, 0]), ("i4", [-2147483647, -32767, 70_000])]))
        holes = data.draw(st.sampled_from([[0, 0], [0, 1], [1, 1]]))
        fill, codecs = data.draw(st.sampled_from(fills)), data.draw(st.sampled_from([(ZLIB,), ()]))
        numbers = np.arange(80).reshape(8, 10).astype(dtype)
        array, values = stored(
            numbers, (4, 10), f"unfit{i}", fill=fill, holes=np.array(holes, np.uint8)[:, None], codecs=codecs
        )
        parts.append((array.astype("i4"), values.astype("i4")))
    array, values = joined(*parts)
    said = how_taken(array, inline_limit=0)
    if said == "as it is":
        back = written(array, None)
    else:
        budgets = re.findall(r"rewrite='([^']+)'", refusal(array, None))
        assert said.startswith(f"rewrite='{budgets[0]}'")
        back = written(array, budgets[-1])  # the last one is sure to
    assert read_array(back, ()).tobytes() == values.tobytes()


def test_chunks_are_not_cast_to_a_dtype_that_has_no_place_for_holes():
    """Most are short integers, but the holes of another file read as one that is not."""
    short = [stored(np.arange(8, dtype="i2") + i, (4,), f"short{i}", codecs=(ZLIB,)) for i in range(3)]
    long = stored(np.arange(8, dtype="i4"), (4,), "long", fill=-2147483647, holes=np.ones(2, np.uint8))
    array, values = joined(*((a.astype("i4"), b.astype("i4")) for a, b in short), long)
    assert plan_of(array).cells.tolist() == list(range(6))
    back = written(array, advertised(refusal(array, None)))
    assert back.in_memory().encodings[0].dtype == np.dtype("i4")
    np.testing.assert_array_equal(read_array(back, ()), values)


def test_a_fill_budget_that_is_named_does():
    array, values = stored(np.zeros((8, 10)), (1, 10), "fills", fill=3, holes=np.ones((8, 1), np.uint8))
    group = ManifestGroup(arrays={"v": replace(array, dimension_names=("y", "x"))})
    with pytest.raises(WriterError, match=r"Allow fill_budget=640\. Or write parquet"):
        write_kerchunk(group, None, fill_budget=639)
    back = read_references(write_kerchunk(group, None, fill_budget=640)).arrays["v"]
    np.testing.assert_array_equal(read_array(back, ()), values)


def test_clipped_chunks_at_the_edge_do_not_count_as_whole_ones():
    """Two rows of four in a chunk of zeros take half; the chunks to be encoded are whole."""
    random = np.random.default_rng(0)
    parts = [stored(random.random((6, 500)), (4, 500), f"clip{i}", codecs=(ZLIB,), is_padded=True) for i in range(5)]
    array, values = joined(*parts)
    back = written(array, advertised(refusal(array, None)))
    np.testing.assert_array_equal(read_array(back, ()), values)


def test_chunks_far_longer_than_the_array_are_not_filled():
    """Ten values in a chunk of a million are encoded as ten."""
    parts = [stored(np.arange(10.0) + i, (1 << 20,), f"far{i}", is_padded=True, codecs=(ZLIB,)) for i in range(2)]
    array, values = joined(*parts)
    plan = plan_of(array)
    assert (plan.chunks, plan.cells.tolist()) == ((10,), [0, 1])
    np.testing.assert_array_equal(read_array(rewrite(plan, 10**6), ()), values)


def test_a_codec_without_an_encoder_is_not_chosen():
    """LZF is only read: all is encoded by zlib where a part of it must be."""
    parts = [stored(np.arange(6.0) + i, (3,), f"lzf{i}") for i in range(2)]
    lzf = Codec("virtualstack.lzf")
    for i, (array, values) in enumerate(parts):
        manifest = array.in_memory()
        entries = replace(manifest, encodings=tuple(replace(x, codecs=(lzf,)) for x in manifest.encodings))
        parts[i] = replace(array, manifest=entries), values
    array, _ = joined(*parts, stored(np.arange(3.0), (3,), "lzf9"))
    plan = plan_of(array[:-3])
    assert not plan.cells.size
    assert plan_of(array).encoding.codecs == ()
    plan = plan_of(np.concatenate([parts[0][0], parts[0][0][:2], parts[1][0]]))
    assert plan.cells.tolist() == list(range(plan.n_chunks))
    assert [x.name for x in plan.encoding.codecs] == ["numcodecs.shuffle", "numcodecs.zlib"]


def test_nothing_is_read_where_the_budget_is_too_small(odd):
    """The count needs the manifest alone."""
    array = odd[0].rename_locations(lambda url: "memory://nowhere/x")
    with pytest.raises(WriterError, match="Allow rewrite="):
        rewrite(plan_of(array), 100)


def test_a_source_that_is_gone_is_an_error_of_storage(odd):
    """Whichever thread finds out."""
    array = odd[0].rename_locations(lambda url: "memory://nowhere/x")
    with pytest.raises(SourceNotFoundError, match="nowhere"):
        rewrite(plan_of(array), 10**6)


def test_small_arrays_are_inlined_where_the_budget_is_too_small(odd):
    """As without a budget."""
    array, values = odd
    back = written(array, 10, inline_limit=10**6)
    assert back.grid.shape == (1, 1)
    np.testing.assert_array_equal(read_array(back, ()), values)


def test_small_arrays_are_inlined_where_encoding_takes_more_than_their_values(odd):
    """Whatever the budget; where it takes less, most chunks stay where they are."""
    assert n_inline(written(odd[0], inline_limit=10**6)) == 3
    parts = [stored(np.random.default_rng(i).random(7), (4,), f"tiny{i}", codecs=(ZLIB,)) for i in range(2)]
    array, values = joined(*parts)
    assert plan_of(array).nbytes > array.nbytes
    back = written(array, inline_limit=10**6)
    assert back.grid.shape == (1,)
    np.testing.assert_array_equal(read_array(back, ()), values)


def test_how_taken_tells_what_writing_does(odd):
    """As it is; a part re-encoded; all inline."""
    array, _ = odd
    assert how_taken(array[:6]) == "as it is"
    assert how_taken(array) == "inline: 960 bytes"
    assert how_taken(array, inline_limit=0).startswith("rewrite='23%': 3 of 15 chunks")


# -- packed values --------------------------------------------------------------------------------------------


def packed(numbers, name, **attributes):
    """Store numbers, and give them unpacked by their attributes."""
    array, numbers = stored(numbers, (2,), name)
    unpacked = unpack(replace(array, attributes=attributes))
    assert unpacked.obstacle is None
    return unpacked.array, read_array(unpacked.array, ())


@pytest.mark.parametrize(
    ("main", "odd"),
    [
        ({"scale_factor": 0.5, "_FillValue": np.int16(-9)}, {"scale_factor": 1.5, "_FillValue": np.int16(-1)}),
        ({"scale_factor": 0.1, "add_offset": 3.0}, {"scale_factor": 0.1, "add_offset": 3.0, "_FillValue": np.int16(0)}),
        ({"units": "days since 2000-01-01"}, {"units": "days since 1999-12-25"}),
        ({"units": "hours since 2000-01-01", "_FillValue": np.int16(-9)}, {"units": "days since 1999-12-25"}),
        ({"units": "hours", "dtype": "timedelta64[ns]"}, {"units": "days", "dtype": "timedelta64[ns]"}),
        ({"_Unsigned": "true", "scale_factor": 0.5}, {"scale_factor": 1.5, "add_offset": 10.0}),
        ({"missing_value": np.int16(-9), "scale_factor": 2.0}, {"scale_factor": 4.0}),
    ],
    ids=["scale", "no fill", "epoch", "unit", "duration", "unsigned", "missing"],
)
def test_values_packed_otherwise_are_packed_as_most_are(main, odd):
    """Or refused, where a value has no number."""
    parts = [packed(np.array([4, -9, 7, 8], "i2") + i, f"p{i}", **main) for i in range(3)]
    array, values = joined(*parts, packed(np.array([4, -1, 7, 8], "i2"), "p9", **odd))
    if odd.get("_FillValue") == 0 and "_FillValue" not in main:
        array, values = array[:14], values[:14]
    back = written(array)
    assert n_inline(back) == 2 - (len(values) == 14)
    got = unpack(back).array
    assert got.dtype == values.dtype
    assert read_array(got, ()).tobytes() == values.tobytes()
    assert {key: back.attributes[key] for key in main} == main


def test_values_without_a_packed_number_are_written_unpacked():
    """A quarter is not a half."""
    parts = [packed(np.arange(4, dtype="i2"), f"q{i}", scale_factor=0.5) for i in range(3)]
    array, values = joined(*parts, packed(np.arange(4, dtype="i2"), "q9", scale_factor=0.25))
    assert "other values would be read back" in refusal(array, 20)
    back = written(array)
    assert "scale_factor" not in back.attributes
    assert (n_inline(back), back.dtype) == (8, values.dtype)
    assert read_array(back, ()).tobytes() == values.tobytes()


def test_dates_that_have_no_sure_number_are_written_as_dates():
    """Those that only cftime decodes: their reference date is before the reform of the calendar."""
    old, new = {"units": "days since 1500-01-01"}, {"units": "days since 2000-01-01"}
    numbers = np.array([182620, 182621, 182622, 182623], "i4")
    parts = [packed(numbers + i, f"o{i}", **old) for i in range(3)]
    array, values = joined(*parts, packed(np.arange(4, dtype="i4"), "o9", **new))
    assert "dates in 'days since 1500-01-01' cannot be converted to numbers exactly" in refusal(array, 50)
    back = written(array)
    assert back.dtype == values.dtype == np.dtype("M8[ns]")
    np.testing.assert_array_equal(read_array(back, ()), values)


def test_a_packing_that_has_no_number_for_holes_is_not_chosen():
    """Most chunks are packed in halves, but the holes of another file read as a quarter."""
    halves = [packed(np.arange(4, dtype="i2"), f"r{i}", scale_factor=0.5) for i in range(3)]
    holes = np.array([1, 1, 0, 1], np.uint8)
    array, values = stored(np.full(8, 2, "i2"), (2,), "r9", fill=1, holes=holes)
    quarters = unpack(replace(array, attributes={"scale_factor": 0.25})).array
    array, values = joined(*halves, (quarters, values * 0.25))
    plan = plan_of(array)
    assert plan.manifest.fill.value == 0.25
    assert plan.cells.tolist() == list(range(6))
    back = written(array)
    assert n_inline(back) >= 6
    assert read_array(unpack(back).array, ()).tobytes() == values.tobytes()


# -- encoding -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "codecs",
    [
        (Codec.from_config("numcodecs.shuffle", elementsize=4), Codec.from_config("numcodecs.zlib", level=9)),
        (Codec.from_config("zstd", level=1), Codec.from_config("numcodecs.fletcher32")),
        (Codec.from_config("blosc", cname="lz4", clevel=5, shuffle="shuffle", typesize=4, blocksize=0),),
        (
            Codec.from_config("virtualstack.cf", data_type=">i2", attributes={"scale_factor": {"float32": 0.5}}),
            Codec("gzip"),
        ),
    ],
    ids=lambda codecs: "+".join(x.name for x in codecs),
)
def test_chunks_encode_to_what_decodes_to_them(codecs):
    """Checked by the decoder; here, that it is not refused."""
    values = np.arange(12, dtype="f4").reshape(3, 4)
    assert len(encode_chunk(values, ChunkEncoding.c_order("f4", (3, 4), codecs))) > 0


@pytest.mark.parametrize(
    ("codec", "why"),
    [
        (Codec("virtualstack.szip"), "cannot be stored as virtualstack.szip"),
        (Codec.from_config("numcodecs.quantize", digits=1, dtype="f4"), "other values would be read back"),
        (Codec("unheard-of"), "cannot be stored as unheard-of"),
    ],
    ids=["no encoder", "lossy", "unknown"],
)
def test_chunks_that_cannot_be_encoded_are_refused(codec, why):
    """With the codecs named."""
    with pytest.raises(CodecError, match=why):
        encode_chunk(np.array([1.26], "f4"), ChunkEncoding.c_order("f4", (1,), [codec]))


def test_strings_are_encoded():
    """Of any length."""
    strings = np.dtypes.StringDType()
    values = np.array(["a", "", "bcd"], strings)
    encoding = ChunkEncoding.c_order(strings, (3,), [Codec("vlen-utf8")])
    array = one_inline_chunk(encode_chunk(values, encoding), (3,), strings, codecs=encoding.codecs)
    assert read_array(array, ()).tolist() == ["a", "", "bcd"]
    plan = plan_of(array[::-1])
    assert read_array(rewrite(plan, 10**6), ()).tolist() == ["bcd", "", "a"]

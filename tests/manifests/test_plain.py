"""What an array says of its chunks: plain, or in what it differs and how often."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings

from tests.amount import examples
from virtualstack.manifests import ChunkAxis, ChunkEncoding, ChunkGrid, unpack
from virtualstack.manifests.plain import PlainArray, _odd_lengths, describe, find_differences, match_axes, why_not_plain
from virtualstack.testing.strategies import ZLIB, in_pages, known_arrays, store_array


def stored(shape, chunks, name, **options):
    return store_array(np.ones(shape), chunks, url=f"memory://plain/{name}", **options).array


def test_a_plain_array_says_so():
    """And which targets take it."""
    array = stored((6, 4), (2, 4), "a")
    assert list(find_differences(array)) == ["plain"]
    assert "codecs: uncompressed" in describe(array)
    assert describe(array).endswith("plain: any zarr, kerchunk or Icechunk target takes it as it is")


def test_rectilinear_counts_the_odd_chunks():
    """The last chunk of a file stands mid-array; the last one of all may be short."""
    array = np.concatenate([stored((365, 4), (30, 2), "b"), stored((366, 4), (30, 2), "c")])
    assert find_differences(array) == {"rectilinear": ["2 of 52 chunks are not 30 long along axis 0"]}


@pytest.mark.parametrize(
    ("options", "differs"),
    [
        ({"codecs": (ZLIB,)}, "codecs: uncompressed, numcodecs.zlib"),
        ({"stored_dtype": ">f8"}, "byte order: little, big"),
        ({"chunks": (1, 4)}, "chunk shape: 2 x 4, 1 x 4"),
        ({"dtype": "f4"}, "dtype: float64, float32"),
    ],
    ids=["codecs", "byte order", "chunk shape", "dtype"],
)
def test_mixed_encodings_say_what_differs(options, differs):
    """The most frequent value comes first."""
    many = [stored((12, 4), (2, 4), f"d{i}") for i in range(2)]
    options = dict(options)
    values = np.ones((6, 4), options.pop("dtype", "f8"))
    odd = store_array(values, options.pop("chunks", (2, 4)), url="memory://plain/e", **options).array
    array = np.concatenate([odd, *many])
    line = f"{odd.manifest.summary().n_chunks} chunks are not stored as most are ({differs})"
    assert find_differences(array)["mixed encodings"] == [line]
    assert f"mixed encodings: {line}" in describe(array).splitlines()


def test_mixed_packing_is_told_by_its_attributes():
    """Codecs that unpack are no compression."""
    parts = [
        unpack(
            replace(
                store_array(np.arange(4, dtype="i2"), (2,), url=f"memory://plain/p{scale}").array,
                attributes={"scale_factor": scale},
            )
        ).array
        for scale in (0.5, 0.25)
    ]
    (line,) = find_differences(np.concatenate(parts))["mixed encodings"]
    assert line.startswith("2 chunks are not stored as most are (packing: ")
    assert ";" not in line


def test_equal_chunks_that_are_shorter_than_stored_ones_are_unaligned():
    """Slices have left the beginning of each."""
    array = np.concatenate([stored((2, 4), (2, 4), f"h{i}")[:1] for i in range(3)])
    assert find_differences(array) == {"unaligned": ["3 chunks are shorter than the stored ones"]}


@pytest.mark.parametrize(
    ("key", "n_cut", "n_turned"),
    [(np.s_[1:], 1, 0), (np.s_[::-1], 3, 3), (np.s_[:, ::2], 0, 3), (np.s_[:, 1:], 3, 0)],
    ids=["cut", "reversed", "steps", "cut inside"],
)
def test_unaligned_counts_chunks(key, n_cut, n_turned):
    """Those that begin within a stored chunk, and those seen otherwise than they lie."""
    lines = find_differences(stored((6, 4), (2, 4), "f")[key])["unaligned"]
    cut = [f"{n_cut} chunks begin within a stored one: a slice, or other chunks, cut it"] if n_cut else []
    assert lines == [
        *cut,
        *([f"{n_turned} chunks are seen with steps, reversed, repeated or in part"] if n_turned else []),
    ]


def test_mixed_fills_count_holes():
    """Of another fill value than the array's."""
    holes = np.array([[1], [0]], np.uint8)
    parts = [stored((4, 2), (2, 2), f"g{fill}", fill=fill, holes=holes) for fill in (1, 2)]
    found = find_differences(np.concatenate(parts))
    assert found == {"mixed fills": ["1 holes have another fill value than the array"]}


@settings(deadline=None, max_examples=examples(100))
@given(known_arrays(), known_arrays())
def test_an_array_has_a_form_exactly_as_it_is_plain_or_not(left, right):
    """No array that is not plain is without a reason."""
    arrays = [left.array, right.array]
    if left.array.ndim and left.array.shape == right.array.shape and left.array.dtype == right.array.dtype:
        arrays.append(np.concatenate(arrays))
    for array in arrays:
        found = find_differences(array)
        assert found
        assert all(found.values())
        assert (list(found) == ["plain"]) is (why_not_plain(array) is None)
        assert ("not plain: " in describe(array)) is (why_not_plain(array) is not None)


@settings(deadline=None, max_examples=examples(100))
@given(known_arrays())
def test_tables_alone_tell_the_form_of_a_plain_array(known):
    """Of any that has one encoding; no page is read."""
    array = known.array.whole()
    plain = PlainArray.from_array(array)
    assume(isinstance(plain, PlainArray) and plain.encoding is not None)
    paged, pages = in_pages(replace(array, manifest=array.manifest.compact()), 3)
    found = PlainArray.of_tables(paged)
    assert (found.chunks, found.order, found.encoding) == (plain.chunks, plain.order, plain.encoding)
    assert pages.read_pages == []


def test_tables_tell_no_form_where_there_is_none():
    """Several encodings, other lengths, steps, no chunks."""
    one = stored((4, 2), (2, 2), "one")
    arrays = [np.concatenate([one, stored((4, 2), (2, 2), "two", codecs=(ZLIB,))]), np.concatenate([one[:1], one])]
    arrays += [one[:, ::-1], stored((4, 2), (2, 2), "none", holes=np.array([[1], [1]], np.uint8))]
    for array in arrays:
        assert PlainArray.of_tables(array) is None


@pytest.mark.parametrize("chunks", [(1, 2, 1), (2, 1, 1), (1, 1, 2), (2, 1, 3, 1)])
def test_axes_of_one_element_take_nothing_from_those_beside_them(chunks):
    """Chunks that are longer than the array have the shape that they are stored in."""
    encoding = ChunkEncoding.c_order("i2", chunks)
    assert match_axes(encoding, (1,) * len(chunks)) == (chunks, None)


@pytest.mark.parametrize(
    "lengths", [[4, 1, 4, 6], [4, 1, 4, 4], [4, 4, 1, 2], [1, 4, 4, 5], [5, 4, 3], [3, 4, 4, 1]], ids=str
)
def test_chunks_of_other_lengths_are_counted_but_for_a_shorter_last_one(lengths):
    common = max(sorted(set(lengths)), key=lengths.count)
    n_odd = sum(n != common for n in lengths[:-1]) + (lengths[-1] > common)
    axis = ChunkAxis.from_lengths(lengths)
    assert _odd_lengths(ChunkGrid((axis,)), 0) == (common, n_odd)
    assert _odd_lengths(ChunkGrid((ChunkAxis.regular(6, 2), axis, ChunkAxis.regular(5, 2))), 1) == (common, 9 * n_odd)

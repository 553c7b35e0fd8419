"""Parquet references of manifests that are not in memory: written a part at a time, or not at all."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.data.arrays import array_of, referenced
from tests.kerchunk.reading import read
from virtualstack.errors import MalformedFileError, StorageError, WriterError
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.manifests import EMPTY, FIRST, INLINE, ChunkEncoding, ChunkManifest, Fill, ManifestGroup
from virtualstack.manifests.cells import mesh
from virtualstack.manifests.manifest import UnreadManifest
from virtualstack.manifests.plain import PlainArray
from virtualstack.storage import MemoryTarget
from virtualstack.testing.strategies import in_pages, known_arrays

ENCODING = ChunkEncoding.c_order("<i4", (2,))
OWN = Fill.from_value(7, "i4")


@dataclass(frozen=True)
class Endless(UnreadManifest):
    """Entries made of their numbers, in parts of at most 2^20; what ``change`` gives for a part is given in its place.

    Parameters
    ----------
    n
        Cells.
    change
        Changes a part of one axis, given the number of its first cell.
    """

    n: int
    change: object = staticmethod(lambda part, first: part)
    url: str = "memory://endless"

    @property
    def shape(self):
        return (self.n,)

    @property
    def tables(self):
        return ChunkManifest(ChunkManifest.empty((0,), OWN).entries, fills=(OWN,), encodings=(ENCODING,))

    def summary(self):
        return None

    def read(self, box):
        return self.pick(mesh(box, None))

    def pick(self, cells):
        (cells,) = cells
        assert cells.size <= 1 << 20, "all is read at once"
        made = ChunkManifest.from_arrays(
            cells * 8, np.full(cells.shape, 8), location="s3://bucket/a.nc", encoding=ENCODING, fill=OWN
        )
        return self.change(made, int(cells[0]))


def group_of(manifest, **attributes):
    return ManifestGroup(arrays={"v": array_of(manifest, (2,), attributes=attributes)})


def rows(url):
    folder, _, name = url.rpartition("/")
    target = MemoryTarget(f"{folder}/")
    keys = [key for key in target.list(name) if key.endswith(".parq")]
    keys.sort(key=lambda key: int(key.split(".")[-2]))
    return pa.concat_tables(pq.read_table(pa.BufferReader(target.get(key))) for key in keys).unify_dictionaries()


def test_a_large_manifest_is_never_read_as_a_whole(tmp_path):
    """Every reference is written, in C order."""
    n = 2_500_000
    url = f"memory://{tmp_path.name}/refs.parq"
    write_kerchunk(group_of(Endless(n)), url)
    table = rows(url)
    np.testing.assert_array_equal(table["offset"].to_numpy(), np.arange(n) * 8)
    assert pa.compute.unique(table["size"]).to_pylist() == [8]
    assert {x for chunk in table["path"].chunks for x in chunk.dictionary.to_pylist()} == {"s3://bucket/a.nc"}


@settings(deadline=None, max_examples=examples(60))
@given(known_arrays(), st.integers(1, 9), st.booleans(), st.sampled_from(["json", "parq"]))
def test_what_is_written_is_the_same_as_of_a_manifest_in_memory(known, page_size, is_masked, suffix):
    """Or neither can be written."""
    array = known.array
    if is_masked:
        array = replace(array, attributes={"_FillValue": array.in_memory().fill.value})
    paged, _ = in_pages(array, page_size)
    urls = [f"memory://same/{name}.{suffix}" for name in ("held", "paged")]
    try:
        write_kerchunk(ManifestGroup(arrays={"v": array}), urls[0], inline_limit=0)
    except WriterError as error:
        with pytest.raises(WriterError) as caught:
            write_kerchunk(ManifestGroup(arrays={"v": paged}), urls[1], inline_limit=0)
        assert str(caught.value) == str(error)
        return
    write_kerchunk(ManifestGroup(arrays={"v": paged}), urls[1], inline_limit=0)
    held, got = (read(url).arrays["v"] for url in urls)
    assert got.equals(held)
    assert got.attributes.keys() == held.attributes.keys()
    assert got.in_memory().fill == held.in_memory().fill


@settings(deadline=None, max_examples=examples(60))
@given(known_arrays(), st.integers(1, 9))
def test_a_counted_array_has_the_form_of_the_one_in_memory(known, page_size):
    """Or the same reason why it has none."""
    paged, _ = in_pages(known.array, page_size)
    expected, got = PlainArray.from_array(known.array), PlainArray.from_array(paged)
    if isinstance(expected, str):
        assert got == expected
        return
    assert (got.chunks, got.order, got.n_holes) == (expected.chunks, expected.order, expected.n_holes)
    assert got.encoding == expected.encoding
    assert got.fill == expected.fill


def other_encoding(part, first):
    cells = part.entries.copy()
    cells["encoding"][-1] = 1
    return replace(part, entries=cells, encodings=(ENCODING, ChunkEncoding.c_order(">i4", (2,))))


def other_fill(part, first):
    cells = part.entries.copy()
    cells[-3:-1] = (EMPTY, 0, 0, 0)
    cells[-1] = (EMPTY, 1, 0, 0)
    return replace(part, entries=cells, fills=(OWN, Fill.from_value(8, "i4")))


def cut(part, first):
    return replace(part, starts=np.append(np.zeros(part.entries.size - 1, np.int64), 1))


@pytest.mark.parametrize("scheme", ["file", "memory"])
@pytest.mark.parametrize(
    ("odd", "reason"),
    [(other_encoding, "2 encodings"), (other_fill, "other fill values"), (cut, "a slice cuts")],
)
def test_an_odd_chunk_near_the_end_leaves_the_target_as_it_was(odd, reason, scheme, tmp_path, monkeypatch):
    """It is found before anything is written."""
    monkeypatch.setattr("virtualstack.manifests.chunk_manifest._BLOCK_CELLS", 1000)
    url = f"{scheme}://{tmp_path if scheme == 'file' else tmp_path.name}/refs.parq"
    write_kerchunk(group_of(Endless(10)), url)
    manifest = Endless(5000, lambda part, first: odd(part, first) if first + part.entries.size == 5000 else part)
    with pytest.raises(WriterError, match=reason):
        write_kerchunk(group_of(manifest), url, inline_limit=0)
    assert read(url).arrays["v"].shape == (20,)


def empty(part, first):
    cells = part.entries.copy()
    cells[1::2] = np.zeros((), cells.dtype)
    return replace(part, entries=cells)


@pytest.mark.parametrize(("attributes", "code"), [({"missing_value": 7}, EMPTY), ({}, INLINE)])
def test_holes_are_left_out_or_written_out(attributes, code, tmp_path, monkeypatch):
    """As their fill value asks for; one chunk is kept for all of them."""
    monkeypatch.setattr("virtualstack.manifests.chunk_manifest._BLOCK_CELLS", 1000)
    url = f"memory://{tmp_path.name}/refs.parq"
    write_kerchunk(group_of(Endless(4000, empty), **attributes), url)
    found = read(url).arrays["v"].in_memory()
    assert found.entries["location"].tolist() == [FIRST, code] * 2000
    if code == INLINE:
        assert found.inline[:8] == np.array([7, 7], "<i4").tobytes()
    else:
        assert found.fill == OWN


def test_references_are_written_over_those_that_they_are_read_from(tmp_path):
    """All files are made before the first is replaced."""
    url = f"memory://{tmp_path.name}/refs.parq"
    write_kerchunk(group_of(Endless(250_000)), url)
    back = read(url)
    array = replace(back.arrays["v"][100_000:], dimension_names=("x",))
    write_kerchunk(replace(back, arrays={"v": array}), url)
    np.testing.assert_array_equal(rows(url)["offset"].to_numpy(), np.arange(50_000, 250_000) * 8)


def test_a_read_that_fails_leaves_the_target_as_it_was(tmp_path):
    """Though all looked well before."""
    url = f"memory://{tmp_path.name}/refs.parq"
    write_kerchunk(group_of(Endless(10)), url)
    seen = []

    def fail(part, first):
        seen.append(first)
        if len(seen) > 1:
            raise StorageError("gone")
        return part

    with pytest.raises(StorageError, match="gone"):
        write_kerchunk(group_of(Endless(1000, fail)), url)
    np.testing.assert_array_equal(rows(url)["offset"].to_numpy(), np.arange(10) * 8)


def test_a_write_that_fails_is_seen_by_readers_and_can_be_repeated(tmp_path, monkeypatch):
    """Old and new files are never read as one."""
    url = f"memory://{tmp_path.name}/refs.parq"
    write_kerchunk(group_of(Endless(250_000)), url)
    put = MemoryTarget.put

    def fail(self, key, data):
        if key.endswith("refs.2.parq"):  # those before it are as they were
            raise StorageError("no network")
        put(self, key, data)

    monkeypatch.setattr(MemoryTarget, "put", fail)
    with pytest.raises(StorageError, match="no network"):
        write_kerchunk(group_of(Endless(240_000)), url)
    with pytest.raises(MalformedFileError, match="'record_size' 0"):
        read(url)
    monkeypatch.undo()
    write_kerchunk(group_of(Endless(240_000)), url)
    assert read(url).arrays["v"].shape == (480_000,)


def test_no_space_for_what_is_made_first_is_an_error(tmp_path, monkeypatch):
    """It says where."""

    def full(self, data):
        raise OSError("no space")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(StorageError, match=r"references cannot be prepared in '.*': no space. Set TMPDIR"):
        write_kerchunk(group_of(Endless(10)), f"memory://{tmp_path.name}/refs.parq")


def test_a_reference_to_no_bytes_is_none_to_a_whole_file(tmp_path):
    """Offset 0 and size 0 stand for one in parquet."""
    url = f"memory://{tmp_path.name}/refs.parq"
    write_kerchunk(ManifestGroup(arrays={"v": referenced([0, 8], [0, 0], (2,), "<i4", fill=7)}), url)
    found = read(url).arrays["v"].in_memory()
    assert found.entries["location"].tolist() == [INLINE, FIRST]
    assert found.entries["length"].tolist() == [0, 0]

import math
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.arrays import referenced
from tests.kerchunk.reading import parquet_bytes
from virtualstack.errors import MalformedFileError
from virtualstack.kerchunk.document import SCHEMA, parquet_files, reference_dict
from virtualstack.kerchunk.parquet_table import parse_zmetadata, read_record, unpacked_size
from virtualstack.kerchunk.references import WHOLE
from virtualstack.location import Location
from virtualstack.manifests import EMPTY, FIRST, INLINE, ChunkEncoding, ChunkManifest, Fill
from virtualstack.zarr.metadata.version2 import ZarrHierarchy

ENCODING = ChunkEncoding.c_order("u1", (1,))
INLINE_CHUNKS = (b"\xff\0{", b"base64:YWJj", b"")


def hierarchy(n=25):
    rng = np.random.default_rng(0)
    codes = rng.choice([EMPTY, INLINE, FIRST, FIRST + 1, FIRST + 2], n)
    which = rng.integers(0, len(INLINE_CHUNKS), n)
    lengths = np.array([len(x) for x in INLINE_CHUNKS])
    starts = np.cumsum(lengths) - lengths
    manifest = ChunkManifest.from_arrays(
        np.where(codes == INLINE, starts[which], rng.integers(1, 2**62, n)),
        np.where(codes == EMPTY, -1, np.where(codes == INLINE, lengths[which], rng.integers(1, 2**60, n))),
        location=[Location(f"s3://bucket/{i} ü.nc") for i in range(3)],
        encoding=ENCODING,
        fill=Fill.zero("u1"),
        location_codes=codes,
        inline=b"".join(INLINE_CHUNKS),
    )
    scalar = referenced(3, 4, (), "i4", location="file:///a").manifest
    shapes = {"g/v": [n], "s": [], "h": [2, 3]}
    metadata = {f"{path}/.zarray": {"shape": shape, "chunks": [1] * len(shape)} for path, shape in shapes.items()}
    holes = ChunkManifest.empty((2, 3), Fill.zero("u1"))
    return ZarrHierarchy(metadata=metadata, manifests={"g/v": manifest, "s": scalar, "h": holes})


@pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated")
@pytest.mark.parametrize("record_size", [4, 25, 100])
def test_fsspec_reads_every_reference(tmp_path, record_size):
    """fsspec's mapper gives each reference and inline chunk as JSON has it, and a KeyError for each hole."""
    pytest.importorskip("fastparquet", reason="fastparquet is not installed: pip install 'virtualstack[kerchunk]'")
    reference = pytest.importorskip("fsspec.implementations.reference")
    made = hierarchy()
    for key, data in parquet_files(made, record_size=record_size):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(data)
    rows = sum(pq.read_metadata(path).num_rows for path in (tmp_path / "g/v").iterdir())
    assert rows == 25
    mapper = reference.LazyReferenceMapper(str(tmp_path))
    files = reference.ReferenceFileSystem(str(tmp_path))
    refs = reference_dict(made)["refs"]
    for key in [*(f"g/v/{i}" for i in range(25)), "s/0", *(f"h/{i}.{j}" for i in range(2) for j in range(3))]:
        if key not in refs:
            with pytest.raises(KeyError):
                mapper[key]
        elif isinstance(refs[key], list):
            assert mapper[key] == refs[key]
            assert all(isinstance(x, (int, np.integer)) for x in mapper[key][1:])
        else:
            assert files.cat_file(key) == reference.ReferenceFileSystem({"k": refs[key]}).cat_file("k")


@pytest.mark.parametrize("record_size", [4, 25, 100])
def test_columns_come_back(record_size):
    """Our reader gives the manifest's columns, whatever the size of files."""
    made = hierarchy()
    files = dict(parquet_files(made, record_size=record_size))
    assert parse_zmetadata(files[".zmetadata"], where="r")[1] == record_size
    heap = made.manifests["g/v"].inline
    for record, first in enumerate(range(0, 25, record_size)):
        entries = made.manifests["g/v"].entries[first : first + record_size]
        got = read_record(files[f"g/v/refs.{record}.parq"], len(entries), where="r")
        present = np.flatnonzero(entries["location"] != EMPTY)
        assert got.cells.tolist() == present.tolist()
        is_inline = entries["location"][present] == INLINE
        assert (got.rows < 0).tolist() == is_inline.tolist()
        urls = [got.urls[row] for row in got.rows[~is_inline]]
        assert urls == [f"s3://bucket/{code - FIRST} ü.nc" for code in entries["location"][present][~is_inline]]
        assert got.offsets[~is_inline].tolist() == entries["offset"][present][~is_inline].tolist()
        assert got.lengths[~is_inline].tolist() == entries["length"][present][~is_inline].tolist()
        spans = zip(entries["offset"][present][is_inline], entries["length"][present][is_inline], strict=True)
        assert list(got.inline) == [heap[o : o + n] for o, n in spans]


def record_of(rows=(), *, columns=None):
    if columns is None:
        path, offset, size, raw = zip(*rows, strict=True)
        columns = {
            "path": pa.array(path, pa.string()),
            "offset": offset,
            "size": size,
            "raw": pa.array(raw, pa.binary()),
        }
    return parquet_bytes(pa.table(columns))


@contextmanager
def arrow_memory_below(n_bytes):
    """Fail where pyarrow takes more memory."""
    pool, usual = pa.proxy_memory_pool(pa.default_memory_pool()), pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(usual)
    assert pool.max_memory() < n_bytes


def test_paths_alone_are_whole_files_and_padding_is_ignored():
    """Offset and size of 0 mean the whole file; rows beyond the grid are padding."""
    rows = [("a", 0, 0, None), ("b", 5, 6, None), (None, 0, 0, None), ("c", 1, 1, b"x"), (None, 0, 0, None)]
    got = read_record(record_of(rows), 4, where="r")
    assert got.cells.tolist() == [0, 1, 3]
    assert got.lengths.tolist()[:2] == [WHOLE, 6]
    assert got.inline == (b"x",)


def test_columns_may_be_left_out():
    """Old writers left out columns of nothing."""
    data = record_of(columns={"raw": pa.array([b"a", None], pa.binary()).dictionary_encode()})
    got = read_record(data, 2, where="r")
    assert (got.cells.tolist(), got.inline) == ([0], (b"a",))
    columns = {"path": pa.array(["a", "b"]), "offset": pa.array([1.0, 2.0]), "size": pa.array([3, 4], pa.uint64())}
    got = read_record(record_of(columns=columns), 2, where="r")
    assert (got.offsets.tolist(), got.lengths.tolist()) == ([1, 2], [3, 4])


@pytest.mark.parametrize(
    "zmetadata",
    [
        b"{}",
        b"[]",
        b'{"metadata":{},"record_size":0}',
        b'{"metadata":{},"record_size":true}',
        b'{"metadata":{},"record_size":4611686018427387904}',
    ],
)
def test_zmetadata_of_something_else(zmetadata):
    """Consolidated metadata of a zarr store is told from that of references."""
    with pytest.raises(
        MalformedFileError, match=r"'.zmetadata' of 'r' has no 'metadata', or the invalid 'record_size'"
    ):
        parse_zmetadata(zmetadata, where="r")


def test_files_that_contradict_the_metadata():
    """Too few rows, no parquet and impossible columns are named with the file."""
    with pytest.raises(MalformedFileError, match=r"'r' has 1 row; expected 2"):
        read_record(record_of([("a", 0, 1, None)]), 2, where="r")
    with pytest.raises(MalformedFileError, match=r"'r' is not a parquet table of references"):
        read_record(b"PAR1", 2, where="r")
    with pytest.raises(MalformedFileError, match="is not a parquet table of references"):
        read_record(record_of(columns={"offset": pa.array(["x", "y"])}), 2, where="r")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"url": pa.array(["a", "b"]), "size": pa.array([1, 2])}, r"none of its columns \['url', 'size'\] is 'path'"),
        ({"path": pa.array([b"a", b"\xff"])}, "is not a parquet table of references: .*UTF8"),
        ({"path": pa.array([["a"], ["b"]])}, "is not a parquet table of references"),
        ({"path": pa.array([1, 2])}, "is not a parquet table of references"),
        ({"path": pa.array(["a", "b"]), "size": pa.array([-1, 5])}, "has a reference of -1 bytes"),
    ],
)
def test_files_of_something_else_are_no_absent_chunks(columns, message):
    """Whatever has other columns, or nothing in them that could be a reference, is an error and not a hole."""
    with pytest.raises(MalformedFileError, match=message):
        read_record(record_of(columns=columns), 2, where="r")


def test_a_name_that_is_no_text_is_an_error():
    """Damage in the names of columns, which pyarrow decodes when they are asked for."""
    data = record_of([("a", 0, 1, None)])
    with pytest.raises(MalformedFileError, match="is not a parquet table of references"):
        read_record(data.replace(b"offset", b"off\xffet"), 1, where="r")


@pytest.mark.parametrize("bit", [0x04, 0x20, 0x80])
def test_damage_anywhere_is_told_or_makes_other_references(bit):
    """Codes beyond their dictionary, names that are no text: whatever pyarrow takes, no other error comes of it."""
    rows = [("a", 0, 1, None), ("b", 0, 1, None), (None, 0, 0, b"xx"), (None, 0, 0, b"yy")]
    data = record_of(rows)
    n_refused = 0
    for i in range(len(data)):
        damaged = bytearray(data)
        damaged[i] ^= bit
        try:
            assert len(read_record(bytes(damaged), 4, where="r").cells) <= 4
        except MalformedFileError as error:
            assert "'r'" in str(error)
            n_refused += 1
    assert n_refused > 100


def test_rows_past_the_grid_are_not_decoded():
    """A file of a few kilobytes can have any number of rows that are null."""
    n = 1 << 22
    nothing = pa.table({name: pa.nulls(n, pa.string()) for name in ("path", "offset", "size", "raw")})
    data = parquet_bytes(nothing, row_group_size=n)
    assert len(data) < 100_000
    with arrow_memory_below(4 << 20):
        assert read_record(data, 3, where="r").cells.tolist() == []


def test_what_few_bytes_repeat_is_refused_before_it_is_written_out(monkeypatch):
    """Inline chunks that are one value of a dictionary, and compressed ones, are bounded by what they become."""
    monkeypatch.setattr("virtualstack.kerchunk.parquet_table._MAX_BYTES", 8 << 20)
    repeated = {"raw": pa.array([b"\0" * (1 << 20)] * 9)}
    with pytest.raises(MalformedFileError, match="'r' has 9437184 bytes of values; at most 8388608 are read"):
        read_record(record_of(columns=repeated), 9, where="r")
    assert len(read_record(record_of(columns=repeated), 8, where="r").inline) == 8
    several = {"raw": pa.array([bytes([i]) * (1 << 20) for i in range(9)])}
    with pytest.raises(MalformedFileError, match="at most 8388608 are read"):
        read_record(record_of(columns=several), 2, where="r")


@pytest.mark.parametrize(
    ("path", "compression", "n_rows", "message"),
    [
        (
            lambda: pa.nulls(1 << 22, pa.string()),
            "zstd",
            1 << 22,
            "says that it unpacks to 268435456; at most 67108864 are",
        ),
        (lambda: pa.array(["a" * (1 << 27)]), "brotli", 1, "says that it unpacks to 1342.*; at most 67108864 are"),
    ],
    ids=["nulls", "text"],
)
def test_small_files_that_claim_much_are_refused_before_memory_is_taken(path, compression, n_rows, message):
    """Less than 2 kB of parquet took 2.4 GB."""
    data = parquet_bytes(pa.table({"path": path()}), compression=compression, row_group_size=1 << 22)
    assert len(data) < 10_000
    with arrow_memory_below(1 << 20), pytest.raises(MalformedFileError, match=message):
        read_record(data, n_rows, n_rows, where="r")


def _as_varint(number):
    """Return a number as thrift stores it in five bytes."""
    return bytes((2 * number) >> shift & 127 | 128 for shift in (0, 7, 14, 21)) + bytes([2 * number >> 28])


def test_files_that_lie_about_their_sizes_are_refused_before_memory_is_taken():
    """The metadata says 200 bytes, and the page in front of which no one looked holds 128 MiB."""
    data = parquet_bytes(pa.table({"path": ["a" * (1 << 27)]}), compression="brotli")
    group = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0)
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer = data[start:]
    for size in {group.total_byte_size, group.column(0).total_uncompressed_size}:
        assert _as_varint(size) in footer
        footer = footer.replace(_as_varint(size), _as_varint(200))
    renamed = b"qath".join([footer[: footer.rindex(b"\x04path") + 1], footer[footer.rindex(b"\x04path") + 5 :]])
    for other in (footer, renamed):  # pyarrow does not look at the name of a column in its metadata
        lying = data[:start] + other
        assert pq.ParquetFile(pa.BufferReader(lying)).metadata.row_group(0).total_byte_size == 200
        with pytest.raises(MalformedFileError, match="says that it unpacks to 1342"):
            read_record(lying, 1, 1, where="r")


def test_text_stored_as_differences_is_refused():
    """Any number of bytes may come of few, for what one value has in common with the last is not stored."""
    options = {"use_dictionary": False, "column_encoding": {"path": "DELTA_BYTE_ARRAY"}}
    data = parquet_bytes(pa.table({"path": ["a" * 100_000] * 3000}), **options)
    with pytest.raises(
        MalformedFileError,
        match=r"the column 'path' has the encoding DELTA_BYTE_ARRAY, which is not read\. Write the references",
    ):
        read_record(data, 3000, 3000, where="r")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("has_index", [True, False])
def test_sizes_of_pages_are_those_of_the_metadata(version, has_index):
    """What writers say of their columns is what the pages have, but for the headers."""
    n = 100_000
    table = pa.table(
        {"path": [f"a{i % 100}" for i in range(n)], "offset": np.arange(n), "size": [1.0, None] * (n // 2)}
    )
    options = {"data_page_version": version, "write_page_index": has_index, "write_page_checksum": True}
    data = parquet_bytes(table, row_group_size=30_000, data_page_size=10_000, **options)
    metadata = pq.ParquetFile(pa.BufferReader(data)).metadata
    groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
    said = sum(group.column(i).total_uncompressed_size for group in groups for i in range(3))
    found = unpacked_size(data)
    assert 0.95 * said < found < said


def test_schema_is_what_the_files_have():
    """Files have the four columns of kerchunk."""
    files = dict(parquet_files(hierarchy()))
    assert pq.read_schema(pa.BufferReader(files["s/refs.0.parq"])).equals(SCHEMA)
    assert math.prod([1]) == pq.read_table(pa.BufferReader(files["s/refs.0.parq"])).num_rows

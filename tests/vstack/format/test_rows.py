"""Pages of rows, and shards of them: beside zarr, which reads what their metadata describe, and plain Python."""

import itertools
import json
import math

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from zarr.storage import MemoryStore

from tests.amount import examples
from tests.vstack import plain_reader
from virtualstack.errors import MalformedFileError
from virtualstack.vstack.format import rows as format_rows
from virtualstack.vstack.format.rows import (
    ABSENT_ROW,
    EMPTY_ROW,
    INLINE_ROW,
    decode_page,
    encode_page,
    encode_shard,
    index_length,
    page_length,
    page_rows,
    parse_index,
)

SOURCES = st.sampled_from([ABSENT_ROW, EMPTY_ROW, INLINE_ROW, 0, 0, 1])
MARK = bytes(range(16))


@st.composite
def tables(draw, most=14):
    """Rows of three to five columns; bytes often follow each other."""
    n, columns = draw(st.integers(1, most)), draw(st.integers(3, 5))
    number = st.integers(0, 5) | st.integers(0, 1 << 61)
    table = [[draw(SOURCES), *(draw(number) for _ in range(columns - 1))] for _ in range(n)]
    for before, row in itertools.pairwise(table):
        if draw(st.booleans()):
            row[0], row[1] = before[0], before[1] + before[2]
    return np.array(table, np.int64).T


def with_offsets(page):
    """Return the rows of a page, whose second column has gaps, in plain Python."""
    found, last, end = [list(map(int, row)) for row in page.T], None, 0
    for row in found:
        if row[0] >= 0 or row[0] == INLINE_ROW:
            row[1] += end if row[0] == last else 0
            last, end = row[0], row[1] + row[2]
    return found


def test_numbers_of_the_format_are_those_of_the_specification():
    assert (plain_reader.ABSENT, plain_reader.EMPTY, plain_reader.INLINE) == (ABSENT_ROW, EMPTY_ROW, INLINE_ROW)
    assert (format_rows.PAGE_ROWS, format_rows.SHARD_PAGES) == (32768, 64)


@settings(max_examples=examples(200))
@given(tables(), st.integers(0, 3))
def test_a_page_holds_its_rows(table, more):
    """Rows beyond them are ABSENT; nobody may change a page, which others read too."""
    given_rows, (columns, n) = table.copy(), table.shape
    data = encode_page(table, n + more)
    np.testing.assert_array_equal(table, given_rows)
    page = decode_page(data, columns, n + more, where="here")
    np.testing.assert_array_equal(page[:, :n], table)
    assert (page[:, n:] == ABSENT_ROW).all()
    assert not page.flags.writeable
    assert len(data) <= page_length(columns, n + more)


@pytest.mark.parametrize("shape", [(3, 1), (5, 4000)])
def test_a_page_that_cannot_be_compressed_has_the_maximum_length(shape):
    table = np.random.default_rng(0).integers(-(1 << 63), 1 << 63, shape, np.int64)
    assert len(encode_page(table)) == page_length(*shape)


def refs_document(columns, n_rows):
    """Give the metadata of rows, by which zarr reads them; they are not written."""
    page = page_rows(n_rows)
    pages = min(-(-n_rows // page), format_rows.SHARD_PAGES)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [columns, n_rows],
        "data_type": "int64",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [columns, page * max(pages, 1)]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": ABSENT_ROW,
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [columns, page],
                    "codecs": [
                        {"name": "bytes", "configuration": {"endian": "little"}},
                        {
                            "name": "blosc",
                            "configuration": {
                                "cname": "zstd",
                                "clevel": 3,
                                "shuffle": "bitshuffle",
                                "typesize": 8,
                                "blocksize": 0,
                            },
                        },
                        {"name": "crc32c"},
                    ],
                    "index_codecs": [
                        {"name": "bytes", "configuration": {"endian": "little"}},
                        {"name": "crc32c"},
                    ],
                    "index_location": "end",
                },
            }
        ],
        "attributes": {},
        "dimension_names": ["column", "row"],
        "storage_transformers": [],
    }


@settings(max_examples=examples(100))
@given(tables())
def test_zarr_reads_shards(table):
    """By their metadata: pages of 3 rows, in shards of 2 pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(format_rows, "PAGE_ROWS", 3)
        patch.setattr(format_rows, "SHARD_PAGES", 2)
        columns, n = table.shape
        size = page_rows(n)
        assert (size, page_rows(0)) == (min(n, 3), 1)
        document = refs_document(columns, n)
        store = {"zarr.json": json.dumps(document).encode()}
        pages = [encode_page(table[:, i : i + size], size) for i in range(0, n, size)]
        n_pages = min(len(pages), 2)
        for shard in range(math.ceil(len(pages) / 2)):
            own = pages[2 * shard : 2 * shard + 2]
            store[f"c/0/{shard}"] = data = encode_shard(own, n_pages, MARK)
            index = parse_index(data[-index_length(n_pages) :], len(data), MARK, where="here")
            found = [data[begin : begin + length] for begin, length in index.spots.tolist()]
            assert found == [*own, *[b""] * (n_pages - len(own))]
    (codec,) = [x["configuration"] for x in document["codecs"][0]["configuration"]["codecs"] if x["name"] == "blosc"]
    _, _, flags, width = pages[0][:4]  # https://github.com/Blosc/c-blosc/blob/main/README_CHUNK_FORMAT.rst
    assert (width, bool(flags & 4), bool(flags & 1)) == (codec["typesize"], codec["shuffle"] == "bitshuffle", False)
    assert flags >> 5 == {"zstd": 4}[codec["cname"]]
    assert zarr.codecs.BloscCodec(cname="zstd", clevel=3, shuffle="bitshuffle", typesize=width).to_dict() == {
        "name": "blosc",
        "configuration": codec,
    }
    buffer = zarr.core.buffer.default_buffer_prototype().buffer
    objects = MemoryStore({key: buffer.from_bytes(value) for key, value in store.items()}, read_only=True)
    array = zarr.open_array(objects, mode="r")
    assert (array.shape, array.fill_value, array.shards[1]) == ((columns, n), ABSENT_ROW, size * n_pages)
    found = array[...]
    assert [row for i in range(0, n, size) for row in with_offsets(found[:, i : i + size])] == table.T.tolist()


@pytest.mark.parametrize(
    ("spots", "size", "is_good"),
    [
        ([(0, 100)], 100, True),
        ([(0, 101)], 100, False),
        ([(100, 0)], 100, True),
        ([(101, 0)], 100, False),
        ([(0, 60), (60, 40)], 100, True),
        ([(0, 60), (61, 40)], 100, False),
        ([(0, 2**64 - 1)], 100, False),
        ([(2**64 - 2, 4)], 100, False),  # their sum is beyond 64 bits
        ([(2**64 - 1, 2**64 - 1)], 100, True),  # no page
    ],
)
def test_an_index_names_bytes_of_its_shard(spots, size, is_good):
    body = np.array(spots, "<u8").tobytes()
    data = MARK + body + format_rows._checksum(body)
    if is_good:
        wanted = [list(x) if x[0] < 2**64 - 1 else [0, 0] for x in spots]
        assert parse_index(data, size, MARK, where="here").spots.tolist() == wanted
    else:
        with pytest.raises(MalformedFileError, match="here has a damaged index"):
            parse_index(data, size, MARK, where="here")


@pytest.mark.parametrize("at", [0, 15, 16, 31, 35])
def test_an_index_with_another_byte_is_damaged(at):
    body = np.array([(0, 100)], "<u8").tobytes()
    data = bytearray(MARK + body + format_rows._checksum(body))
    data[at] ^= 1
    with pytest.raises(MalformedFileError, match="another object than its name says" if at < 16 else "damaged index"):
        parse_index(bytes(data), 100, MARK, where="here")


def test_a_page_with_another_value_is_damaged():
    """Blosc itself does not notice: the values are not compressed."""
    data = bytearray(encode_page(np.random.default_rng(0).integers(-(1 << 63), 1 << 63, (3, 50), np.int64)))
    data[-5] ^= 1
    with pytest.raises(MalformedFileError, match=r"here is damaged: its checksum is wrong\. Restore it"):
        decode_page(data, 3, 50, where="here")


@pytest.mark.parametrize("change", [lambda x: x[:-1], lambda x: x + b"\0", lambda x: b"\0" + x[1:], lambda x: b""])
def test_a_page_with_other_bytes_is_damaged(change):
    data = encode_page(np.zeros((3, 5), np.int64))
    with pytest.raises(MalformedFileError, match="here is damaged"):
        decode_page(change(data), 3, 5, where="here")
    for shape in ((3, 4), (3, 6), (4, 5)):
        with pytest.raises(MalformedFileError, match="here is damaged"):
            decode_page(data, *shape, where="here")

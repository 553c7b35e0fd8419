"""References as kerchunk writes them, and how the reader is called on them; kerchunk's own engine as an oracle."""

import base64

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from virtualstack.formats.base import ReadOptions
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.location import absolute_url
from virtualstack.storage import Storage

__all__ = ["ENGINE_WARNINGS", "inline_references", "needs_engine", "parquet_bytes", "read"]

ENGINE_WARNINGS = [
    pytest.mark.filterwarnings("ignore:The 'fastparquet' engine is deprecated"),
    pytest.mark.filterwarnings("ignore:.*not part of the Zarr format 3 spec"),
    pytest.mark.filterwarnings("ignore::xarray.SerializationWarning"),
]
"""Marks of tests that open references by xarray's engine "kerchunk"."""


def needs_engine():
    """Skip where kerchunk's engine, or what it reads parquet by, is not installed."""
    for name in ("kerchunk", "fastparquet"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'virtualstack[kerchunk]'")


def read(path, storage=None, **options):
    """Read references by the reader alone, as one group."""
    return Kerchunk().read(absolute_url(path), Storage.from_option(storage), ReadOptions(**options))


def parquet_bytes(table, **options):
    """Return a table as the bytes of a parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


def inline_references(store):
    """Return all keys of a zarr store in memory as references with the bytes inline."""
    refs = {key: "base64:" + base64.b64encode(x.to_bytes()).decode() for key, x in store._store_dict.items()}
    return {"version": 1, "refs": refs}

"""Three libraries write and read the columns of kerchunk's parquet files: the decision for pyarrow in the core."""

import io
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.timing import IS_FULL

N_FILES = 1000 if IS_FULL else 2
ROWS = 100_000  # of a file, as kerchunk's default


def columns():
    """Codes of paths, paths, offsets and lengths of one file."""
    rng = np.random.default_rng(0)
    names = [f"s3://some-archive/era5/2024/{i:02d}/2m_temperature_{i:05d}.nc" for i in range(40)]
    sizes = rng.integers(50_000, 90_000, ROWS)
    return np.repeat(np.arange(40, dtype="i4"), ROWS // 40), names, np.cumsum(sizes), sizes


def pyarrow():
    """Writer and reader; the reader returns the sum of the offsets."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    codes, names, offsets, sizes = columns()

    def write(path):
        paths = pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(names))
        table = {"path": paths, "offset": offsets, "size": sizes, "raw": pa.nulls(ROWS, pa.binary())}
        pq.write_table(pa.table(table), path, compression="zstd")

    def read(data):
        table = pq.read_table(io.BytesIO(data), use_threads=False, read_dictionary=["path"])
        return int(table["offset"].to_numpy().sum())

    return write, read


def arro3():
    """As `pyarrow`; it takes texts from Python, as it makes no dictionaries."""
    import arro3.core as ac
    import arro3.io as aio

    codes, names, offsets, sizes = columns()
    texts = np.array(names, dtype=object)

    def write(path):
        paths = ac.Array(texts[codes].tolist(), ac.DataType.string())
        raw = ac.Array([None] * ROWS, ac.DataType.binary())
        arrays = [paths, ac.Array.from_numpy(offsets), ac.Array.from_numpy(sizes), raw]
        table = ac.Table.from_arrays(arrays, names=["path", "offset", "size", "raw"])
        aio.write_parquet(table, path, compression="zstd(1)")

    def read(data):
        return int(aio.read_parquet(io.BytesIO(data)).read_all()["offset"].to_numpy().sum())

    return write, read


def fastparquet():
    """As `pyarrow`."""
    import fastparquet as fp
    import pandas as pd

    codes, names, offsets, sizes = columns()

    def write(path):
        raw = np.array([None] * ROWS, dtype=object)
        table = {"path": pd.Categorical.from_codes(codes, names), "offset": offsets, "size": sizes, "raw": raw}
        options = {"object_encoding": {"raw": "bytes", "path": "utf8"}, "has_nulls": ["path", "raw"]}
        fp.write(path, pd.DataFrame(table), compression="ZSTD", write_index=False, stats=False, **options)

    def read(data):
        return int(fp.ParquetFile(io.BytesIO(data)).to_pandas()["offset"].to_numpy().sum())

    return write, read


def measure(library, n_files, folder):
    """Print what writing and reading some files takes."""
    write, read = globals()[library]()
    begin = time.process_time()
    for n in range(n_files):
        write(f"{folder}/{n}.parq")
    middle = time.process_time()
    total = 0
    for n in range(n_files):
        total += read(Path(folder, f"{n}.parq").read_bytes())
    end = time.process_time()
    assert total == n_files * int(columns()[2].sum())
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{library:12} {n_files * ROWS:.0e} rows: write {middle - begin:.2f} s, read {end - middle:.2f} s, {most} MiB"
    )


@pytest.mark.apart
@pytest.mark.parametrize("library", ["pyarrow", "arro3", "fastparquet"])
def test_writing_and_reading(library, tmp_path):
    """CPU time and memory, each library in a process of its own; full size: 10^8 rows."""
    pytest.importorskip("arro3.io" if library == "arro3" else library)
    call = f"measure({library!r}, {N_FILES}, {str(tmp_path)!r})"
    code = f"from tests.benchmarks.test_parquet_libraries import measure; {call}"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False, cwd=os.getcwd())
    print(done.stdout, end="")
    assert done.returncode == 0, done.stderr

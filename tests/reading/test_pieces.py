"""Small equal pieces of uncompressed values: many at once, and what h5py and netCDF4 read."""

from itertools import product

import h5py
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from virtualstack.errors import StorageError
from virtualstack.reading import read_array, read_points
from virtualstack.storage import LocalSource, MemoryTarget
from virtualstack.testing.strategies import store_array

N_ROWS, N_COLUMNS = 100, 1 << 14
COMPOUND = np.dtype({"names": ["a", "f1"], "formats": ["u1", ">f4"], "offsets": [0, 4], "itemsize": 12})
DTYPES = "<f4", ">f8", "?", "S3", ">i2", "<c8", "u1", COMPOUND


@pytest.fixture
def calls(monkeypatch):
    """Write down how often sources are asked."""
    asked = []

    def counted(name):
        read = getattr(LocalSource, name)

        def ask(self, *arguments):
            asked.append(name)
            return read(self, *arguments)

        monkeypatch.setattr(LocalSource, name, ask)

    for name in ("read", "read_into", "read_ranges"):
        counted(name)
    return asked


def contiguous(path, dtype, shape=(N_ROWS, N_COLUMNS)):
    values = np.random.default_rng(0).integers(0, 256, (*shape, np.dtype(dtype).itemsize), "u1")
    values = values % 2 if dtype == "?" else values
    values = values.view(dtype)[..., 0] if np.dtype(dtype).kind not in "fc" else values[..., 0].astype(dtype)
    if dtype == COMPOUND:
        values["f1"] = values["a"]
    with h5py.File(path, "w") as file:
        file["v"] = values
        values = file["v"][...]
    return vs.open_virtual_dataset(path)["v"].variable._data, values


ROWS = np.random.default_rng(1).integers(0, N_ROWS, 70)
KEYS = {
    "a column": np.s_[:, 5],
    "columns side by side": np.s_[:, 5:9],
    "every third row, from the end": np.s_[::-3, 100:70:-2],
    "half of each row": np.s_[:, N_COLUMNS // 2 :],
    "rows in any order": (ROWS, slice(7, 17)),
    "rows and columns in any order": (ROWS, [9000, 2, 9000]),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_pieces_of_a_contiguous_dataset(tmp_path, dtype, key):
    """Every dtype, byte order and step gives what h5py reads."""
    array, values = contiguous(tmp_path / "a.h5", dtype)
    wanted = values[key[0]][:, key[1]]
    got = read_array(array, key)
    assert got.dtype == array.dtype
    np.testing.assert_array_equal(got, wanted)
    transposed = read_array(array.transpose(1, 0), key[::-1])
    np.testing.assert_array_equal(transposed, wanted.T)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_points_of_a_contiguous_dataset(tmp_path, dtype):
    """Points that lie far apart are what h5py reads there."""
    array, values = contiguous(tmp_path / "a.h5", dtype, (40, 50, 1000))
    rng = np.random.default_rng(2)
    i, k = rng.integers(0, 40, 30), rng.integers(0, 1000, 30)
    np.testing.assert_array_equal(read_points(array, (i, slice(None, None, 20), k)), values[i, ::20, k])


@pytest.mark.parametrize("key", [KEYS["a column"], KEYS["rows in any order"]])
def test_few_calls_for_many_pieces(tmp_path, calls, key):
    """A strided selection is read with far fewer calls than it has pieces."""
    array, values = contiguous(tmp_path / "a.h5", "<f4")
    calls.clear()
    np.testing.assert_array_equal(read_array(array, key), values[key[0]][:, key[1]])
    assert len(calls) <= 8


def test_records_are_read_together(tmp_path, calls):
    """The records of a variable of netCDF-3, which lie between those of others, are read with few calls."""
    rng = np.random.default_rng(0)
    variables = {
        "a": ("i2", "t x", rng.integers(0, 99, (300, 5))),
        "b": ("f4", "t y", rng.random((300, 9000))),
        "c": ("f8", "t", rng.random(300)),
    }
    netcdf4_file(tmp_path / "a.nc", {"t": None, "x": 5, "y": 9000}, variables, kind="NETCDF3_64BIT_OFFSET")
    wanted = {name: values.astype(dtype) for name, (dtype, _, values) in variables.items()}
    opened = vs.open_virtual_dataset(tmp_path / "a.nc", loadable_variables=[])
    times = rng.permutation(300)
    for name, values in wanted.items():
        calls.clear()
        np.testing.assert_array_equal(read_array(opened[name].variable._data, ...), values)
        assert len(calls) <= 4 or name == "b"
        np.testing.assert_array_equal(read_array(opened[name].variable._data, (times,)), values[times])
        np.testing.assert_array_equal(read_array(opened[name].variable._data, (slice(None, None, -7),)), values[::-7])
    points = read_points(opened["b"].variable._data, (times, np.arange(300)))
    np.testing.assert_array_equal(points, wanted["b"][times, np.arange(300)])


def test_pieces_are_unpacked(tmp_path):
    """Packed numbers that lie far apart are unpacked as xarray does."""
    with h5py.File(tmp_path / "a.nc", "w") as file:
        file["v"] = np.random.default_rng(0).integers(-99, 99, (N_ROWS, N_COLUMNS)).astype(">i2")
        file["v"].attrs.update(scale_factor=np.float32(0.1), add_offset=np.float32(3), _FillValue=np.int16(7))
    packed, unpacked = (vs.open_virtual_dataset(tmp_path / "a.nc", unpack=unpack) for unpack in (False, True))
    wanted = xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf", phony_dims="sort")["v"][:, 3:8].to_numpy()
    for opened in (packed, unpacked):
        np.testing.assert_array_equal(opened.virtual.open()["v"][:, 3:8].to_numpy(), wanted)


def test_a_piece_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    """Where one of many pieces cannot be read, the error names the variable, the cell and the bytes."""
    array, values = contiguous(tmp_path / "a.h5", "<f4")
    read_ranges, read_into = LocalSource.read_ranges, LocalSource.read_into
    bad = int(array.manifest.entries["offset"].min()) + 40 * N_COLUMNS * 4 + 20

    def ranges(self, table):
        if (np.asarray(table)[:, 0] == bad).any():
            raise StorageError("a bad sector", url=self.location.url)
        return read_ranges(self, table)

    def into(self, offset, target):
        if offset == bad:
            raise StorageError("a bad sector", url=self.location.url)
        read_into(self, offset, target)

    monkeypatch.setattr(LocalSource, "read_ranges", ranges)
    monkeypatch.setattr(LocalSource, "read_into", into)
    with pytest.raises(StorageError, match=rf"cell \(0, 0\) of variable '/v' \(bytes {bad} to .*a bad sector"):
        read_array(array, np.s_[:, 5])
    np.testing.assert_array_equal(read_array(array, np.s_[:, 6]), values[:, 6])


@pytest.mark.parametrize("chunks", [(1, 4), (2, 3), (2, 1), (3, 2)])
def test_any_two_points_of_an_array(chunks):
    """In one cell or in two that are side by side, above each other, or neither; and one of them three times."""
    values = np.arange(12.0).reshape(3, 4)
    array, values, sources = store_array(values, chunks, url=f"memory://points/{chunks}".replace(" ", ""))
    for url, data in sources.items():
        MemoryTarget(url.rpartition("/")[0]).put(url.rpartition("/")[2], data)
    every = [divmod(n, 4) for n in range(12)]
    for a, b in product(every, repeat=2):
        for points in ((a, b), (a, b, a, a)):
            key = tuple(map(np.array, zip(*points, strict=True)))
            np.testing.assert_array_equal(read_points(array, key), values[key])

"""The table of chunks, beside loops over the cells of each variable and over the labels that each cell covers."""

import itertools

import cftime
import numpy as np
import pyarrow as pa
import pytest
import xarray as xr

import virtualstack as vs
from tests.serve.groups import states_group
from virtualstack.dataset import to_dataset
from virtualstack.manifests import ABSENT, FIRST, INLINE
from virtualstack.storage import Storage


def write(path, start, chunks, **more):
    """Write three times of a curved grid, in chunks."""
    rng = np.random.default_rng(start)
    lat, lon = np.meshgrid(np.linspace(50, 60, 7), np.linspace(-5, 5, 10), indexing="ij")
    lat = lat + lon / 10
    lat[0, 0] = np.nan
    coordinates = {
        "time": ("time", np.arange(start, start + 3), {"units": "days since 2001-01-01"}),
        "lat": (("y", "x"), lat),
        "lon": (("y", "x"), lon),
        "member": ("y", list("gabcfde")),
    }
    data = {"t": (("time", "y", "x"), rng.random((3, 7, 10), "f4")), "n": ((), 5), "h": (("y", "x"), lon)}
    encoding = {"t": {"chunksizes": chunks, "zlib": True}, "lat": {"_FillValue": None}}
    xr.Dataset(data | more, coordinates).to_netcdf(path, engine="netcdf4", encoding=encoding)
    return path


@pytest.fixture
def cube(tmp_path):
    """Two files whose chunks differ, joined."""
    paths = [write(tmp_path / "a.nc", 0, (1, 3, 10)), write(tmp_path / "b.nc", 3, (2, 7, 4))]
    return vs.open_virtual_mfdataset(paths, loadable_variables=["time", "lat", "lon", "member"])


def cells(array):
    """Each cell with the elements that it covers."""
    lines = [axis.lines().tolist() for axis in array.grid.axes]
    for cell in itertools.product(*(range(len(x) - 1) for x in lines)):
        yield cell, tuple(slice(x[i], x[i + 1]) for x, i in zip(lines, cell, strict=True))


def wanted(vds):
    """The rows of the table, made one by one."""
    rows = []
    for name in (name for name in vds.variables if isinstance(vds[name].variable._data, vs.ManifestArray)):
        array = vds[name].variable._data
        manifest = array.in_memory()
        for cell, box in cells(array):
            entry = manifest.entries[cell]
            state = ["absent", "empty", "inline", "referenced"][[ABSENT, 1, INLINE, FIRST].index(min(entry[0], FIRST))]
            place = dict(zip(vds[name].dims, box, strict=True))
            row = {"variable": name, "cell": list(cell), "state": state, "source": None, "offset": None}
            row |= {"begin": [x.start for x in box], "end": [x.stop for x in box], "length": None}
            if state == "referenced":
                location = manifest.locations[entry["location"] - FIRST]
                row |= {"source": location.url, "offset": int(entry["offset"]), "length": int(entry["length"])}
            for key in ("time", "lat", "lon", "member"):
                row |= {f"{key}_min": None, f"{key}_max": None}
                if set(vds[key].dims) <= set(vds[name].dims):
                    part = vds[key].isel({dim: place[dim] for dim in vds[key].dims}).values
                    least, greatest = (min(part), max(part)) if key == "member" else (np.nanmin(part), np.nanmax(part))
                    row |= {f"{key}_min": least, f"{key}_max": greatest}
            rows.append(row)
    return rows


def same(found, wanted):
    if isinstance(wanted, np.datetime64):
        return np.datetime64(found) == wanted
    return found == wanted


def check(table, vds):
    rows, expected = table.to_pylist(), wanted(vds)
    assert len(rows) == len(expected) > 0
    for row, other in zip(rows, expected, strict=True):
        assert {key for key, value in other.items() if not same(row[key], value)} == set()


def test_a_cube(cube):
    """Cells of different shapes, coordinates of one and two dimensions, labels that are text, and scalars."""
    table = cube.virtual.chunks().read_all()
    check(table, cube)
    assert set(table["codecs"].to_pylist()) == {"shuffle, zlib", ""}
    assert set(table["dtype"].to_pylist()) == {"<f4", "<f8", "<i8"}


def test_states():
    """Chunks that were lost, never written, or have their bytes in the manifest."""
    vds = to_dataset(states_group(), storage=Storage.from_option())
    rows = vds.virtual.chunks().read_all()
    states = rows.group_by("state").aggregate([("cell", "count")]).to_pylist()
    assert {x["state"]: x["cell_count"] for x in states} == {"empty": 5, "absent": 2, "inline": 1, "referenced": 28}
    assert [x["length"] is None for x in rows.to_pylist()] == [x["codecs"] is None for x in rows.to_pylist()]
    assert rows["source"].null_count == 36 - 28
    assert rows["length"].null_count == 5 + 2


def test_a_store_is_read_block_by_block(cube, tmp_path, monkeypatch):
    """A table in pieces is the table in one piece, also of a store that is opened lazily."""
    repo = vs.Repository.create(tmp_path / "a.vstack", cube)
    whole = repo.chunks().read_all()
    monkeypatch.setattr("virtualstack.accessor.chunk_table._BLOCK_CELLS", 4)
    reader = repo.chunks()
    assert isinstance(reader, pa.RecordBatchReader)
    parts = list(reader)
    assert len(parts) > 3
    assert pa.Table.from_batches(parts).to_pylist() == whole.to_pylist()
    loaded = repo.open_virtual_dataset(loadable_variables=["time", "lat", "lon", "member"])
    check(loaded.virtual.chunks().read_all(), loaded)


def test_a_tree(tmp_path):
    """Variables have their paths, and the labels that their groups inherit."""
    rain = xr.Dataset({"rain": ("time", [1.0, 2.0])})
    root = xr.Dataset(coords={"time": [5, 6], "place": ((), "here")})
    xr.DataTree.from_dict({"/": root, "/gauge/inner": rain}).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    rows = vs.open_virtual_datatree(tmp_path / "a.nc").virtual.chunks().read_all().to_pylist()
    (row,) = (x for x in rows if x["variable"] == "gauge/inner/rain")
    assert (row["time_min"], row["time_max"], row["begin"], row["end"]) == (5, 6, [0], [2])


def test_dates_of_other_calendars(tmp_path):
    """They are texts."""
    times = [cftime.DatetimeNoLeap(1850, 1, day) for day in (1, 2)]
    xr.Dataset({"a": ("time", [1.0, 2.0])}, {"time": times}).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    (row,) = vs.open_virtual_dataset(tmp_path / "a.nc").virtual.chunks().read_all().to_pylist()
    assert (row["time_min"], row["time_max"]) == ("1850-01-01 00:00:00", "1850-01-02 00:00:00")


def test_nothing(tmp_path):
    """A dataset without virtual variables, and a variable without elements, have no rows."""
    assert xr.Dataset({"a": 1}).virtual.chunks().read_all().num_rows == 0
    xr.Dataset({"a": (("time", "x"), np.zeros((0, 3)))}).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    assert vs.open_virtual_dataset(tmp_path / "a.nc").virtual.chunks().read_all().num_rows == 0


def test_labels_of_other_bytes(tmp_path):
    """Texts that are stored as bytes of UTF-8, and numbers in the byte order of another machine."""
    xr.Dataset({"a": ("x", [1.0, 2.0])}).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    vds = vs.open_virtual_dataset(tmp_path / "a.nc")
    names = np.array(["Zürich".encode(), b"Aarau"])
    vds = vds.assign_coords(name=("x", names), height=("x", np.array([2.0, 1.0], ">f4")))
    (row,) = vds.virtual.chunks().read_all().to_pylist()
    assert [row[f"{name}_{end}"] for name in ("name", "height") for end in ("min", "max")] == ["Aarau", "Zürich", 1, 2]

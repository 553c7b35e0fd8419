"""Fields of GRIB through every writer and every operation, beside what cfgrib reads."""

import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import GRIB1, GRIB2, message, write
from tests.formats.grib.test_reader import cfgrib

LEVELS, STEPS = (850, 500), (0, 6, 12)


def fields(sample, *, date=20200101, seed=0, bitmap=False):
    """Make fields of two variables at all steps and levels, but one."""
    made = []
    for n, (name, step, level) in enumerate(itertools.product(("t", "u"), STEPS, LEVELS)):
        rng = np.random.default_rng(seed + n)
        values = 250 + 40 * rng.random(24)
        if bitmap:
            values[rng.random(24) < 0.3] = np.nan
        keys = {"shortName": name, "typeOfLevel": "isobaricInhPa", "level": level, "step": step, "dataDate": date}
        made.append(message(keys, sample=sample, values=values))
    return made[:-1]


@pytest.fixture(params=[GRIB1, GRIB2])
def file(request, tmp_path):
    return write(tmp_path / "a.grib", fields(request.param, bitmap=True))


def through_kerchunk_json(vds, path):
    vds.virtual.to_kerchunk(path / "x.json")
    return xr.open_dataset(path / "x.json", engine="virtualstack")


def through_kerchunk_parquet(vds, path):
    vds.virtual.to_kerchunk(path / "x.parq")
    return xr.open_dataset(path / "x.parq", engine="virtualstack")


def through_a_vstack(vds, path):
    vds.virtual.to_vstack(path / "x.vstack")
    return xr.open_dataset(path / "x.vstack", engine="virtualstack")


def through_zarr(vds, path):
    return xr.open_zarr(vs.ManifestStore(vds.virtual.to_group()), consolidated=False)


def through_a_vstack_and_kerchunk(vds, path):
    vds.virtual.to_vstack(path / "x.vstack")
    vs.convert(path / "x.vstack", path / "x.json", absent="fill")
    return xr.open_dataset(path / "x.json", engine="virtualstack")


def through_pickles(vds, path):
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(vds)).virtual.open()))


WAYS = [
    through_kerchunk_json,
    through_kerchunk_parquet,
    through_a_vstack,
    through_zarr,
    through_a_vstack_and_kerchunk,
    through_pickles,
]


@pytest.mark.parametrize("way", WAYS)
def test_all_that_is_written_reads_as_cfgrib_reads_it(way, file, tmp_path):
    """Bitmaps and the field that is not there are NaN; coordinates and attributes stay."""
    found = way(vs.open_virtual_dataset(file), tmp_path).load()
    xr.testing.assert_identical(found.drop_attrs(deep=False), cfgrib(file).drop_attrs(deep=False))


def test_a_tree_goes_through_the_writers(tmp_path):
    surface = [message({"shortName": "t", "typeOfLevel": "surface"}, seed=3)]
    path = write(tmp_path / "a.grib", [*fields(GRIB2), *surface])
    tree = vs.open_virtual_datatree(path)
    tree.virtual.to_vstack(tmp_path / "x.vstack")
    tree.virtual.to_kerchunk(tmp_path / "x.json")
    for target in (tmp_path / "x.vstack", tmp_path / "x.json"):
        back = xr.open_datatree(target, engine="virtualstack")
        for level in ("isobaricInhPa", "surface"):
            expected = cfgrib(path, filter_by_keys={"typeOfLevel": level})
            xr.testing.assert_equal(back[f"{level}/instant"].to_dataset().load(), expected)


OPERATIONS = {
    "isel": lambda x: x.isel(step=[2, 0], isobaricInhPa=0, latitude=slice(3, None, -2)),
    "sel": lambda x: x.sel(isobaricInhPa=500, longitude=slice(10, 40)),
    "transpose": lambda x: x.transpose("longitude", "isobaricInhPa", "latitude", "step"),
    "expand_dims": lambda x: x.expand_dims("time"),
    "shift": lambda x: x.shift(step=1),
    "pad": lambda x: x.pad(latitude=(1, 2)),
    "stack": lambda x: x.stack(point=("latitude", "longitude"), create_index=False),
    "coarsen": lambda x: x.coarsen(longitude=2).construct(longitude=("x", "fine")),
    "where": lambda x: x.where(x.latitude > 40),
    "astype": lambda x: x.astype("f8"),
    "reindex": lambda x: x.reindex(isobaricInhPa=[1000, 850, 500]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("unpack", [False, True])
def test_operations_leave_fields_virtual_and_equal(operation, unpack, file):
    operate = OPERATIONS[operation]
    virtual = operate(vs.open_virtual_dataset(file, unpack=unpack))
    assert all(isinstance(virtual[name].variable._data, vs.ManifestArray) for name in ("t", "u"))
    xr.testing.assert_equal(virtual.virtual.open().load(), operate(cfgrib(file)))


def test_runs_and_other_formats_join(tmp_path):
    """A run of edition 1, one of edition 2 and one that became netCDF: one variable."""
    dates = {20200101: GRIB1, 20200102: GRIB2, 20200103: GRIB2}
    paths = [write(tmp_path / f"{date}.grib", fields(sample, date=date, seed=date)) for date, sample in dates.items()]
    expected = [cfgrib(path) for path in paths]
    encoding = {name: {"zlib": True, "chunksizes": (1, 1, 1, 4, 6)} for name in ("t", "u")}
    expected[2].expand_dims("time").to_netcdf(tmp_path / "c.nc", engine="netcdf4", encoding=encoding)
    parts = [vs.open_virtual_dataset(path).expand_dims("time") for path in paths[:2]]
    parts.append(vs.open_virtual_dataset(tmp_path / "c.nc"))
    joined = xr.concat(parts, "time", coords="minimal", compat="override", combine_attrs="drop_conflicts")
    joined.virtual.to_vstack(tmp_path / "x.vstack")
    back = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack").load()
    whole = xr.concat(expected, "time", coords="minimal", compat="override")
    for name in ("t", "u"):
        np.testing.assert_array_equal(back[name].values, whole[name].values)
    np.testing.assert_array_equal(back["time"].values, whole["time"].values)


def test_a_vstack_takes_the_next_run(tmp_path):
    paths = [write(tmp_path / f"{day}.grib", fields(GRIB2, date=20200100 + day, seed=day)) for day in (1, 2)]
    first, second = (vs.open_virtual_dataset(path, reader=vs.readers.GRIB(squeeze=False)) for path in paths)
    first.virtual.to_vstack(tmp_path / "x.vstack")
    second.virtual.to_vstack(tmp_path / "x.vstack", append_dim="time")
    back = xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack").load()
    for n, path in enumerate(paths):
        np.testing.assert_array_equal(back.t.isel(time=n).values, cfgrib(path).t.values)


def test_many_threads_decode_at_once(tmp_path):
    """Of one file, all its fields; eccodes has no lock around it."""
    values = np.random.default_rng(0).random((60, 24))
    made = [message({"step": n}, values=x, after={"packingType": "grid_ccsds"}) for n, x in enumerate(values)]
    path = write(tmp_path / "a.grib", made)
    dataset, expected = vs.open_virtual_dataset(path).virtual.open(), cfgrib(path).t.values
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda n: dataset.t.isel(step=n % 60).values, range(600)))
    for n, field in enumerate(found):
        np.testing.assert_array_equal(field, expected[n % 60])

"""Programs such as people publish for other tools, said with virtualstack: values are those of xarray on the files.

The first nine were published for kerchunk, VirtualiZarr and Icechunk, and the other eight are of other kinds.
Each program has its own way to the values, and the same values come from a loop of xarray over the files.
"""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.archives import truth
from tests.archives.fields import field
from tests.data import make_dmrpp, make_netcdf3
from tests.data.netcdf4 import netcdf4_file
from virtualstack.errors import CombineError

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*Zarr format 3:UserWarning",
    "ignore:.*not part of the Zarr format 3 spec",
    "ignore:.*in the Zarr version 3 spec",
    "ignore:.*matmul:PendingDeprecationWarning",  # of rioxarray
)
JOIN = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "combine_attrs": "override"}

PLAIN = {"coords": "minimal", "compat": "override"}


def loop(paths, dim, **options):
    """Open files one by one with their own libraries and join them, as a program without references does."""
    return xr.concat([truth.opened(path, **options) for path in paths], dim, **JOIN)


def same(found, expected):
    """Compare names, dimensions and values."""
    xr.testing.assert_equal(found.load(), expected.load())


def opened(store, **options):
    """Open what was written as a reader of it does."""
    return xr.open_dataset(store, engine="virtualstack", chunks=None, **options)


# -- published programs ---------------------------------------------------------------------------------------


def test_goes_scenes_to_kerchunk(archive, tmp_path):
    """Images of a satellite by the scalar time of each file; fsspec and zarr read the references."""
    files = archive("goes-scenes")
    cube = vs.open_virtual_mfdataset(files, concat_dim="t", combine="nested")
    cube.virtual.to_kerchunk(tmp_path / "goes.json")
    for raw, name in ((True, "CMI"), (True, "DQF"), (False, "CMI")):  # JSON has no float32: scales become float64
        found = xr.open_dataset(str(tmp_path / "goes.json"), engine="kerchunk", chunks=None, mask_and_scale=not raw)
        expected = [xr.load_dataset(path, engine="netcdf4", mask_and_scale=not raw)[name] for path in files]
        expected = xr.concat(expected, "t", **PLAIN)
        np.testing.assert_allclose(found[name], expected, rtol=0 if raw else np.finfo("f4").eps)
    np.testing.assert_array_equal(found["t"], expected["t"])


def test_a_forecast_to_parquet(archive, tmp_path):
    """Lead times of a model in GRIB 2, selected by level."""
    files = archive("forecast-pressure")
    vs.open_virtual_mfdataset(files).virtual.to_kerchunk(tmp_path / "gfs.parq")
    found = opened(tmp_path / "gfs.parq")["t"].sel(isobaricInhPa=500)
    expected = xr.concat([truth.opened(path)["t"].sel(isobaricInhPa=500) for path in files], "step", **PLAIN)
    np.testing.assert_array_equal(found.transpose(*expected.dims), expected)
    np.testing.assert_array_equal(found["step"], expected["step"])


def test_an_ensemble_of_cmip6_to_icechunk(archive, tmp_path):
    """Members and years in one array; zarr opens the repository."""
    icechunk = pytest.importorskip("icechunk")
    files = archive("cmip-members")
    cube = vs.open_virtual_mfdataset(files)
    cube.virtual.to_icechunk(tmp_path / "cmip.icechunk")
    folder = f"file://{Path(files[0]).parent}/"
    repo = icechunk.Repository.open(
        icechunk.local_filesystem_storage(str(tmp_path / "cmip.icechunk")),
        authorize_virtual_chunk_access={folder: icechunk.credentials.LocalFileSystemAccess},
    )
    store = repo.readonly_session("main").store
    found = xr.open_zarr(store, consolidated=False, zarr_format=3, chunks=None)["tas"].mean("variant_label")
    half = len(files) // 2
    expected = xr.concat([loop(files[:half], "time"), loop(files[half:], "time")], "member", **PLAIN)["tas"]
    np.testing.assert_array_equal(found.transpose("time", "lat", "lon"), expected.mean("member"))


SST = {"dtype": "i2", "scale_factor": 0.001, "add_offset": 298.15, "_FillValue": -32768}


@pytest.fixture
def sst(tmp_path):
    """Days of a surface temperature, packed, with a mask, as MUR has them."""
    paths, lat, lon = [], np.linspace(-89, 89, 60), np.linspace(-179, 179, 80)
    for day in pd.date_range("2024-01-30 09:00", periods=4):
        values = 290 + 5 * field(1, 60, 80, seed=day.day).astype("f8")
        values[:, :4] = np.nan
        data = {"analysed_sst": (("time", "lat", "lon"), values), "mask": (("time", "lat", "lon"), np.isnan(values))}
        paths.append(str(tmp_path / f"{day:%Y%m%d%H%M%S}-JPL-L4_GHRSST-SSTfnd-MUR-GLOB-v02.0-fv04.1.nc"))
        made = xr.Dataset(data, {"time": [day], "lat": lat, "lon": lon}, {"title": "Daily MUR SST"})
        chunks = {"zlib": True, "shuffle": True, "chunksizes": (1, 30, 40)}
        encoding = {"analysed_sst": {**SST, **chunks}, "mask": {"dtype": "i1", **chunks}}
        encoding["time"] = {"units": "seconds since 1981-01-01", "dtype": "i4"}
        made.to_netcdf(paths[-1], engine="netcdf4", encoding=encoding, unlimited_dims=["time"])
    return paths


@pytest.mark.parametrize("target", ["x.vstack", "x.json", "x.parq", "x.icechunk"])
def test_days_of_a_surface_temperature_are_appended(sst, tmp_path, target):
    """One day after another, in every form."""
    method = {"vstack": "to_vstack", "icechunk": "to_icechunk"}.get(target[2:], "to_kerchunk")
    if method == "to_icechunk":
        pytest.importorskip("icechunk")
    for k, path in enumerate(sst):
        vds = vs.open_virtual_dataset(path, loadable_variables=["time", "lat", "lon"])
        getattr(vds.virtual, method)(tmp_path / target, **({"append_dim": "time"} if k else {}))
    same(opened(tmp_path / target), loop(sst, "time"))


def test_months_of_a_land_model(tmp_path):
    """Hourly forcing as NLDAS has it: precipitation of each day, and the chunks of one day on the way there."""
    paths = []
    for hour in pd.date_range("2024-02-28T00", periods=6, freq="8h"):
        rain = np.where(np.arange(40) % 7 == 0, -9999, np.clip(field(1, 30, 40, seed=hour.day), 0, 1))
        made = xr.Dataset({"Rainf": (("time", "lat", "lon"), rain.astype("f4"), {"_FillValue": np.float32(-9999)})})
        made = made.assign_coords(time=[hour], lat=np.arange(25.0625, 40, 0.5), lon=np.arange(-120.0, -100, 0.5))
        paths.append(str(tmp_path / f"NLDAS_FORA0125_H.A{hour:%Y%m%d.%H%M}.020.nc"))
        made.to_netcdf(paths[-1], engine="netcdf4", encoding={"Rainf": {"zlib": True, "chunksizes": (1, 30, 40)}})
    vs.open_virtual_mfdataset(str(tmp_path / "NLDAS*.nc")).virtual.to_vstack(tmp_path / "nldas.vstack")
    with xr.open_dataset(tmp_path / "nldas.vstack", engine="virtualstack", chunks={}) as cube:
        daily = cube["Rainf"].resample(time="1D").sum().compute()
    xr.testing.assert_equal(daily, loop(paths, "time")["Rainf"].resample(time="1D").sum())


def test_output_of_wrf(archive):
    """The warmest hour of each cell, and wind from a staggered grid to the centres."""
    files = archive("wrf")
    cube, expected = vs.open_virtual_mfdataset(files).virtual.open(), loop(files, "Time")
    np.testing.assert_array_equal(cube["T2"].max("Time"), expected["T2"].max("Time"))
    for found in (cube, expected):
        wind = found["U"].isel(bottom_top=0).values
        found.attrs["wind"] = 0.5 * (wind[..., 1:] + wind[..., :-1])
    np.testing.assert_array_equal(cube.attrs["wind"], expected.attrs["wind"])


def test_records_of_roms(tmp_path):
    """Classic netCDF with an unlimited time of seconds, and a column at one place."""
    paths = []
    for k in range(3):
        times = 86400.0 * (5 * k + np.arange(5))
        with make_netcdf3.new(tmp_path / f"ocean_his_{k:04}.nc", 2, ocean_time=None, s_rho=6, eta=8, xi=9) as file:
            time = file.createVariable("ocean_time", "f8", ["ocean_time"])
            time.units, time[:] = "seconds since 1970-01-01", times
            file.createVariable("s_rho", "f8", ["s_rho"])[:] = (np.arange(6) + 0.5) / 6 - 1
            for name in ("temp", "salt"):
                variable = file.createVariable(name, "f4", ["ocean_time", "s_rho", "eta", "xi"], fill_value=1e37)
                variable[:] = np.ma.masked_less(field(5, 6, 8, 9, seed=k + len(name)), -0.5)
        paths.append(str(tmp_path / f"ocean_his_{k:04}.nc"))
    cube, expected = vs.open_virtual_mfdataset(paths).virtual.open(), loop(paths, "ocean_time")
    same(cube.sel(ocean_time="1970-01-08"), expected.sel(ocean_time="1970-01-08"))
    np.testing.assert_array_equal(cube["salt"][:, :, 3, 4], expected["salt"][:, :, 3, 4])


def test_months_of_era5(archive, tmp_path):
    """Each month has a packing of its own, which one ``scale_factor`` for all of them would make wrong."""
    files = archive("era5")
    vs.open_virtual_mfdataset(files).virtual.to_vstack(tmp_path / "era5.vstack")
    found, expected = opened(tmp_path / "era5.vstack"), loop(files, "valid_time")
    place = {"latitude": 48.0, "longitude": 2.25}
    for name in ("t2m", "sst"):
        np.testing.assert_array_equal(found[name].sel(place), expected[name].sel(place))
        by_month = [x[name].groupby("valid_time.month").mean() for x in (found, expected)]
        np.testing.assert_array_equal(*by_month)


def test_a_stack_of_scenes(archive):
    """The median of GeoTIFF files whose dates are in their names, within a box in metres."""
    pytest.importorskip("rioxarray")
    files = archive("cog")
    dated = {"time": vs.FromName(r"(\d{8}T\d{6})", format="%Y%m%dT%H%M%S")}
    cube = vs.open_virtual_mfdataset(files, new_dim=dated).virtual.open()
    scenes = [truth.opened(path)["band_data"].isel(band=0, drop=True) for path in files]
    dates = [pd.Timestamp(re.search(r"\d{8}T\d{6}", path)[0]) for path in files]
    box = {"x": slice(601000, 604000), "y": slice(5299000, 5297000)}
    (name,) = (x for x in cube.data_vars if cube[x].ndim > 2)
    found = cube[name].sel(box).median("time").squeeze(drop=True)
    expected = xr.concat(scenes, pd.Index(dates, name="time"), **PLAIN).sel(box).median("time")
    np.testing.assert_array_equal(found, expected)
    assert list(cube["time"].values) == [np.datetime64(x) for x in dates]


# -- programs of other kinds ----------------------------------------------------------------------------------


def test_rain_in_a_group(tmp_path):
    """Half hours of IMERG are in the group ``Grid`` with dimensions ``time, lon, lat``."""
    paths = []
    for k in range(4):
        start = pd.Timestamp("2024-03-01") + pd.Timedelta(30 * k, "min")
        rain = np.clip(field(1, 36, 18, seed=k), 0, None)
        rain[0, :2] = -9999.9
        paths.append(str(tmp_path / f"3B-HHR.MS.MRG.3IMERG.{start:%Y%m%d-S%H%M%S}.HDF5"))
        variables = {
            "Grid/time": ("i4", "time", [start.timestamp()], {"units": "seconds since 1970-01-01 00:00:00 UTC"}),
            "Grid/lon": ("f4", "lon", np.arange(-175.0, 180, 10)),
            "Grid/lat": ("f4", "lat", np.arange(-85.0, 90, 10)),
            "Grid/precipitation": ("f4", "time lon lat", rain, {"_FillValue": np.float32(-9999.9)}, {"zlib": True}),
        }
        netcdf4_file(Path(paths[-1]), {"Grid/time": None, "Grid/lon": 36, "Grid/lat": 18}, variables)
    cube = vs.open_virtual_mfdataset(paths, group="Grid").virtual.open()
    files = [xr.load_dataset(path, engine="netcdf4", group="Grid") for path in paths]
    expected = xr.concat(files, "time", **JOIN)["precipitation"]
    xr.testing.assert_equal(0.5 * cube["precipitation"].sum("time"), 0.5 * expected.sum("time"))


def test_swaths_on_a_grid(archive):
    """Ozone of HDF-EOS granules, gridded by the geolocation of each pixel."""
    cube = vs.open_virtual_mfdataset(archive("hdfeos")).virtual.open()
    expected = loop(archive("hdfeos"), "nTimes", group=None)
    gridded = []
    for found in (cube, expected):
        values = [found[x].values.ravel() for x in ("Latitude", "Longitude", "ColumnAmountO3")]
        good = np.isfinite(values[2])
        edges = [np.arange(-90, 91, 30), np.arange(-180, 181, 60)]
        gridded.append(np.histogram2d(values[0][good], values[1][good], edges, weights=values[2][good])[0])
    np.testing.assert_array_equal(*gridded)
    assert gridded[0].any()


def test_documents_of_earthdata(sst, tmp_path):
    """DMR++ documents beside the files: the cube is made of them alone, and read from the files."""
    documents = [str(make_dmrpp.write(Path(path))) for path in sst]
    cube = vs.open_virtual_mfdataset(documents)
    assert {Path(x).name for x in cube.virtual.locations["url"]} == {Path(x).name for x in sst}
    cube.virtual.to_vstack(tmp_path / "earthdata.vstack")
    same(opened(tmp_path / "earthdata.vstack"), loop(sst, "time"))


def test_volumes_of_a_radar(tmp_path):
    """Sweeps are groups of each file, and the cube is a tree with a time in each."""
    paths = []
    for k in range(3):
        paths.append(str(tmp_path / f"KTLX2024050100{k:02}00_V06.nc"))
        time = xr.Variable("volume_time", [pd.Timestamp("2024-05-01") + pd.Timedelta(5 * k, "min")])
        sweeps = {}
        for number, n_range in enumerate((20, 30)):
            dims, shape = ("volume_time", "azimuth", "range"), (1, 36, n_range)
            data = {"DBZH": (dims, 40 * field(*shape, seed=k + number)), "VRADH": (dims, field(*shape, seed=k))}
            coords = {"azimuth": np.arange(36) * 10.0, "range": 250.0 * np.arange(n_range), "volume_time": time}
            sweeps[f"/sweep_{number}"] = xr.Dataset(data, coords, {"sweep_fixed_angle": 0.5 + number})
        xr.DataTree.from_dict(sweeps).to_netcdf(paths[-1], engine="netcdf4")
    vs.open_virtual_mfdatatree(paths).virtual.to_vstack(tmp_path / "radar.vstack")
    with xr.open_datatree(tmp_path / "radar.vstack", engine="virtualstack", chunks=None) as volumes:
        for sweep in ("sweep_0", "sweep_1"):
            files = [xr.load_dataset(path, engine="netcdf4", group=sweep) for path in paths]
            same(volumes[sweep].to_dataset(), xr.concat(files, "volume_time", **JOIN))


def test_members_by_their_names(tmp_path):
    """A function makes a member of a name, as in programs with ``preprocess`` of xarray."""
    for k in range(3):
        made = xr.Dataset({"zos": (("time", "x"), field(4, 10, seed=k))}, {"time": np.arange(4)})
        made.to_netcdf(tmp_path / f"ens.run_{k + 1:02}.nc", engine="netcdf4")

    def with_member(ds):
        number = int(re.search(r"run_(\d+)", ds.encoding["source"])[1])
        return ds.expand_dims(member=[number])

    paths = sorted(map(str, tmp_path.glob("ens.*.nc")))
    cube = vs.open_virtual_mfdataset(paths, preprocess=with_member)
    expected = xr.open_mfdataset(paths, engine="netcdf4", preprocess=with_member, chunks=None)
    same(cube.virtual.open().max("member"), expected.max("member"))
    assert cube.virtual.nrefs >= len(paths)


def test_a_program_for_virtualizarr(sst, tmp_path):
    """Only the import and the registry change; references are the same, and so are values."""
    virtualizarr = pytest.importorskip("virtualizarr")
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore

    registry, parser = ObjectStoreRegistry({"file://": LocalStore()}), virtualizarr.parsers.HDFParser()
    theirs = virtualizarr.open_virtual_mfdataset([f"file://{path}" for path in sst], registry, parser, **JOIN)
    ours = vs.open_virtual_mfdataset(sst)
    theirs.vz.to_kerchunk(tmp_path / "theirs.json", format="json")
    ours.virtual.to_kerchunk(tmp_path / "ours.json")
    assert ours.virtual.nrefs == theirs.vz.nrefs()
    same(opened(tmp_path / "ours.json"), opened(tmp_path / "theirs.json"))
    same(opened(tmp_path / "ours.json"), loop(sst, "time"))


def test_a_job_that_appends_to_icechunk(sst, tmp_path):
    """A transaction for each day: what does not fit is not committed, and the history names each day."""
    icechunk = pytest.importorskip("icechunk")
    folder = f"file://{tmp_path}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(
        icechunk.VirtualChunkContainer(folder, icechunk.local_filesystem_store(str(tmp_path)))
    )
    access = {folder: icechunk.credentials.LocalFileSystemAccess}
    storage = icechunk.local_filesystem_storage(str(tmp_path / "mur.icechunk"))
    repo = icechunk.Repository.create(storage, config, authorize_virtual_chunk_access=access)
    for k, path in enumerate(sst):
        session = repo.writable_session("main")
        more = {"append_dim": "time"} if k else {}
        vs.open_virtual_dataset(path).virtual.to_icechunk(session.store, **more)
        session.commit(Path(path).name[:8])
    session = repo.writable_session("main")
    with pytest.raises(CombineError):
        vs.open_virtual_dataset(sst[0]).virtual.to_icechunk(session.store, append_dim="time")
    assert not session.has_uncommitted_changes
    days = [x.message for x in repo.ancestry(branch="main")]
    assert days[: len(sst)] == [Path(path).name[:8] for path in reversed(sst)]
    same(xr.open_zarr(session.store, consolidated=False, zarr_format=3, chunks=None), loop(sst, "time"))


def test_stores_of_zarr_beside_files(sst, tmp_path):
    """A zarr 2 store, a zarr 3 store with shards and netCDF files are one cube, and a part of it becomes a store."""
    plain, sharded = tmp_path / "31.zarr", tmp_path / "01.zarr"
    for path, store, zarr_format, chunks in (
        (sst[1], plain, 2, {"chunks": (1, 20, 20)}),
        (sst[2], sharded, 3, {"chunks": (1, 15, 20), "shards": (1, 30, 40)}),
    ):
        made = truth.opened(path)
        for name in made.variables:
            made[name].encoding = {}
        made["time"].encoding = {"units": "seconds since 1981-01-01", "dtype": "i4"}
        encoding = {"analysed_sst": SST | chunks, "mask": {"dtype": "i1"} | chunks}
        made.to_zarr(store, zarr_format=zarr_format, encoding=encoding, consolidated=False)
    cube = vs.open_virtual_mfdataset([sst[0], plain, sharded, sst[3]])
    expected = loop(sst, "time")
    same(cube.virtual.open(), expected)
    part = {"time": slice("2024-01-31", "2024-02-01"), "lat": slice(0, 60)}
    cube.virtual.open().sel(part).to_zarr(tmp_path / "part.zarr")
    same(xr.open_zarr(tmp_path / "part.zarr", chunks=None), expected.sel(part))

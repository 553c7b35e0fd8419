"""Files of ``vs.sample``: the formats' own libraries read what the docstrings say."""

import itertools
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack import sample
from virtualstack.codecs.grib.library import import_eccodes
from virtualstack.errors import MissingDependencyError, SourceNotFoundError

WRITTEN = [name for name in sample.__all__ if name not in sample.INSTALLED]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The paths of the files of each sample."""
    folder = tmp_path_factory.mktemp("samples")
    for module in ("eccodes", "tifffile", "rasterio"):
        pytest.importorskip(module)
    return {name: getattr(sample, name)(folder / name) for name in WRITTEN}


def values(name, path):
    """Read the variables of a file, group by group, with the library of its format."""
    if name == "forecasts":
        found = xr.open_dataset(path, engine="cfgrib", backend_kwargs={"indexpath": ""})
        return {variable: array.values for variable, array in found.items()}
    if name == "scenes":
        import rasterio

        with rasterio.open(path) as file:
            return {"band": file.read(1)}
    with netCDF4.Dataset(path) as file:
        group = file["science"] if "science" in file.groups else file
        arrays = {x: variable[:] for x, variable in group.variables.items()}
        return {x: np.ma.filled(v.astype("f8"), np.nan) if v.dtype != object else v for x, v in arrays.items()}


@pytest.mark.parametrize("name", WRITTEN)
def test_the_paths_of_the_files_are_returned_in_order(name, made):
    """Together the files have less than 2 MB."""
    paths = made[name]
    assert paths == sorted(str(path) for path in Path(paths[0]).parent.iterdir())
    assert sum(Path(path).stat().st_size for path in paths) < 2_000_000


@pytest.mark.parametrize("name", WRITTEN)
def test_a_sample_is_the_same_every_time(name, made, tmp_path):
    """Byte for byte, in a folder that is made or was there."""
    again = getattr(sample, name)(str(tmp_path / "new" / "folder"))
    assert [Path(x).read_bytes() for x in again] == [Path(x).read_bytes() for x in made[name]]
    getattr(sample, name)(tmp_path / "new" / "folder")
    assert [Path(x).read_bytes() for x in again] == [Path(x).read_bytes() for x in made[name]]


@pytest.mark.parametrize("name", [name for name in WRITTEN if name != "analyses"])
def test_virtualstack_reads_what_the_library_reads(name, made):
    """Every variable of every file."""
    group = "science" if name == "plain_hdf5" else None
    for path in made[name]:
        found = vs.open_virtual_dataset(path, group=group).virtual.open(decode_times=False)
        for variable, expected in values(name, path).items():
            ours = found["band_data"][0] if name == "scenes" else found[variable]
            if expected.dtype == object:
                assert ours.values.tolist() == expected.tolist()
            else:
                np.testing.assert_allclose(ours.values, expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["hourly", "model", "monthly"])
def test_netcdf_files_are_those_of_the_netcdf_library(name, made):
    """Dimensions have names and coordinates; variables have standard names that CF knows, and units."""
    with netCDF4.Dataset(made[name][0]) as file:
        assert file.data_model == "NETCDF4"
        assert file.Conventions.startswith("CF-1.")
        assert file.dimensions.keys() <= file.variables.keys()
        assert file.dimensions["time"].isunlimited() == (name != "monthly")
        for variable in file.variables.values():
            assert isinstance(variable.units, str)
            assert isinstance(variable.standard_name, str)


@pytest.mark.parametrize("name", ["model", "monthly"])
def test_temperatures_are_those_of_the_earth(name, made):
    """It is warm at the equator and cold at the poles, and neighbours are alike."""
    for path in made[name]:
        t = values(name, path)["tas" if name == "model" else "t2m"]
        assert 210 < t.min() < t.max() < 325
        assert np.abs(np.diff(t, axis=-1)).max() < 12


def test_hours_are_missing_and_came_twice(made):
    """As the docstring says."""
    hours = sorted(float(values("hourly", path)["time"][0]) for path in made["hourly"])
    assert sorted({*range(48)} - {*hours}) == [9, 10, 11, 31]
    assert [a for a, b in itertools.pairwise(hours) if a == b] == [5, 30]
    first, second = (path for path in made["hourly"] if "01T05" in path)
    assert np.abs(values("hourly", second)["tb"] - values("hourly", first)["tb"] - 2.5).max() < 0.11


def test_each_month_is_packed_in_its_own_way(made):
    """Files of the old climate data store are so."""
    packing = set()
    for path in made["monthly"]:
        with netCDF4.Dataset(path) as file:
            packing.add((float(file["t2m"].scale_factor), float(file["t2m"].add_offset), file["t2m"].dtype.str))
    assert len(packing) == 12
    assert {dtype for *_, dtype in packing} == {"<i2"}


def test_forecasts_are_runs_steps_and_members(made):
    """Members differ more from each other at later steps."""
    cube = vs.open_virtual_mfdataset(made["forecasts"])
    assert dict(cube["t"].sizes) == {
        "number": 3, "time": 4, "step": 4, "isobaricInhPa": 2, "latitude": 37, "longitude": 72,
    }  # fmt: skip
    spread = cube.virtual.open()["t"].std("number").mean(["time", "latitude", "longitude"])
    assert (spread.diff("step") > 0).all()


def test_scenes_are_tiled_with_overviews_and_coordinates(made):
    """GDAL finds all of it."""
    import rasterio

    for path in made["scenes"]:
        with rasterio.open(path) as file:
            assert file.crs.to_epsg() == 32632
            assert file.nodata == 0
            assert file.block_shapes == [(128, 128)]
            assert file.overviews(1) == [2, 4]
            assert file.transform.a == -file.transform.e == 10
            assert file.profile["compress"] == "deflate"
            assert file.tags(ns="IMAGE_STRUCTURE")["PREDICTOR"] == "2"


def test_analyses_are_of_more_than_one_kind(made):
    """A tree shows all; a filter chooses one; versions differ in ``expver`` alone."""
    analysis, rain, versions = made["analyses"]
    for kind, name, n in (("isobaricInhPa", "t", 2), ("surface", "t", 1)):
        keys = {"filter_by_keys": {"typeOfLevel": kind}}
        found = vs.open_virtual_dataset(analysis, reader=vs.readers.GRIB(**keys))
        expected = xr.open_dataset(analysis, engine="cfgrib", backend_kwargs={"indexpath": "", **keys})
        np.testing.assert_array_equal(found.virtual.open()[name].values, expected[name].values)
        assert expected[name].size == n * 37 * 72
    both = vs.open_virtual_dataset(versions, reader=vs.readers.GRIB(extra_dims=("expver",)))
    assert both["t"].sizes["expver"] == 2
    assert list(vs.open_virtual_dataset(rain)) == ["tp"]


def test_two_days_at_the_stations_were_never_written(made):
    """Their chunks are EMPTY, and the other two are references."""
    (path,) = made["stations"]
    with netCDF4.Dataset(path) as file:
        assert file["name"][:].tolist() == ["Bern", "Davos", "Genève", "Sion"]
        assert file["rain"][:].mask.all(axis=1).tolist() == [False, True, False, True]
    assert "2 references, 0 inline, 2 EMPTY" in vs.open_virtual_dataset(path).virtual.report()["detail"].str.cat()


def test_flawed_files_have_values_that_attributes_do_not_explain(made):
    """Days that are hours, and a missing value that is not declared."""
    with netCDF4.Dataset(made["flawed"][1]) as file:
        assert file["time"][:].tolist() == [24]
        assert file["time"].units == "days since 2024-06-01"
        assert "_FillValue" not in file["rain"].ncattrs()
        assert (file["rain"][:].data == -9999).any()


def test_plain_hdf5_has_no_dimension_scales(made):
    """So its dimensions have no names."""
    found = vs.open_virtual_dataset(made["plain_hdf5"][0], group="science")
    assert set(found.dims) == {"phony_dim_0", "phony_dim_1"}


@pytest.mark.parametrize(
    ("name", "module", "extra"), [("forecasts", "eccodes", "grib"), ("scenes", "tifffile", "tiff")]
)
def test_a_sample_without_its_library_names_the_extra(name, module, extra, monkeypatch, tmp_path):
    """And writes nothing."""
    monkeypatch.setitem(sys.modules, module, None)
    if module == "eccodes":
        monkeypatch.setattr("virtualstack.sample.grib.import_eccodes", import_eccodes.__wrapped__)  # without its cache
    with pytest.raises(MissingDependencyError, match=rf"needs .* 'virtualstack\[{extra}\]'$"):
        getattr(sample, name)(tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("nemo", ["nemo_1m_20150101-20150201_grid-T.nc", "nemo_1m_20150201-20150301_grid-T.nc",
                  "nemo_1m_20150301-20150401_grid-T.nc"]),
        ("scenarios", ["A1B_north_america.nc", "E1_north_america.nc"]),
    ],
)  # fmt: skip
def test_real_data_is_in_its_package(monkeypatch, tmp_path, name, files):
    """Without the package, or with another version of it, the error says what to install."""
    package = pytest.importorskip("iris_sample_data", reason="needs iris-sample-data, the extra 'sample'")
    read = getattr(sample, name)
    assert [Path(path).name for path in read()] == files
    with monkeypatch.context() as patch:
        patch.setattr(package, "path", str(tmp_path))
        with pytest.raises(SourceNotFoundError, match=r"iris-sample-data has no '.*'; install another"):
            read()
    monkeypatch.setitem(sys.modules, "iris_sample_data", None)
    with pytest.raises(MissingDependencyError, match=rf"^the sample '{name}' needs .* 'virtualstack\[sample\]'$"):
        read()


def test_a_sample_that_does_not_exist_is_named():
    """With those that exist."""
    with pytest.raises(AttributeError, match=r"has no attribute 'moon'; the samples are .*'hourly', 'model'"):
        _ = sample.moon


def test_the_reference_lists_every_sample():
    """In the table, and with a heading."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "api" / "sample.md").read_text()
    for name in sample.__all__:
        assert f"| [`sample.{name}`](#sample{name}) |" in page
        assert f"## `sample.{name}`\n" in page

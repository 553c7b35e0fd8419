"""Joining datasets along a dimension: everything else must be the same, and is checked."""

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.combine import combine_datasets, concat_datasets
from virtualstack.errors import CombineError
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray, inline_array


def make_file(path, start, *, lat_shift=0.0, mask=0, extra=None, n=2, scale=None):
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", None)
        file.createDimension("y", 3)
        file.createVariable("time", "f8", ("time",))[:] = np.arange(start, start + n)
        file["time"].units = "days since 2000-01-01"
        lat = file.createVariable("lat", "f8", ("y",), zlib=True)
        if scale is not None:
            lat.scale_factor = scale
            lat.set_auto_maskandscale(False)
        lat[:] = np.arange(3) + lat_shift
        file.createVariable("mask", "i1", ("y",))[:] = [1, 0, mask]
        file.createVariable("name", "S1", ())[...] = b"a"
        v = file.createVariable("v", "f4", ("time", "y"))
        v[:] = np.arange(n * 3).reshape(n, 3) + start
        if extra:
            file.createVariable(extra, "i4", ("y",))[:] = 1
    return vs.open_virtual_dataset(path)


def test_constant_variables_are_compared_by_value_and_kept_virtual(tmp_path):
    """What has no time dimension must be equal in all files, and points to the first."""
    parts = [make_file(tmp_path / f"{i}.nc", 2 * i, n=i + 1) for i in range(3)]
    cube = concat_datasets(parts, "time")
    assert isinstance(cube.lat.variable._data, ManifestArray)
    assert cube.lat.dims == ("y",)
    assert cube.v.sizes == {"time": 6, "y": 3}
    with xr.open_mfdataset(
        [tmp_path / f"{i}.nc" for i in range(3)],
        engine="netcdf4",
        combine="nested",
        concat_dim="time",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        join="exact",
    ) as expected:
        xr.testing.assert_equal(cube.virtual.open().load(), expected.load())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lat_shift": 0.5}, r"'lat' .* 3 of 3 values differ, by up to 0\.5"),
        ({"mask": 1}, r"'mask' .* 1 of 3 values differ, by up to 1"),
        ({"extra": "more"}, r"of 2 files, .more. is absent in 1; .*b.nc. has .more. and .*a.nc. has not: join=.outer."),
        ({"scale": 2.0}, r"'lat' .* scale_factor is None and .*2\.0"),
    ],
)
def test_what_differs_is_named(tmp_path, change, message):
    """A constant variable that differs raises, naming both files and by how much."""
    parts = [make_file(tmp_path / "a.nc", 0), make_file(tmp_path / "b.nc", 2, **change)]
    with pytest.raises(CombineError, match=message) as caught:
        concat_datasets(parts, "time")
    assert caught.value.left_url.endswith("a.nc")
    assert caught.value.right_url.endswith("b.nc")


def test_a_dimension_that_is_not_there_is_named(tmp_path):
    """The message lists what there is."""
    with pytest.raises(CombineError, match=r"no dimension 'step' to join along; it has \['time', 'y'\]"):
        concat_datasets([make_file(tmp_path / "a.nc", 0)], "step")
    with pytest.raises(CombineError, match="no datasets"):
        concat_datasets([], "time")


def test_other_shapes_are_named(tmp_path):
    """A constant variable of another shape is no match."""
    a = make_file(tmp_path / "a.nc", 0)
    b = make_file(tmp_path / "b.nc", 2).isel(y=slice(0, 2))
    with pytest.raises(CombineError, match=r"\('y',\) \(3,\).*\(2,\)"):
        concat_datasets([a, b], "time")


def test_other_lengths_of_joined_variables_are_named(tmp_path):
    """Dimensions that are not joined along must be as long in every file."""
    a = make_file(tmp_path / "a.nc", 0).drop_vars(["lat", "mask"])
    b = make_file(tmp_path / "b.nc", 2).drop_vars(["lat", "mask"])
    with pytest.raises(CombineError, match=r"'v' has dimensions .*'y': 3.*a\.nc.*'y': 2.*b\.nc") as caught:
        concat_datasets([a, b.isel(y=slice(0, 2))], "time")
    assert caught.value.property == "dimensions"
    with pytest.raises(CombineError, match="'v' has dimensions"):
        concat_datasets([a, b.rename(y="row")], "time")


def test_what_is_too_large_to_be_compared_is_named():
    """Constant fields of gigabytes are not read from all files unasked."""

    def part(i):
        grid = ChunkGrid.regular((40_000, 40_000), (1000, 1000))
        offsets = np.arange(1600).reshape(40, 40)
        manifest = ChunkManifest.from_arrays(
            offsets,
            np.full((40, 40), 9),
            location=f"s3://bucket/{i}.nc",
            encoding=ChunkEncoding.of("f4", (1000, 1000)),
            fill=Fill.of(0, "f4"),
        )
        array = ManifestArray(manifest=manifest, grid=grid, dtype=np.dtype("f4"), name="depth")
        return xr.Dataset({"depth": (("y", "x"), array), "v": ("time", [i])}, coords={"time": [i]})

    with pytest.raises(
        CombineError, match=r"6\.4 GB of it would have to be read from each of 3 files .*'compat': 'override'"
    ):
        combine_datasets([part(i) for i in range(3)])
    made = combine_datasets([part(i) for i in range(3)], combine_options={"compat": "override"})
    assert made.depth.variable._data.a_url() == "s3://bucket/0.nc"


def test_labels_of_one_file_are_taken_along_one_dimension_alone():
    """Along the second one, what the first step has dropped would be filled in."""

    def tile(t, x, lat):
        values = inline_array(np.ones((1, len(lat), 1)), name="v", dims=("t", "lat", "x"), attributes={})
        return xr.Dataset({"v": (("t", "lat", "x"), values)}, {"t": [t], "lat": lat, "x": [x]})

    tiles = [[tile(0, 0, [10, 20]), tile(0, 1, [0, 10])], [tile(1, 0, [10, 20]), tile(1, 1, [10, 20])]]
    for join in ("left", "right"):
        with pytest.raises(CombineError, match=rf"labels of 'lat' differ, and join='{join}'"):
            combine_datasets(tiles, combine="nested", concat_dim=["t", "x"], join=join)
        with pytest.raises(CombineError, match=rf"labels of 'lat' differ, and join='{join}'"):
            combine_datasets([x for row in tiles for x in row], join=join)
    assert combine_datasets(tiles, combine="nested", concat_dim=["t", "x"], join="outer").sizes["lat"] == 3
    assert combine_datasets(tiles[0], combine="nested", concat_dim="x", join="right").lat.values.tolist() == [0, 10]

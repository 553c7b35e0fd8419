"""Joining datasets along a dimension: everything else must be the same, and is checked."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from xarray.indexes import PandasIndex

import virtualstack as vs
from tests.data.arrays import referenced_array
from tests.data.netcdf4 import netcdf4_file, opened
from tests.joins import MINIMAL
from virtualstack.combine import CombineOptions, combine_datasets, combine_trees
from virtualstack.combine.conflicts import numbers_like
from virtualstack.combine.part import over_index
from virtualstack.errors import CombineError
from virtualstack.manifests import ManifestArray, inline_array


def joined(parts):
    """Join along time, in the order in which they stand."""
    return combine_datasets(parts, CombineOptions.from_options(combine="nested", concat_dim="time"))


def make_file(path, start, *, lat_shift=0.0, mask=0, extra=None, n=2, scale=None):
    scaled = {} if scale is None else {"scale_factor": scale}
    variables = {
        "time": ("f8", "time", np.arange(start, start + n), {"units": "days since 2000-01-01"}),
        "lat": ("f8", "y", np.arange(3) + lat_shift, scaled, {"zlib": True}),
        "mask": ("i1", "y", [1, 0, mask]),
        "name": ("S1", "", b"a"),
        "v": ("f4", "time y", np.arange(n * 3).reshape(n, 3) + start),
    }
    more = {extra: ("i4", "y", 1)} if extra else {}
    return vs.open_virtual_dataset(netcdf4_file(path, {"time": None, "y": 3}, variables | more))


def test_options_without_a_word_of_the_user_are_the_defaults():
    assert CombineOptions.from_options() == CombineOptions()


def test_constant_variables_are_compared_by_value_and_kept_virtual(tmp_path):
    """What has no time dimension must be equal in all files, and points to the first."""
    parts = [make_file(tmp_path / f"{i}.nc", 2 * i, n=i + 1) for i in range(3)]
    cube = joined(parts)
    assert isinstance(cube.lat.variable._data, ManifestArray)
    assert cube.lat.dims == ("y",)
    assert cube.v.sizes == {"time": 6, "y": 3}
    expected = xr.concat([opened(tmp_path / f"{i}.nc") for i in range(3)], "time", join="exact", **MINIMAL)
    xr.testing.assert_equal(cube.virtual.open().load(), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lat_shift": 0.5}, r"'lat' .* 3 of 3 values differ, by up to 0\.5"),
        ({"mask": 1}, r"'mask' .* 1 of 3 values differ, by up to 1"),
        (
            {"extra": "more"},
            r"of 2 files, .more. is missing from 1; .*b.nc. has .more. and .*a.nc. does not. .* join=.outer.",
        ),
        ({"scale": 2.0}, r"'lat' .* differs between .*: 2 of 3 values differ, by up to 2, first 1.0 and 2.0"),
    ],
)
def test_what_differs_is_named(tmp_path, change, message):
    """A constant variable that differs raises, naming both files and by how much."""
    parts = [make_file(tmp_path / "a.nc", 0), make_file(tmp_path / "b.nc", 2, **change)]
    with pytest.raises(CombineError, match=message) as caught:
        joined(parts)
    assert caught.value.left_url.endswith("a.nc")
    assert caught.value.right_url.endswith("b.nc")
    if "more" in message:
        assert (caught.value.left, caught.value.right) == (False, True)


def test_a_dimension_that_is_not_there_is_named(tmp_path):
    """The message lists what there is."""
    with pytest.raises(CombineError, match=r"b.nc' has no dimension 'time' to join along; it has \['y'\]; other files"):
        joined([make_file(tmp_path / "a.nc", 0), make_file(tmp_path / "b.nc", 2).isel(time=0, drop=True)])
    with pytest.raises(CombineError, match="no datasets"):
        joined([])


@pytest.mark.parametrize("name", ["v", "lat"])
def test_a_variable_may_be_loaded_in_one_file_alone(name, tmp_path):
    """Whether it is the same in all files is a matter of its values, and so is what it joins to."""
    make_file(tmp_path / "a.nc", 0)
    make_file(tmp_path / "b.nc", 2)
    a = vs.open_virtual_dataset(tmp_path / "a.nc", loadable_variables=["time", name])
    b = vs.open_virtual_dataset(tmp_path / "b.nc", loadable_variables=["time"])
    expected = joined([vs.open_virtual_dataset(tmp_path / f"{n}.nc") for n in "ab"])
    for parts in ([a, b], [b, a]):
        found = vs.combine_datasets(parts, combine="by_coords")
        xr.testing.assert_identical(found.virtual.open().load(), expected.virtual.open().load())


def test_lengths_of_files_side_by_side_are_compared(tmp_path):
    """Dimensions that no file has labels of cannot be aligned."""
    a = make_file(tmp_path / "a.nc", 0)[["v"]]
    b = make_file(tmp_path / "b.nc", 0)[["mask"]].isel(y=slice(0, 2))
    message = r"dimension 'y' has 3 elements in '.*a\.nc' and 2 in '.*b\.nc', but no labels"
    with pytest.raises(CombineError, match=message) as caught:
        combine_datasets([a, b], CombineOptions.from_options(combine="nested", concat_dim=[None]))
    assert (caught.value.left, caught.value.right) == (3, 2)


@pytest.mark.parametrize("change", [0, 1])
def test_records_are_compared_by_their_bytes(change):
    def part(i):
        records = np.array([(1, 2.0), (3, 4.0 + change * i)], [("a", "i4"), ("b", "f8")])
        array = inline_array(records, name="r", dims=("x",), attributes={"file": i})
        return xr.Dataset({"r": (("x",), array), "v": ("time", [i])}, coords={"time": [i]})

    if change:
        with pytest.raises(CombineError, match=r"'r' .* stored records differ"):
            combine_datasets([part(0), part(1)])
    else:
        assert combine_datasets([part(0), part(1)]).r.dims == ("x",)


def test_other_shapes_are_named(tmp_path):
    """A constant variable of another shape is not a match."""
    a = make_file(tmp_path / "a.nc", 0)
    b = make_file(tmp_path / "b.nc", 2).isel(y=slice(0, 2))
    with pytest.raises(CombineError, match=r"\('y',\) \(3,\).*\(2,\)"):
        joined([a, b])


def test_other_lengths_of_joined_variables_are_named(tmp_path):
    """Dimensions that are not joined along must be as long in every file."""
    a = make_file(tmp_path / "a.nc", 0).drop_vars(["lat", "mask"])
    b = make_file(tmp_path / "b.nc", 2).drop_vars(["lat", "mask"])
    with pytest.raises(CombineError, match=r"'v' has dimensions .*'y': 3.*a\.nc.*'y': 2.*b\.nc") as caught:
        joined([a, b.isel(y=slice(0, 2))])
    assert caught.value.property == "dimensions"
    with pytest.raises(CombineError, match="'v' has dimensions"):
        joined([a, b.rename(y="row")])


def test_what_is_too_large_to_be_compared_is_named():
    """Constant fields of gigabytes are not read from all files unasked."""

    def part(i):
        array = referenced_array((40_000, 40_000), (1000, 1000), urls=f"s3://bucket/{i}.nc", name="depth")
        return xr.Dataset({"depth": (("y", "x"), array), "v": ("time", [i])}, coords={"time": [i]})

    with pytest.raises(CombineError, match=r"6\.4 GB from each of 3 files\. .*'compat': 'override'"):
        combine_datasets([part(i) for i in range(3)])
    made = combine_datasets(
        [part(i) for i in range(3)], CombineOptions.from_options(combine_options={"compat": "override"})
    )
    assert made.depth.variable._data.a_url() == "s3://bucket/0.nc"


def test_large_variables_of_an_outer_join_stand_side_by_side_unread():
    """What only one group of files has is compared with nothing, whatever labels its files lack."""

    def part(name, t, first):
        array = referenced_array((1, 40_000, 40_000), (1, 1000, 1000), urls=f"s3://bucket/{name}{t}.nc", name=name)
        return xr.Dataset({name: (("t", "y", "x"), array)}, {"t": [t], "y": np.arange(first, first + 40_000)})

    parts = [part(name, t, 1000 * t) for name in ("u", "v") for t in (0, 1)]
    made = combine_datasets(parts, CombineOptions.from_options(join="outer"))
    assert made.u.shape == made.v.shape == (2, 41_000, 40_000)


def test_labels_of_many_files_that_alternate_are_refused_before_memory_is_full():
    """Each label by itself is a piece of a chunk; labels that are shifted cut none but those at the ends."""

    def part(i, first):
        n = 1 << 14
        array = referenced_array((1, 1 << 12, n), (1, 64, n), urls=f"s3://bucket/{i}.nc")
        made = xr.Dataset({"v": (("t", "y", "x"), array)}, {"t": [i], "x": first + np.arange(float(n))})
        made.encoding["source"] = f"s3://bucket/{i}.nc"
        return made

    how = CombineOptions.from_options(join="outer", combine="nested", concat_dim="t")
    shifted = combine_datasets([part(i, 1000.0 * (i % 2)) for i in range(40)], how)
    assert shifted.v.shape == (40, 1 << 12, (1 << 14) + 1000)
    message = r"labels of 'x' alternate between files: aligning 40 files .* 's3://bucket/3\d.nc'.*tolerance="
    with pytest.raises(CombineError, match=message) as caught:
        combine_datasets([part(i, 0.5 * (i % 2)) for i in range(40)], how)
    assert caught.value.left_url == "s3://bucket/0.nc"


def virtually(dataset):
    """Make all but the dimension coordinates virtual."""
    made = {
        name: (x.dims, inline_array(x.values, name=name, dims=x.dims, attributes={}))
        for name, x in dataset.variables.items()
        if name not in dataset.dims
    }
    return xr.Dataset(made, {dim: dataset[dim] for dim in dataset.dims}).set_coords(set(dataset.coords) & made.keys())


@pytest.mark.parametrize("join", ["outer", "inner", "left", "right", "override"])
@pytest.mark.parametrize("odd", [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2)])
def test_tiles_along_two_dimensions_take_common_labels_all_at_once(join, odd):
    """What xarray gives for files that it has aligned first: no step fills in what the one before has dropped."""

    def tile(t, x):
        lat = np.array([10, 20]) + (5 if (t, x) == odd else 0)
        coords = {"t": [t], "lat": lat, "x": [x], "lat2": (("lat", "x"), lat[:, None] + x / 100)}
        return xr.Dataset({"v": (("t", "lat", "x"), np.random.default_rng(t * 3 + x).random((1, 2, 1)))}, coords)

    tiles = [[tile(t, x) for x in range(3)] for t in range(3)]
    flat = [x for row in tiles for x in row]
    aligned = xr.align(*flat, join=join, exclude=["t", "x"])
    nested = [list(aligned[i : i + 3]) for i in (0, 3, 6)]
    compat = "override" if join == "override" else "no_conflicts"
    how = MINIMAL | {"compat": compat}
    if join == "override":  # lat2 is what its file says, whatever the labels
        nested = [[x.drop_vars("lat2") for x in row] for row in nested]
        tiles = [[x.drop_vars("lat2") for x in row] for row in tiles]
        flat = [x.drop_vars("lat2") for x in flat]
    expected = xr.combine_nested(nested, ["t", "x"], join="exact", **how)
    parts = [[virtually(x) for x in row] for row in tiles]
    found = (
        combine_datasets(parts, CombineOptions.from_options(combine="nested", concat_dim=["t", "x"], join=join))
        .virtual.open()
        .load()
    )
    xr.testing.assert_identical(found, expected)
    shuffled = [virtually(flat[i]) for i in np.random.default_rng(0).permutation(9)]
    xr.testing.assert_identical(
        combine_datasets(shuffled, CombineOptions.from_options(join=join)).virtual.open().load(), expected
    )
    stepwise = xr.combine_nested(tiles, ["t", "x"], join=join, **how)
    xr.testing.assert_equal(stepwise.lat, found.lat)
    kept = found.v.where(stepwise.v.notnull()).variable  # xarray's own steps lose values of labels that come back
    xr.testing.assert_equal(stepwise.v.variable, kept)


@pytest.mark.parametrize("is_virtual", [True, False])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
def test_a_coordinate_that_rows_of_tiles_contradict_is_named_with_their_files(dtype, is_virtual):
    """What a tile lacks is not a value, and makes floats of integers; what two rows have must be the same."""

    def tile(t, x, lat, shift=0):
        lat = np.array(lat)
        coords = {"t": [t], "lat": lat, "x": [x], "lat2": (("lat", "x"), (lat[:, None] + shift).astype(dtype))}
        made = xr.Dataset({"v": (("t", "lat", "x"), np.ones((1, lat.size, 1)))}, coords)
        made = virtually(made) if is_virtual else made
        made.encoding["source"] = f"file:///{t}{x}.nc"
        return made

    tiles = [tile(0, 0, [10, 20]), tile(0, 1, [15, 25]), tile(1, 0, [10, 20]), tile(1, 1, [10, 20])]
    found = combine_datasets(tiles, CombineOptions.from_options(join="outer")).virtual.open()
    np.testing.assert_array_equal(found.lat2, [[10, 10], [np.nan, 15], [20, 20], [np.nan, 25]])
    tiles[3] = tile(1, 1, [15, 30], shift=2)
    message = r"'lat2' .* differs between '.*01.nc' and '.*11.nc': .*15.*17"
    with pytest.raises(CombineError, match=message):
        combine_datasets(tiles, CombineOptions.from_options(join="outer"))


def test_a_variable_that_one_tile_lacks_is_taken_from_the_other_row():
    """A hole in place of a variable is not a value that contradicts."""

    def tile(t, x):
        made = xr.Dataset({"v": (("t", "x"), [[1.0]])}, {"t": [t], "x": [x], "area": ("x", [x + 0.5])})
        return virtually(made.drop_vars("area") if (t, x) == (0, 1) else made)

    found = combine_datasets(
        [tile(t, x) for t in (0, 1) for x in (0, 1)], CombineOptions.from_options(join="outer")
    ).virtual.open()
    assert found.area.values.tolist() == [0.5, 1.5]


def test_labels_of_one_kind_without_an_order():
    """Objects that cannot be compared, one in each dataset: they are joined in the order given alone."""

    class Site:
        pass

    parts = [xr.Dataset({"v": ("x", [float(i)])}, {"x": np.array([Site()], object)}) for i in range(2)]
    with pytest.raises(CombineError, match=r"have no order: '<' not supported.*combine='nested' and concat_dim='x'"):
        vs.combine_datasets(parts)
    joined = vs.combine_datasets(parts, combine="nested", concat_dim="x")
    assert joined["v"].values.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("how", ["drop_conflicts", "drop", "override"])
def test_attributes_that_are_arrays_are_combined_as_by_xarray(tmp_path, how):
    """Equal ones stay, others are conflicts."""
    paths = []
    for i, values in enumerate(([1.0, 2.0], [1.0, 3.0])):
        attributes = {"same": np.array([1, 2], "i2"), "other": np.array(values)}
        cube = xr.Dataset({"v": ("x", [float(i)], attributes)}, {"x": [i]}, attributes)
        cube.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4", encoding={"v": {"_FillValue": None}})
        paths.append(str(tmp_path / f"{i}.nc"))
    expected = xr.open_mfdataset(paths, combine_attrs=how)
    found = vs.open_virtual_mfdataset(paths, combine_options={"combine_attrs": how}).virtual.open()
    xr.testing.assert_identical(found.load(), expected.load())


@pytest.mark.parametrize(
    "values", [(1, 2, 1), (1, 1, 2), (1, 2, 3), (1, 1, 1), (None, 1, 1), (1, None, 2), (1, None, 1)]
)
@pytest.mark.parametrize("how", ["drop_conflicts", "drop", "override", "no_conflicts", "identical"])
def test_attributes_of_three_files_are_combined_as_by_xarray(tmp_path, how, values):
    """A value that was left out does not come back with a later file."""
    paths = [str(tmp_path / f"{i}.nc") for i in range(3)]
    for i, (path, value) in enumerate(zip(paths, values, strict=True)):
        attributes = {} if value is None else {"a": value}
        xr.Dataset({"v": ("x", [float(i)], attributes)}, {"x": [i]}, attributes).to_netcdf(path, engine="netcdf4")
    try:
        expected = xr.open_mfdataset(paths, combine_attrs=how).load()
    except ValueError:
        with pytest.raises(CombineError):
            vs.open_virtual_mfdataset(paths, combine_options={"combine_attrs": how})
    else:
        found = vs.open_virtual_mfdataset(paths, combine_options={"combine_attrs": how}).virtual.open()
        xr.testing.assert_identical(found.load(), expected)


@pytest.mark.parametrize(
    ("dtype", "encoded"), [("i8", {"zlib": True}), ("i4", {"zlib": True, "dtype": np.dtype("i4")})]
)
def test_labels_of_another_dtype_are_not_encoded_as_the_first_ones(dtype, encoded):
    """Encoded labels would wrap."""
    first = xr.Variable("x", np.array([1], "i4"), encoding={"zlib": True, "dtype": np.dtype("i4")})
    made = over_index("x", PandasIndex(np.array([1, 2], dtype), "x"), first)
    assert made.encoding == encoded
    assert made.dtype == dtype


def test_one_tree_is_joined_with_no_other():
    nodes = {"/": xr.Dataset({"v": ("t", [1.0])}), "/x": xr.Dataset({"w": ("y", [2.0, 3.0])})}
    tree = xr.DataTree.from_dict(nodes)
    joined = combine_trees([tree], CombineOptions.from_options(combine="nested", concat_dim="t"))
    xr.testing.assert_equal(joined, tree)


def test_coordinates_of_a_parent_are_no_variables_of_its_children():
    trees = [
        xr.DataTree.from_dict({"/": xr.Dataset({"v": ("t", [1.0])}, {"t": [i]}), "/x": xr.Dataset({"w": ("t", [2.0])})})
        for i in range(2)
    ]
    joined = combine_trees(trees, CombineOptions())
    assert list(joined["x"].to_dataset(inherit=False).variables) == ["w"]
    assert joined["x"].to_dataset()["t"].values.tolist() == [0, 1]


def test_floats_take_the_missing_values_of_others():
    """NaN, by their chunks; where both mean the same, they stay as they are."""
    plain, wider = (referenced_array((2,), (2,), dtype) for dtype in ("f4", "f8"))
    masked = replace(plain, attributes={"_FillValue": np.float32(-9)}, cf={"_FillValue": np.float32(-9)})
    for like in (plain, wider, replace(plain, cf={"_FillValue": np.nan})):
        found = numbers_like(masked, like)
        assert (found.dtype, found.cf) == (like.dtype, {})
    assert numbers_like(masked, masked).cf == masked.cf
    assert numbers_like(plain, plain).equals(plain)
    assert numbers_like(wider, plain) is wider


@pytest.mark.parametrize("join", ["left", "right", "outer", "inner", "override"])
@pytest.mark.parametrize("dtypes", [("i4", "f8"), ("f8", "i4"), ("f4", "f8"), ("f8", "f4"), ("i2", "i8"), ("u1", "i2")])
def test_common_labels_have_the_dtype_that_xarray_gives_them(join, dtypes):
    parts = [
        xr.Dataset({"v": (("t", "x"), [[1.0, 2.0, 3.0]])}, {"t": [i], "x": np.array(x, dtype)})
        for i, (x, dtype) in enumerate(zip(([1, 2, 3], [2, 3, 4]), dtypes, strict=True))
    ]
    how = CombineOptions.from_options(combine="nested", concat_dim="t", join=join)
    expected = xr.concat(parts, "t", join=join, coords="minimal", compat="equals")
    for datasets in (parts, list(map(virtually, parts))):
        found = combine_datasets(datasets, how).virtual.open().load()
        xr.testing.assert_equal(found, expected)
        assert found["x"].dtype == expected["x"].dtype

"""Remedies that messages name, applied in the words of the message; values are those of the other library."""

import ast
import re
import shlex
from inspect import signature

import h5py
import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.advice import options_named
from tests.data.netcdf4 import netcdf4_file
from tests.data.netcdf4 import opened as netcdf4_dataset
from tests.joins import MINIMAL
from virtualstack.cli.command import main
from virtualstack.errors import CombineError, ReaderError, UnsupportedFeatureError, VirtualStackError, WriterError


def named_in(message, *options):
    """Return the options that a message names, with the values that it gives them."""
    found = {}
    for option in options:
        match = re.search(rf"{option}=(\[.*?\]|'[^']*'|\d[\d.e-]*\d|\d|pd\.Timedelta\('[^']*'\))", message)
        assert match is not None, f"{option} is not named in: {message}"
        found[option] = ast.literal_eval(match[1])
    return found


def check_values(found, expected):
    """Compare values and names of all variables."""
    assert set(map(str, found.variables)) == set(map(str, expected.variables))
    for name in expected.variables:
        np.testing.assert_array_equal(found[name].values, expected[name].values)


# -- opening --------------------------------------------------------------------------------------------------


def odd_file(path, n=22):
    """Write variables of a type that zarr has not, in two groups, beside others of the same names."""
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("t", 2)
        ragged = file.createVLType("i4", "ragged_t")
        for name, group in (("", file), ("a", file.createGroup("a")), ("b", file.createGroup("b"))):
            for i in range(n):
                if name == "b":
                    group.createVariable(f"x{i}", "i4", ("t",))[:] = [i, i + 1]
                    continue
                odd = group.createVariable(f"x{i}", ragged, ("t",))
                odd[0], odd[1] = np.arange(i, dtype="i4"), np.arange(2, dtype="i4")
            group.createVariable("fine", "f8", ("t",))[:] = [1.5, 2.5]
    return path


def test_all_variables_that_have_to_be_dropped_are_named(tmp_path):
    """A file with 22 variables that cannot be referenced opens with the drop_variables that its message names."""
    path = odd_file(tmp_path / "odd.nc")
    for open_it in (vs.open_virtual_dataset, lambda *x, **y: xr.open_dataset(*x, engine="virtualstack", **y)):
        with pytest.raises(UnsupportedFeatureError, match="22 variables") as caught:
            open_it(path)
        assert "inline_limit" not in str(caught.value)  # no limit helps where zarr has no data type
        vds = open_it(path, **named_in(str(caught.value), "drop_variables"))
        with xr.open_dataset(path, engine="netcdf4", drop_variables=[f"x{i}" for i in range(22)]) as expected:
            check_values(vds.virtual.open() if open_it is vs.open_virtual_dataset else vds, expected)


def test_a_path_drops_one_variable_of_a_tree(tmp_path):
    """The message on a tree names paths, which drop no variable of that name elsewhere."""
    path = odd_file(tmp_path / "odd.nc")
    for open_tree in (vs.open_virtual_datatree, lambda *x, **y: xr.open_datatree(*x, engine="virtualstack", **y)):
        with pytest.raises(UnsupportedFeatureError, match="44 variables") as caught:
            open_tree(path)
        tree = open_tree(path, **named_in(str(caught.value), "drop_variables"))
        found = {node.path: node.to_dataset() for node in tree.subtree}
        assert list(found["/"]) == ["fine"] == list(found["/a"])
        opened = found["/b"].virtual.open() if open_tree is vs.open_virtual_datatree else found["/b"]
        with xr.open_dataset(path, engine="netcdf4", group="b") as expected:
            check_values(opened, expected)


@pytest.mark.parametrize("dropped", ["/a/x", "a/x", ["/a/x"]])
def test_a_path_names_the_variable_of_one_group(tmp_path, dropped):
    """``/a/x`` leaves ``/x`` and ``/b/x``, in trees and in groups opened by themselves, also of references."""
    path, references = tmp_path / "tree.nc", tmp_path / "refs.json"
    names = [group + name for group in ("", "a/", "b/") for name in "xy"]
    netcdf4_file(path, {"t": 2}, {name: ("f8", "t", [1.0, 2.0]) for name in names})
    vs.open_virtual_datatree(path).virtual.to_kerchunk(references)
    for source in (path, references):
        for tree in (
            vs.open_virtual_datatree(source, drop_variables=dropped),
            xr.open_datatree(source, engine="virtualstack", drop_variables=dropped),
        ):
            found = {node.path: sorted(node.data_vars) for node in tree.subtree}
            assert found == {"/": ["x", "y"], "/a": ["y"], "/b": ["x", "y"]}
        for group, expected in (("a", ["y"]), ("b", ["x", "y"]), (None, ["x", "y"])):
            assert sorted(vs.open_virtual_dataset(source, group=group, drop_variables=dropped)) == expected
            vds = xr.open_dataset(source, engine="virtualstack", group=group, drop_variables=dropped)
            assert sorted(vds) == expected


def test_a_name_drops_the_variable_of_every_group(tmp_path):
    """``x`` is left out of all groups, and ``/x`` of the root alone."""
    path = netcdf4_file(tmp_path / "tree.nc", {"t": 2}, {name: ("f8", "t", [1.0, 2.0]) for name in ("x", "a/x")})
    assert [list(node) for node in vs.open_virtual_datatree(path, drop_variables="x").subtree] == [["a"], []]
    assert [list(node) for node in vs.open_virtual_datatree(path, drop_variables="/x").subtree] == [["a"], ["x"]]


def strings_file(path):
    with h5py.File(path, "w") as file:
        file["text"] = np.array([f"line {i} " + "x" * (i % 7) for i in range(200)], object)
        file["numbers"] = np.arange(5.0)
    return path


@pytest.mark.parametrize("metadata", ["own", "library"])
def test_the_inline_limit_that_is_named_takes_the_values(tmp_path, metadata):
    """Strings of more bytes than inline_limit are read with the limit that the message names."""
    path = strings_file(tmp_path / "text.h5")
    reader, expected = vs.readers.HDF5(metadata=metadata), h5py.File(path)["text"].asstr()[:]
    limit, n_tries = 100, 0
    while True:
        try:
            vds = vs.open_virtual_dataset(path, reader=reader, inline_limit=limit)
            break
        except UnsupportedFeatureError as error:
            limit, n_tries = named_in(str(error), "inline_limit")["inline_limit"], n_tries + 1
            assert n_tries < 3  # how long strings are is not known before their number is in question
    np.testing.assert_array_equal(vds.virtual.open()["text"].values, expected)
    with xr.open_dataset(path, engine="virtualstack", reader=reader, inline_limit=limit) as found:
        np.testing.assert_array_equal(found["text"].values, expected)


def test_what_is_asked_to_be_refused_is_taken_where_the_message_says(tmp_path):
    """With unsupported="raise", the message names what inlines the values."""
    path = strings_file(tmp_path / "text.h5")
    with pytest.raises(UnsupportedFeatureError) as caught:
        vs.open_virtual_dataset(path, unsupported="raise")
    options = named_in(str(caught.value).split(". Or put")[1], "unsupported", "inline_limit")
    vds = vs.open_virtual_dataset(path, **options)
    np.testing.assert_array_equal(vds.virtual.open()["text"].values, h5py.File(path)["text"].asstr()[:])


def test_only_the_large_ones_are_said_to_need_a_larger_limit(tmp_path):
    """Where one variable has no data type and another is large, the message says which is which."""
    path = strings_file(tmp_path / "mixed.h5")
    with h5py.File(path, "a") as file:
        file.create_dataset("ragged", (2,), h5py.vlen_dtype("i4"))
    with pytest.raises(UnsupportedFeatureError, match=r"the values of \['text'\] into") as caught:
        vs.open_virtual_dataset(path, unsupported="raise")
    vds = vs.open_virtual_dataset(
        path, drop_variables="ragged", inline_limit=named_in(str(caught.value), "inline_limit")["inline_limit"]
    )
    assert sorted(vds) == ["numbers", "text"]


def test_truncated_netcdf3_opens_without_all_variables_that_it_names(tmp_path):
    """All variables that are cut off are named, not the first five of them."""
    path = tmp_path / "cut.nc"
    variables = {f"v{i:02}": ("f8", "x", i) for i in range(12)}
    netcdf4_file(path, {"x": 100}, variables, kind="NETCDF3_CLASSIC")
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 10 * 800])
    with pytest.raises(ReaderError) as caught:
        vs.open_virtual_dataset(path)
    vds = vs.open_virtual_dataset(path, **named_in(str(caught.value), "drop_variables"))
    with netCDF4.Dataset(path) as expected:
        for name in ("v00", "v01"):
            np.testing.assert_array_equal(vds.virtual.open()[name].values, expected[name][:])
    assert len(vds) == 2


# -- adding to a store ----------------------------------------------------------------------------------------


def opened_part(path, times, *, seed, names=("t",), fixed=()):
    """Write values along (time, x), and variables along x alone; return the virtual dataset and the values."""
    rng = np.random.default_rng(seed)
    made = xr.Dataset(
        {name: (("time", "x"), rng.normal(size=(len(times), 3))) for name in names}
        | {name: ("x", np.arange(3.0)) for name in fixed},
        {"time": np.array(times, float), "x": [1.0, 2.0, 3.0]},
    )
    made.to_netcdf(path, engine="netcdf4", encoding={name: {"chunksizes": (1, 3)} for name in names})
    return vs.open_virtual_dataset(path), made


ADDING = {
    "append": ([3, 4], lambda url, vds, **how: vds.virtual.to_vstack(url, append_dim="time", **how)),
    "region": ([1, 2], lambda url, vds: vds.virtual.to_vstack(url, region="auto")),
    "update": (
        [2, 3],
        lambda url, vds, **how: vs.Repository.open(url).update(vds, dim="time", prefer="last", **how),
    ),
}


@pytest.mark.parametrize("how", ADDING)
@pytest.mark.parametrize("fixed", [False, True], ids=["along time", "fixed"])
def test_a_variable_that_the_store_has_not_is_added_first_or_left_out(tmp_path, how, fixed):
    """Both remedies of the message work: without the variable, and once the store has it."""
    url, (times, add) = str(tmp_path / "s.vstack"), ADDING[how]
    first, a = opened_part(tmp_path / "a.nc", [0, 1, 2], seed=0)
    first.virtual.to_vstack(url)
    extra = {"fixed": ("q",)} if fixed else {"names": ("t", "q")}
    new, b = opened_part(tmp_path / "b.nc", times, seed=1, **extra)
    with pytest.raises(CombineError, match=r"drop_variables=\['q'\]") as caught:
        add(url, new)
    assert caught.value.variable == "q"
    expected = b[["t"]].combine_first(a)
    other = str(tmp_path / "other.vstack")
    first.virtual.to_vstack(other)
    if how == "region":
        assert "join=" not in str(caught.value)  # a region takes no join=
        joined = vs.combine_datasets([vs.open_virtual_dataset(url), new[["q"]]], join="outer")
        joined.virtual.to_vstack(other, mode="w")
        add(other, new)
    else:
        assert "join='outer'" in str(caught.value)
        add(other, new, join="outer")
    found = xr.open_dataset(other, engine="virtualstack").load()
    np.testing.assert_array_equal(found["t"], expected["t"])
    np.testing.assert_array_equal(found["q"].reindex_like(b["q"]), b["q"])
    add(url, vs.open_virtual_dataset(tmp_path / "b.nc", drop_variables=["q"]))
    np.testing.assert_array_equal(xr.open_dataset(url, engine="virtualstack")["t"], expected["t"])


@pytest.mark.parametrize("join", ["exact", "outer"])
def test_a_variable_that_only_the_store_has_is_given_from_it(tmp_path, join):
    """A variable along other dimensions: as the message says, or by ``join="outer"``."""
    url = str(tmp_path / "s.vstack")
    first, a = opened_part(tmp_path / "a.nc", [0, 1, 2], seed=0, fixed=("area",))
    first.virtual.to_vstack(url)
    new, b = opened_part(tmp_path / "b.nc", [3], seed=1)
    if join == "exact":
        with pytest.raises(CombineError, match=r"ds\.assign\(\{'area'"):
            new.virtual.to_vstack(url, append_dim="time")
        new = new.assign({"area": vs.open_virtual_dataset(url)["area"]})
    new.virtual.to_vstack(url, append_dim="time", join=join)
    found = xr.open_dataset(url, engine="virtualstack").load()
    np.testing.assert_array_equal(found["t"], np.concatenate([a["t"], b["t"]]))
    np.testing.assert_array_equal(found["area"], a["area"])


# -- text, joining and writing --------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"inline_limit": 100}, {"unsupported": "raise"}])
def test_text_in_pieces_opens_with_each_remedy(tmp_path, how):
    """Characters that lie in several chunks open with the limit, the loaded name or the dropped name of the message."""
    letters = netCDF4.stringtochar(np.array([f"text{i:04}" for i in range(50)], "S8"))
    variables = {"text": ("S1", "x n", letters, {}, {"chunksizes": (10, 4)}), "v": ("f8", "x", np.arange(50.0))}
    path = netcdf4_file(tmp_path / "text.nc", {"x": 50, "n": 8}, variables)
    with pytest.raises(UnsupportedFeatureError, match="cannot be referenced as text") as caught:
        vs.open_virtual_dataset(path, **how)
    inlining = ["inline_limit", *(["unsupported"] if "unsupported" in how else [])]
    for named in (inlining, ["loadable_variables"], ["drop_variables"]):
        options = {**how, **named_in(str(caught.value), *named)}
        with xr.open_dataset(path, engine="netcdf4", drop_variables=options.get("drop_variables")) as expected:
            check_values(vs.open_virtual_dataset(path, **options).virtual.open(), expected)


def test_coordinates_that_differ_join_with_each_remedy(tmp_path):
    """The message on a coordinate that differs names a tolerance and joins, which give what xarray gives."""
    paths = []
    for i in range(2):
        paths.append(tmp_path / f"{i}.nc")
        x = np.array([0.0, 1.0, 2.0]) + 1e-7 * i
        xr.Dataset({"v": (("time", "x"), np.full((1, 3), i + 0.5))}, {"time": [float(i)], "x": x}).to_netcdf(
            paths[-1], engine="netcdf4"
        )
    with pytest.raises(CombineError, match=r"coordinate 'x'.*tolerance=") as caught:
        vs.open_virtual_mfdataset(paths)
    assert "outer" not in str(caught.value)  # it would double the grid
    found = vs.open_virtual_mfdataset(paths, **named_in(str(caught.value), "tolerance")).virtual.open()
    np.testing.assert_array_equal(found["v"], [[0.5] * 3, [1.5] * 3])
    for join, n in (("outer", 6), ("inner", 0)):
        opened = [xr.open_dataset(path, engine="netcdf4") for path in paths]
        expected = xr.concat(opened, "time", join=join, **MINIMAL)
        found = vs.open_virtual_mfdataset(paths, join=join).virtual.open()
        assert found.sizes["x"] == n
        np.testing.assert_array_equal(found["v"], expected["v"])


def test_a_store_that_is_there_is_replaced_or_appended_to(tmp_path):
    """The message on a store that is there names append_dim= and mode='w', and both work."""
    url = tmp_path / "s.vstack"
    first, a = opened_part(tmp_path / "a.nc", [0, 1], seed=0)
    second, b = opened_part(tmp_path / "b.nc", [2], seed=1)
    first.virtual.to_vstack(url)
    with pytest.raises(WriterError, match=r"append_dim=.*mode='w'"):
        second.virtual.to_vstack(url)
    second.virtual.to_vstack(url, append_dim="time")
    np.testing.assert_array_equal(xr.open_dataset(url, engine="virtualstack")["t"], np.concatenate([a["t"], b["t"]]))
    second.virtual.to_vstack(url, mode="w")
    np.testing.assert_array_equal(xr.open_dataset(url, engine="virtualstack")["t"], b["t"])


def test_what_is_appended_out_of_order_is_placed(tmp_path):
    """The message on labels that come too late names Repository.update, and not ``ordered=False``: it asks nothing."""
    first, a = opened_part(tmp_path / "a.nc", [2, 3], seed=0)
    early, b = opened_part(tmp_path / "b.nc", [1], seed=1)
    url = tmp_path / "x.vstack"
    first.virtual.to_vstack(url)
    with pytest.raises(CombineError, match=r"Repository\.update") as caught:
        early.virtual.to_vstack(url, append_dim="time")
    assert "ordered" not in str(caught.value)
    vs.Repository.open(url).update(early, dim="time")
    found = xr.open_dataset(url, engine="virtualstack").load()
    np.testing.assert_array_equal(found["t"], np.concatenate([b["t"], a["t"]]))
    np.testing.assert_array_equal(found["time"], np.concatenate([b["time"], a["time"]]))


def part(times, *, units="m", name="v", k=3.0):
    """Return values along (t, x), and a variable along x whose last value is given."""
    values = np.arange(3.0 * len(times)).reshape(-1, 3) + 10 * times[0]
    made = xr.Dataset({name: (("t", "x"), values, {"units": units}), "k": ("x", [1.0, 2.0, k])})
    return made.assign_coords(t=np.array(times, float), x=[0.0, 1.0, 2.0])


def plain(parts, **options):
    """Return what xarray joins."""
    return xr.concat(parts, "t", data_vars="minimal", coords="minimal", **{"join": "exact", **options})


JOINING = {
    "descends": (
        [part([0, 1]), part([3, 2])],
        r"Reverse one of them with preprocess=$",
        {"preprocess": lambda ds: ds.sortby("t")},
        lambda a, b: plain([a, b.sortby("t")]),
    ),
    "unsorted": (
        [part([0, 2, 1]), part([3])],
        r"Sort it with preprocess=lambda ds: ds.sortby\('t'\)$",
        {"preprocess": lambda ds: ds.sortby("t")},
        lambda a, b: plain([a.sortby("t"), b]),
    ),
    "overlapping": (
        [part([0, 1]), part([1, 2])],
        r"duplicates='first' keeps the first of them\. Or duplicates='last' keeps the last of them$",
        {"duplicates": "first"},
        lambda a, b: plain([a, b.isel(t=slice(1, None))]),
    ),
    "overlapping, the last": (
        [part([0, 1]), part([1, 2])],
        r"duplicates='first' keeps the first of them\. Or duplicates='last' keeps the last of them$",
        {"duplicates": "last"},
        lambda a, b: plain([a.isel(t=slice(0, 1)), b]),
    ),
    "of two units, the first's": (
        [part([0]), part([1], units="km")],
        r"take the first file's with combine_options=\{'combine_attrs': 'override'\}",
        {"combine_options": {"combine_attrs": "override"}},
        lambda a, b: plain([a, b]),
    ),
    "of two units, converted": (
        [part([0]), part([1], units="km")],
        r"Convert one of them with preprocess=",
        {"preprocess": lambda ds: ds.assign(v=ds.v.assign_attrs(units="m"))},
        lambda a, b: plain([a, b]),
    ),
    "not the same, left out": (
        [part([0]), part([1], k=4.0)],
        r"Or leave it out with drop_variables=\['k'\]$",
        {"drop_variables": "k"},
        lambda a, b: plain([a.drop_vars("k"), b.drop_vars("k")]),
    ),
    "not the same, joined": (
        [part([0]), part([1], k=4.0)],
        r"\. Join it along 't' too with combine_options=\{'data_vars': \['k'\]\}\. Or leave it out",
        {"combine_options": {"data_vars": ["k"]}},
        lambda a, b: plain([a.assign(k=a.k.expand_dims(t=a.t)), b.assign(k=b.k.expand_dims(t=b.t))]),
    ),
    "absent in one": (
        [part([0]), part([1]).drop_vars("k")],
        r"[Ll]eave it out with drop_variables",
        {"drop_variables": "k"},
        lambda a, b: plain([a.drop_vars("k"), b]),
    ),
}


@pytest.mark.parametrize("case", JOINING)
def test_files_that_do_not_join_do_with_the_remedy(tmp_path, case):
    """Each remedy of a message on files that do not join gives what xarray makes of the same."""
    parts, message, options, expected = JOINING[case]
    paths = []
    for i, made in enumerate(parts):
        paths.append(tmp_path / f"{i}.nc")
        made.to_netcdf(paths[-1], engine="netcdf4")
    with pytest.raises(CombineError, match=message):
        vs.open_virtual_mfdataset(paths)
    check_values(vs.open_virtual_mfdataset(paths, **options).virtual.open(), expected(*parts))


def test_a_source_of_another_length_is_in_the_store_that_is_written_again(tmp_path):
    """What refresh() leaves is taken by the remedy that its report names."""
    paths = [tmp_path / f"{i}.nc" for i in range(2)]
    for path, times in zip(paths, ([0, 1], [2, 3]), strict=True):
        part(times).to_netcdf(path, engine="netcdf4")
    url = str(tmp_path / "s.vstack")
    vs.open_virtual_mfdataset(paths).virtual.to_vstack(url)
    part([2]).to_netcdf(paths[1], engine="netcdf4")
    ((_, reason),) = vs.Repository.open(url).refresh().left
    assert reason.endswith("write the store again, from all of its files, with vds.virtual.to_vstack(..., mode='w')")
    vs.open_virtual_mfdataset(paths).virtual.to_vstack(url, mode="w")
    check_values(xr.open_dataset(url, engine="virtualstack"), plain([part([0, 1]), part([2])]))


# -- each alternative that a message names --------------------------------------------------------------------


def follow_each(call, *takes):
    """Call with each alternative that the message of an error names, and give the options with what they give."""
    names = {name for function in takes for name in signature(function).parameters}
    with pytest.raises(VirtualStackError) as caught:
        call()
    alternatives = options_named(str(caught.value), names)
    assert alternatives, caught.value
    return [(options, call(**options)) for options in alternatives]


def test_kinds_of_grib_fields_are_chosen_as_the_message_says(tmp_path):
    """Fields of two versions: as a dimension, or one of them; values are those of cfgrib."""
    *_, path = vs.sample.analyses(tmp_path)
    (by_dim, both), (by_filter, one) = follow_each(
        lambda **options: vs.open_virtual_dataset(path, **options), vs.open_virtual_dataset
    )
    assert by_dim["reader"].extra_dims == ("expver",)
    for version in ("0001", "0005"):
        keys = {"filter_by_keys": {"expver": version}, "indexpath": ""}
        with xr.open_dataset(path, engine="cfgrib", backend_kwargs=keys) as expected:
            np.testing.assert_array_equal(both.virtual.open()["t"].sel(expver=version), expected["t"])
            if by_filter["reader"].filter_by_keys == {"expver": version}:
                np.testing.assert_array_equal(one.virtual.open()["t"], expected["t"])


def test_times_that_are_no_dates_stay_numbers(tmp_path):
    """With ``decode_times=False``, as with the netCDF engine of xarray."""
    time = ("f8", "time", [0, 1], {"units": "days since 2000-01-01 25:99"})
    path = netcdf4_file(tmp_path / "t.nc", {"time": 2}, {"time": time})
    named = follow_each(lambda **options: vs.open_virtual_dataset(path, **options), vs.open_virtual_dataset)
    for options, found in named:
        assert options == {"decode_times": False}
        xr.testing.assert_identical(found, netcdf4_dataset(path, **options))


def test_the_group_that_a_warning_names_is_opened(tmp_path):
    """A file whose variables lie in a group says so."""
    path = vs.sample.plain_hdf5(tmp_path)[0]
    with pytest.warns(UserWarning, match="no variables") as caught:
        vs.open_virtual_dataset(path)
    (options,) = options_named(str(caught[0].message), signature(vs.open_virtual_dataset).parameters)
    found = vs.open_virtual_dataset(path, **options).virtual.open()
    with xr.open_dataset(path, engine="netcdf4", **options) as expected:
        check_values(found, expected)


@pytest.mark.parametrize(("asked", "named"), [("zarr", "kerchunk"), ("zarr", "vstack")])
def test_a_reader_of_another_form_names_the_right_one(tmp_path, asked, named):
    """References and a vstack are folders of keys like a zarr store."""
    path = netcdf4_file(tmp_path / "x.nc", {"x": 2}, {"v": ("i2", "x", [1, 2])})
    vds, target = vs.open_virtual_dataset(path), tmp_path / "target.parq"
    (vds.virtual.to_vstack if named == "vstack" else vds.virtual.to_kerchunk)(target)

    def open_it(reader=asked):
        return vs.open_virtual_dataset(target, reader=reader)

    ((options, found),) = follow_each(open_it, open_it)
    assert options == {"reader": named}
    np.testing.assert_array_equal(found.virtual.open()["v"], [1, 2])


# -- the command ----------------------------------------------------------------------------------------------


def run_to_its_remedy(arguments, remedy, capsys):
    """Run a command that fails, and again with the options that its message names."""
    assert main(arguments) == 1
    said = capsys.readouterr().err
    options = re.search(remedy, said)
    assert options is not None, said
    assert main([*arguments, *shlex.split(options[0])]) == 0, capsys.readouterr().err
    return said


def test_the_command_names_its_own_options_for_variables(tmp_path, capsys):
    """Variables that cannot be referenced are left out by the options that the message of `build` names."""
    path = odd_file(tmp_path / "odd file.nc", n=7)
    target = str(tmp_path / "refs.json")
    said = run_to_its_remedy(["build", str(path), "-o", target], r"--drop-variable x0 .*--drop-variable x6", capsys)
    assert "--unsupported skip" in said
    assert "drop_variables" not in said
    with xr.open_dataset(path, engine="netcdf4", drop_variables=[f"x{i}" for i in range(7)]) as expected:
        check_values(xr.open_dataset(target, engine="virtualstack"), expected)


def test_convert_has_the_options_that_it_names(tmp_path, capsys):
    """So has `convert`, which takes all groups."""
    path, target = odd_file(tmp_path / "odd.nc", n=2), str(tmp_path / "refs.json")
    run_to_its_remedy(["convert", str(path), target], r"(--drop-variable [^\s,]+ ?)+", capsys)
    assert list(xr.open_dataset(target, engine="virtualstack")) == ["fine"]


@pytest.mark.parametrize("command", ["build", "convert"])
def test_the_command_takes_the_inline_limit_that_it_names(tmp_path, command, capsys):
    """Strings of more than 1 MiB are put into the references with the option that the message names."""
    path, target = tmp_path / "text.h5", str(tmp_path / "refs.json")
    with h5py.File(path, "w") as file:
        file["text"] = np.array(["x" * 1000] * 2000, object)
    arguments = ["build", str(path), "-o", target] if command == "build" else ["convert", str(path), target]
    run_to_its_remedy(arguments, r"--inline-limit \d+", capsys)
    assert list(xr.open_dataset(target, engine="virtualstack")["text"].values) == ["x" * 1000] * 2000


@pytest.mark.parametrize(("dim", "first", "far"), [("x", 0.0, 1e-7), ("day", np.datetime64("2020-01-01"), 1000)])
def test_the_command_takes_the_tolerance_that_it_names(tmp_path, dim, first, far, capsys):
    """Of numbers and of times."""
    paths = []
    for i in range(2):
        paths.append(str(tmp_path / f"{i}.nc"))
        if dim == "x":
            labels = np.arange(3.0) + far / 3 * i
        else:
            labels = first + np.arange(3) * np.timedelta64(1, "D") + i * np.timedelta64(far, "ms")
        made = xr.Dataset({"v": (("time", dim), np.full((1, 3), i + 0.5))}, {"time": [float(i)], dim: labels})
        encoding = {dim: {"units": "seconds since 2020-01-01", "dtype": "f8"}} if dim == "day" else {}
        made.to_netcdf(paths[-1], engine="netcdf4", unlimited_dims="time", encoding=encoding)
    target = str(tmp_path / "refs.json")
    run_to_its_remedy(["build", *paths, "-o", target], r"--tolerance ('[^']*'|\S+)", capsys)
    np.testing.assert_array_equal(xr.open_dataset(target, engine="virtualstack")["v"], [[0.5] * 3, [1.5] * 3])

"""Text that files store as characters: decided when a file is opened, as xarray decides it, and never again."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import netCDF4
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file, opened
from tests.joins import MINIMAL
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError, WriterError
from virtualstack.manifests import ManifestArray

FORMATS = ("NETCDF4", "NETCDF3_CLASSIC")
CONTENTS = ("text", "text and letters", "letters")


def write(path, *, kind="NETCDF4", encoding=None, contents="text", n=3, first=0, letters=3, **options):
    """Texts ``name(t, n)``, ``pair(t, y, n)``, ``title(n)``, one letter a row, and what makes letters of ``n``."""
    with netCDF4.Dataset(path, "w", format=kind) as file:
        for dim, size in {"t": n if kind == "NETCDF4" else None, "y": 2, "n": letters, "one": 1}.items():
            file.createDimension(dim, size)
        time = file.createVariable("t", "f8", ("t",))
        time[:] = np.arange(first, first + n)
        words = [f"{'abcdefghij'[(first + i) % 10] * (1 + i % letters)}" for i in range(2 * n)]
        chars = np.array(words, f"S{letters}").view("S1").reshape(2 * n, letters)
        for name, dims, values in (
            ("name", ("t", "n"), chars[:n]),
            ("pair", ("t", "y", "n"), chars.reshape(n, 2, letters)),
            ("title", ("n",), np.frombuffer(b"ab".ljust(letters, b"\0"), "S1")),
            ("grade", ("t", "one"), chars[:n, :1]),
            ("flag", (), np.array(b"f")),
        ):
            variable = file.createVariable(name, "S1", dims, **(options if dims else {}))
            if encoding is not None:
                variable.setncattr("_Encoding", encoding)
                variable.set_auto_chartostring(False)
            variable[...] = values
        file["pair"].coordinates = "name"
        if contents != "text":
            file.createVariable("w", "f4", ("n" if contents == "letters" else "one",))[:] = 1
        file.source = "test"
    return path


def check(virtual, expected):
    """The same values, dtypes, attributes, dims and coordinates."""
    found = virtual.virtual.open().load()
    xr.testing.assert_identical(found, expected)
    assert {k: x.dtype for k, x in found.variables.items()} == {k: x.dtype for k, x in expected.variables.items()}


@pytest.fixture(params=[(k, e, c) for k in FORMATS for e in (None, "utf-8") for c in CONTENTS], ids=str)
def path(request, tmp_path):
    kind, encoding, contents = request.param
    return write(tmp_path / "a.nc", kind=kind, encoding=encoding, contents=contents)


OPERATIONS = {
    "nothing": lambda ds: ds,
    "transpose": lambda ds: ds.transpose(),
    "some variables": lambda ds: ds[["pair", "title", "grade"]],
    "one variable": lambda ds: ds[["name"]],
    "drop": lambda ds: ds.drop_vars(["w", "t"], errors="ignore"),
    "stack": lambda ds: ds.stack(z=("t", "y"), create_index=False),
    "expand in front": lambda ds: ds.expand_dims(run=2),
    "expand behind": lambda ds: ds.map(lambda x: x.expand_dims(run=2, axis=-1)),
    "another variable with the dimension": lambda ds: ds.assign(v=("n", [1.0, 2, 3])),
    "a coordinate of the dimension": lambda ds: ds.assign_coords(n=[1, 2, 3]),
    "merge": lambda ds: xr.merge([ds, xr.Dataset({"v": ("n", [1.0, 2, 3])})]),
    "rename": lambda ds: ds.rename(t="n2"),
    "rows": lambda ds: ds.isel(t=[2, 0]),
    "reversed": lambda ds: ds.isel(t=slice(None, None, -1)),
    "one row": lambda ds: ds.isel(t=1),
    "concat": lambda ds: xr.concat([ds, ds.isel(t=[0])], "t", **MINIMAL),
    "concat along a new one": lambda ds: xr.concat([ds, ds], "run", data_vars="all", coords="all"),
    "construct": lambda ds: ds.drop_vars("t").coarsen(t=3).construct(t=("a", "b")),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_are_those_on_the_decoded_file(path, operation):
    change = OPERATIONS[operation]
    expected = change(opened(path))
    for unpack in (False, True):
        virtual = change(vs.open_virtual_dataset(path, unpack=unpack))
        assert isinstance(virtual.variables["title" if "title" in virtual else "name"]._data, ManifestArray)
        check(virtual, expected)


@pytest.mark.parametrize("dropped", ["w", "t", ["w", "pair"]])
def test_dropped_variables_count_as_xarray_has_it(path, dropped, tmp_path):
    """Letters stay letters without the variable that makes them so, in a cache and by the engine too."""
    expected = opened(path, drop_variables=dropped)
    check(vs.open_virtual_dataset(path, drop_variables=dropped), expected)
    for _ in range(2):
        found = vs.open_virtual_mfdataset(
            [path], drop_variables=dropped, cache=tmp_path / "cache", combine="nested", concat_dim="t"
        )
        for name in expected.variables:
            xr.testing.assert_identical(found.virtual.open()[name].load().variable, expected[name].variable)
    with xr.open_dataset(path, engine="virtualstack", drop_variables=dropped) as found:
        xr.testing.assert_identical(found.load(), expected)


def test_loaded_variables_are_the_same(path):
    expected = opened(path)
    names = ["name", "pair", "title", "grade", "flag", "t"]
    for change in (lambda ds: ds, lambda ds: ds.drop_vars("w", errors="ignore")):
        loaded = change(vs.open_virtual_dataset(path, loadable_variables=names))
        xr.testing.assert_identical(loaded.virtual.open().load(), change(expected))
        found = change(vs.open_virtual_dataset(path)).virtual.load(names[:3])
        assert not isinstance(found["pair"].variable._data, ManifestArray)
        xr.testing.assert_identical(found.virtual.open().load(), change(expected))


def test_the_engine_has_xarrays_rule(path):
    """Of the file, with its options; a virtual dataset has text for good."""
    for options in ({}, {"concat_characters": False}, {"concat_characters": {"name": False}}, {"decode_cf": False}):
        with xr.open_dataset(path, engine="virtualstack", **options) as found:
            xr.testing.assert_identical(found.load(), opened(path, **options))
    raw = vs.open_virtual_dataset(path).virtual.open(decode_cf=False)
    assert raw.flag.dtype == "S1"


@pytest.mark.parametrize("unpack", [False, True, "differing"])
@pytest.mark.parametrize("lengths", [(3, 3), (3, 5)])
@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_files_join_as_xarray_joins_them(tmp_path, unpack, lengths, encoding):
    """Also where texts are longer in one of them, and it is another format."""
    paths = [
        write(tmp_path / f"{i}.nc", kind=kind, encoding=encoding, letters=letters, first=3 * i)
        for i, (kind, letters) in enumerate(zip(FORMATS, lengths, strict=True))
    ]
    expected = xr.concat([opened(path) for path in paths], "t", **MINIMAL)
    joined = {"unpack": unpack, "combine_options": {"compat": "override"}}
    check(vs.open_virtual_mfdataset(paths, **joined), expected)
    check(xr.concat([vs.open_virtual_dataset(path) for path in paths], "t", **MINIMAL), expected)
    check(vs.open_virtual_mfdataset(paths, preprocess=lambda ds: ds.transpose(), **joined), expected.transpose())


def test_single_letters_are_stacked_along_a_new_dimension(tmp_path):
    """Three flags stay three flags."""
    paths = [write(tmp_path / f"{i}.nc") for i in range(3)]
    expected, virtual = (
        xr.concat([read(path)[["flag"]].drop_vars("name", errors="ignore") for path in paths], "run", data_vars="all")
        for read in (opened, vs.open_virtual_dataset)
    )
    check(virtual, expected)
    for write_it in (virtual.virtual.to_group, virtual.virtual.to_kerchunk):
        with pytest.raises(
            WriterError, match=r"'/flag' contains single characters along 'run'. .*assign_coords\(run=...\)"
        ):
            write_it()
    for advised in (virtual.assign_coords(run=[0, 1, 2]), virtual.assign(flag=virtual.flag.astype("S2"))):
        with xr.open_dataset(advised.virtual.to_kerchunk(), engine="virtualstack") as found:
            assert found.flag.values.tolist() == expected.flag.values.tolist()


@pytest.mark.parametrize("target", [None, "refs.json", "refs.parq"])
@pytest.mark.parametrize("engine", ["virtualstack", "kerchunk"])
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_references_read_as_the_file_does(tmp_path, target, engine, kind, encoding):
    path = write(tmp_path / "a.nc", kind=kind, encoding=encoding)
    for change in (lambda ds: ds, lambda ds: ds.transpose()):
        expected = change(opened(path)).drop_vars("grade")  # one letter each, where 't' has a coordinate
        virtual = change(vs.open_virtual_dataset(path)).drop_vars("grade")
        references = virtual.virtual.to_kerchunk(None if target is None else tmp_path / target)
        where = references if target is None else str(tmp_path / target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zarr, on dtypes without a specification
            with xr.open_dataset(where, engine=engine) as found:
                for name in expected.variables:
                    np.testing.assert_array_equal(found[name].values, expected[name].values)
                    assert found[name].dims == expected[name].dims


@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_zarr_reads_what_is_served(tmp_path, encoding):
    path = write(tmp_path / "a.nc", encoding=encoding, zlib=True, shuffle=True, fletcher32=True)
    expected = opened(path)
    store = vs.ManifestStore(vs.open_virtual_dataset(path).virtual.to_group())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with xr.open_dataset(store, engine="zarr", consolidated=False, zarr_format=3) as found:
            for name in expected.variables:
                np.testing.assert_array_equal(found[name].values, expected[name].values)
                assert found[name].dims == expected[name].dims


def test_trees_are_decided_group_by_group(tmp_path):
    path = write(tmp_path / "a.nc")
    with netCDF4.Dataset(path, "a") as file:
        group = file.createGroup("g")
        group.createDimension("k", 2)
        group.createVariable("name", "S1", ("t", "k"))[:] = np.array([[b"a", b"b"]] * 3)
        group.createVariable("w", "f4", ("k",))[:] = 0
        group.createVariable("code", "S1", ("t", "n"))[:] = np.array([[b"a", b"b", b"c"]] * 3)
    with xr.open_datatree(path, engine="netcdf4") as expected:
        expected.load()
    found = vs.open_virtual_datatree(path)
    xr.testing.assert_identical(found.virtual.open().load(), expected)
    found["g"] = xr.DataTree(found["g"].to_dataset(inherit=False).drop_vars("w"))
    assert found.virtual.open()["g/name"].dims == ("t", "k")
    both = vs.open_virtual_mfdatatree([path, path], combine="nested", concat_dim="t")
    assert both.virtual.open()["g/code"].values.tolist() == [b"abc"] * 6


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_without_rows_has_text_of_its_length(tmp_path, kind):
    path = netcdf4_file(tmp_path / "a.nc", {"t": None, "n": 3}, {"name": ("S1", "t n", None)}, kind=kind)
    check(vs.open_virtual_dataset(path), opened(path))
    check(vs.open_virtual_dataset(path).expand_dims(run=2), opened(path).expand_dims(run=2))


def test_text_of_no_length_is_empty(tmp_path):
    path = netcdf4_file(tmp_path / "a.nc", {"t": 3, "n": None}, {"name": ("S1", "t n", None)})
    for change in (lambda ds: ds, lambda ds: ds.expand_dims(run=2)):
        check(change(vs.open_virtual_dataset(path)), change(opened(path)))


def test_texts_that_lie_in_pieces_are_read(tmp_path):
    """Within ``inline_limit``; beyond it they are refused by name, with what to do."""
    paths = [write(tmp_path / f"{i}.nc", n=4, first=4 * i) for i in range(2)]
    for path in paths:
        with netCDF4.Dataset(path, "a") as file:
            file.createDimension("k", None)
            for name, chunks in {"split": (2, 2), "padded": (2, 8)}.items():
                variable = file.createVariable(name, "S1", ("t", "k"), chunksizes=chunks, zlib=True)
                variable[:] = np.array([[b"a", b"b", b"c"]] * 4)
    vds = vs.open_virtual_dataset(paths[0])
    check(vds, opened(paths[0]))
    check(vds.transpose(), opened(paths[0]).transpose())
    assert set(vds.virtual.report().query("state == 'inlined'")["variable"]) == {"split", "padded"}
    assert vs.open_virtual_mfdataset(paths).virtual.open()["split"].values.tolist() == [b"abc"] * 8
    message = r"'/(split|padded)' of '.*\.nc' .* as text: the characters of one text .*loadable_variables=\['\1'\]"
    for refuse in (
        lambda: vs.open_virtual_dataset(paths[0], inline_limit=4),
        lambda: vs.open_virtual_dataset(paths[0], unsupported="raise"),
        lambda: vs.open_virtual_mfdataset(paths, inline_limit=4),
        lambda: vs.open_virtual_datatree(paths[0], inline_limit=4),
    ):
        with pytest.raises(UnsupportedFeatureError, match=message):
            refuse()
    for skip in (
        lambda: vs.open_virtual_dataset(paths[0], inline_limit=4, unsupported="skip"),
        lambda: vs.open_virtual_mfdataset(paths, inline_limit=4, unsupported="skip"),
        lambda: vs.open_virtual_datatree(paths[0], inline_limit=4, unsupported="skip"),
    ):
        with pytest.warns(UserWarning, match=rf"left out: variable {message}"):
            found = skip()
        assert not {"split", "padded"} & set(found.variables)
        assert "name" in found.variables


def test_no_texts_that_lie_in_pieces_have_their_length(tmp_path):
    name = ("S1", "t n", None, {}, {"chunksizes": (1, 1)})
    path = netcdf4_file(tmp_path / "a.nc", {"t": None, "n": 3}, {"name": name})
    vds = vs.open_virtual_dataset(path)
    assert vds["name"].dtype == opened(path)["name"].dtype == "S3"
    check(vds, opened(path))
    vds.virtual.to_kerchunk(tmp_path / "a.json")
    assert xr.open_dataset(tmp_path / "a.json", engine="virtualstack")["name"].dtype == "S3"


def test_missing_letters_are_missing_texts(tmp_path):
    """A ``_FillValue`` is that of the text, as xarray has it."""
    path = write(tmp_path / "a.nc", fill_value=b"a")
    check(vs.open_virtual_dataset(path), opened(path))
    check(vs.open_virtual_dataset(path).transpose(), opened(path).transpose())


@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_what_is_opened_can_be_written_to_netcdf(tmp_path, encoding):
    """As characters, as it was."""
    path = write(tmp_path / "a.nc", encoding=encoding)
    found = vs.open_virtual_dataset(path).virtual.open().load()
    found.to_netcdf(tmp_path / "b.nc", engine="netcdf4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of xarray, on the length of texts that fill their dimension no more
        opened(path).to_netcdf(tmp_path / "c.nc", engine="netcdf4")
    xr.testing.assert_identical(opened(tmp_path / "b.nc"), opened(tmp_path / "c.nc"))
    with netCDF4.Dataset(tmp_path / "b.nc") as found, netCDF4.Dataset(tmp_path / "c.nc") as expected:
        for name in expected.variables:
            assert found[name].dtype == expected[name].dtype


def test_dropped_variables_of_groups_count_too(tmp_path):
    """Of the group that they are in, and of no other."""
    path = write(tmp_path / "a.nc")
    with netCDF4.Dataset(path, "a") as file:
        for name in ("g", "h"):
            group = file.createGroup(name)
            group.createVariable("code", "S1", ("t", "n"))[:] = np.array([[b"a", b"b", b"c"]] * 3)
            if name == "g":
                group.createVariable("w", "f4", ("n",))[:] = 0
    with xr.open_datatree(path, engine="netcdf4", drop_variables="w") as expected:
        expected.load()
    assert (expected["g/code"].dtype, expected["h/code"].dtype) == ("S1", "S3")
    found = vs.open_virtual_datatree(path, drop_variables="w")
    xr.testing.assert_identical(found.virtual.open().load(), expected)


@dataclass(frozen=True)
class Damaged:
    """Reads a file of which one variable must be dropped."""

    name: ClassVar[str] = "damaged"

    def read(self, url, storage, options):
        if "w" not in options.drop_variables:
            raise MalformedFileError(f"'{url}' has a damaged variable 'w'", url=url)
        return vs.readers.NetCDF3().read(url, storage, options)


def test_what_only_opens_without_a_variable_is_decided_without_it(tmp_path):
    path = write(tmp_path / "a.nc", kind="NETCDF3_CLASSIC", contents="letters")
    with pytest.raises(MalformedFileError, match="damaged variable 'w'"):
        vs.open_virtual_dataset(path, reader=Damaged())
    vds = vs.open_virtual_dataset(path, reader=Damaged(), drop_variables="w")
    assert vds.name.dtype == "S3"


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("encoding", [None, "utf-8"])
def test_labels_that_are_characters_are_loaded(tmp_path, kind, encoding):
    """They are a dimension coordinate as any other: netCDF-3 has no other texts."""
    parts = []
    for n, labels in enumerate((["a", "cc"], ["b", "dd"])):
        ds = xr.Dataset({"v": ("station", [n, n + 0.5])}, {"station": np.array(labels, "S")})
        ds["station"].encoding = {"char_dim_name": "letters"}
        if encoding:
            ds = ds.assign_coords(station=np.array(labels, "U"))
            ds["station"].encoding = {"dtype": "S1", "char_dim_name": "letters"}
        ds.to_netcdf(tmp_path / f"{n}.nc", format=kind)
        parts.append(xr.load_dataset(tmp_path / f"{n}.nc"))
    vds = vs.open_virtual_dataset(tmp_path / "0.nc")
    xr.testing.assert_identical(vds.virtual.open().load(), parts[0])
    assert vds.indexes["station"].equals(parts[0].indexes["station"])
    vds.virtual.to_vstack(tmp_path / "x.vstack")
    vs.Repository.open(tmp_path / "x.vstack").update(tmp_path / "1.nc", dim="station")
    wanted = xr.concat(parts, "station", data_vars="minimal").sortby("station")
    with xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack") as cube:
        xr.testing.assert_equal(cube, wanted)

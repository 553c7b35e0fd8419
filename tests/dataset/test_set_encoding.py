"""Edits of CF attributes: what xarray decodes from the stored numbers by the attributes that there are now."""

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.data.netcdf4 import netcdf4_file
from virtualstack.errors import CombineError, WriterError

pytestmark = pytest.mark.filterwarnings("ignore")

FORMS = {
    "f4": {"_FillValue": np.float32(-1), "scale_factor": np.float32(0.5), "long_name": "x"},
    "i2": {"_FillValue": np.int16(-1), "scale_factor": 0.5, "add_offset": 1.0, "long_name": "x"},
    "i1": {"_Unsigned": "true", "units": "days since 2000-01-01", "calendar": "standard"},
    "i4": {"missing_value": np.int32(-9), "long_name": "x"},
    "f8": {},
}


def write(path, dtype, start=0, **attributes):
    values = np.array([[1, 2, -9], [100, -1, 7]], dtype)
    a = (dtype, "t x", values, attributes, {"chunksizes": (1, 3)})
    return str(netcdf4_file(path, {"t": None, "x": 3}, {"t": ("i4", "t", [start, start + 1]), "a": a}))


def said(key, value, way):
    """Give a function that edits a dataset, virtual or raw: in ``attrs``, in ``encoding`` or by ``set_encoding``."""

    def edit(dataset):
        if way == "set_encoding":
            return dataset.virtual.set_encoding({"a": {key: value}})
        if way == "encoding":
            dataset.a.encoding[key] = value
        elif value is None:
            dataset.a.attrs.pop(key, None)
        else:
            dataset.a.attrs[key] = value
        return dataset

    return edit


def expected_of(paths, key, value):
    """Decode what xarray reads undecoded, with the edit, each file by itself."""
    decoded = []
    for path in paths:
        with xr.open_dataset(path, decode_cf=False) as raw:
            decoded.append(xr.decode_cf(said(key, value, "attrs")(raw.load())))
    return xr.concat(decoded, "t")


def joined(paths, edit, how):
    if how == "preprocess":
        return vs.open_virtual_mfdataset(paths, preprocess=edit)
    opened = [vs.open_virtual_dataset(path) for path in paths]
    return xr.concat([edit(x) for x in opened], "t") if how == "before" else edit(xr.concat(opened, "t"))


def read(vds, target, folder):
    if target == "load":
        return vds.virtual.load(["a"]).a.load()
    if target == "open":
        return vds.virtual.open().a.load()
    url = str(folder / target)
    vds.virtual.to_vstack(url) if target.endswith("vstack") else vds.virtual.to_kerchunk(url)
    with xr.open_dataset(url, engine="virtualstack") as found:
        return found.a.load()


@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_edits_decode_as_with_xarray(tmp_path_factory, data):
    """Added, changed or taken away; for one file or two, before or after they are joined, through each target."""
    folder = tmp_path_factory.mktemp("edits")
    dtype = data.draw(st.sampled_from(sorted(FORMS)))
    own = FORMS[dtype]
    edits = {
        "_FillValue": np.dtype(dtype).type(-9),
        "missing_value": np.dtype(dtype).type(7),
        "scale_factor": 0.25,
        "add_offset": 3.0,
        "_Unsigned": "true",
        "units": "hours since 1990-01-01",
    }
    edits = [*edits.items(), *((key, None) for key in own if key != "long_name")]
    key, value = data.draw(st.sampled_from(edits))
    way = data.draw(st.sampled_from(["attrs", "encoding", "set_encoding"]))
    how = data.draw(st.sampled_from(["preprocess", "before", "after"]))
    target = data.draw(st.sampled_from(["open", "load", "a.json", "a.parq", "a.vstack"]))
    paths = [write(folder / f"{i}.nc", dtype, 2 * i, **own) for i in range(data.draw(st.integers(1, 2)))]
    expected = expected_of(paths, key, value).a
    found = read(joined(paths, said(key, value, way), how), target, folder)
    np.testing.assert_array_equal(found.values, expected.values)
    if target not in ("a.json", "a.parq"):  # JSON has no float32
        assert found.dtype == expected.dtype


def test_the_only_attribute_can_be_deleted(tmp_path):
    """Nothing is left in ``attrs`` then, and numbers are values as they are stored."""
    paths = [write(tmp_path / f"{i}.nc", "i4", 2 * i, missing_value=np.int32(-9)) for i in range(2)]
    for vds in (
        said("missing_value", None, "attrs")(vs.open_virtual_dataset(paths[0])),
        vs.open_virtual_mfdataset(paths, preprocess=said("missing_value", None, "attrs")),
        xr.concat([vs.open_virtual_dataset(x) for x in paths], "t").virtual.set_encoding(
            {"a": {"missing_value": None}}
        ),
    ):
        found = vds.virtual.open().a
        assert found.dtype == "i4"
        assert found.values[0].tolist() == [1, 2, -9]


@pytest.mark.parametrize(
    "change",
    [
        lambda a, b: xr.combine_nested([a, b], "t"),
        lambda a, b: xr.combine_by_coords([a, b]),
        lambda a, b: xr.concat([a, b], "t", combine_attrs="drop"),
        lambda a, b: xr.concat([a, b], "t", combine_attrs="drop_conflicts"),
        lambda a, _: a.where(a.t > 0),
        lambda a, _: a[["a"]].to_dataarray().isel(variable=0, drop=True).to_dataset(name="a"),
        lambda a, _: a.drop_attrs().drop_encoding(),
    ],
    ids=["nested", "by coords", "drop", "drop conflicts", "where", "to_dataarray", "drop_attrs"],
)
def test_set_encoding_holds_whatever_xarray_drops(tmp_path, change):
    """xarray drops attributes or encodings here, and with them what was edited there; ``set_encoding`` stays."""
    paths = [write(tmp_path / f"{i}.nc", "i2", 2 * i, **FORMS["i2"]) for i in range(2)]
    edits = {"scale_factor": 3.0, "_FillValue": np.int16(7)}
    decoded = []
    for path in paths:
        with xr.open_dataset(path, decode_cf=False) as raw:
            raw.load().a.attrs.update(edits)
            decoded.append(xr.decode_cf(raw))
    found = change(*(vs.open_virtual_dataset(path).virtual.set_encoding({"a": edits}) for path in paths))
    np.testing.assert_array_equal(found.virtual.open().a.values, change(*decoded).a.values)


def test_files_of_which_one_has_a_wrong_attribute_join_once_it_is_mended(tmp_path):
    """The error of ``xr.concat`` names ``set_encoding``, which works; so does ``preprocess=``."""
    paths = [write(tmp_path / "0.nc", "i2", scale_factor=0.5), write(tmp_path / "1.nc", "i2", 2, scale_factor=50.0)]
    wrong = vs.open_virtual_dataset(paths[1])
    with pytest.raises(CombineError, match=r"scale_factor = .*set_encoding\("):
        xr.concat([vs.open_virtual_dataset(paths[0]), wrong], "t")
    mended = wrong.virtual.set_encoding({"a": {"scale_factor": 0.5}})
    expected = expected_of(paths, "scale_factor", 0.5).a
    xr.testing.assert_equal(xr.concat([vs.open_virtual_dataset(paths[0]), mended], "t").virtual.open().a, expected)

    def fix(dataset):
        dataset.a.attrs["scale_factor"] = 0.5
        return dataset

    opened = [vs.open_virtual_dataset(paths[0]), fix(vs.open_virtual_dataset(paths[1]))]
    for vds in (
        vs.open_virtual_mfdataset(paths, preprocess=fix),
        vs.open_virtual_mfdataset(opened),
        vs.combine_datasets(opened),
    ):
        xr.testing.assert_equal(vds.virtual.open().a, expected)


def test_set_encoding_of_a_loaded_time_reads_its_numbers_otherwise(tmp_path):
    """The index follows, and so do bounds that have no units of their own."""
    path = tmp_path / "a.nc"
    with netCDF4.Dataset(path, "w") as file:
        file.createDimension("time", 2)
        file.createDimension("n", 2)
        time = file.createVariable("time", "i4", ("time",))
        time.setncatts({"units": "days since 2000-01-01", "bounds": "time_bnds"})
        time[:] = [0, 24]
        file.createVariable("time_bnds", "i4", ("time", "n"))[:] = [[0, 24], [24, 48]]
    with xr.open_dataset(path, decode_cf=False) as raw:
        raw.time.attrs["units"] = "hours since 2000-01-01"
        expected = xr.decode_cf(raw.load())
    for loadable in (None, [], ["time", "time_bnds"]):
        vds = vs.open_virtual_dataset(path, loadable_variables=loadable)
        found = vds.virtual.set_encoding({"time": {"units": "hours since 2000-01-01"}})
        xr.testing.assert_equal(found.virtual.open().load(), expected)
    assert found.sel(time="2000-01-02").time.size == 1


def test_set_encoding_changes_what_chunks_were_unpacked_by(tmp_path):
    path = write(tmp_path / "a.nc", "i2", **FORMS["i2"])
    vds = vs.open_virtual_dataset(path, unpack=True)
    found = vds.virtual.set_encoding({"a": {"_FillValue": None, "scale_factor": 2.0}})
    with xr.open_dataset(path, decode_cf=False) as raw:
        del raw.a.attrs["_FillValue"]
        raw.a.attrs["scale_factor"] = 2.0
        expected = xr.decode_cf(raw.load())
    xr.testing.assert_equal(found.virtual.open().load(), expected)
    other = write(tmp_path / "b.nc", "i2", 2, scale_factor=0.25)
    both = xr.concat([vds, vs.open_virtual_dataset(other, unpack=True)], "t")
    with pytest.raises(WriterError, match=r"packed in several ways.*set_encoding for each file"):
        both.virtual.set_encoding({"a": {"scale_factor": 2.0}})


@pytest.mark.parametrize("edit", [{"scale_factor": 2.0}, {"_FillValue": np.int16(1)}, {"missing_value": 0.5}])
def test_the_encoding_of_an_unpacked_variable_only_describes_it(tmp_path, edit):
    """A part of joined files may have the encoding of another file, which must not decode its chunks."""
    paths = [write(tmp_path / f"{i}.nc", "i2", 2 * i, scale_factor=x) for i, x in enumerate((0.5, 0.25))]
    part = xr.concat([vs.open_virtual_dataset(path, unpack=True) for path in paths], "t").isel(t=[2, 3])
    assert part.a.encoding["scale_factor"] == 0.5
    xr.testing.assert_equal(part.virtual.open().load(), xr.load_dataset(paths[1]))
    part.a.encoding.update(edit)
    xr.testing.assert_equal(part.virtual.open().load(), xr.load_dataset(paths[1]))


def test_an_edited_encoding_counts_if_nothing_was_unpacked(tmp_path):
    vds = vs.open_virtual_dataset(write(tmp_path / "a.nc", "f4"), unpack=True)
    vds.a.encoding["_FillValue"] = vds.virtual.open().a.values[0, 0]
    assert np.isnan(vds.virtual.open().a.values[0]).tolist() == [True, False, False]


def test_set_encoding_of_a_tree_takes_paths(tmp_path):
    path = write(tmp_path / "a.nc", "i2", scale_factor=0.5)
    tree = xr.DataTree.from_dict({"/g": vs.open_virtual_dataset(path)})
    found = tree.virtual.set_encoding({"g/a": {"scale_factor": 2.0}})
    assert found.virtual.open()["g/a"].values[0].tolist() == [2, 4, -18]
    assert tree.virtual.open()["g/a"].values[0].tolist() == [0.5, 1, -4.5]


def test_an_error_in_a_tree_names_the_group(tmp_path):
    vds = vs.open_virtual_dataset(write(tmp_path / "a.nc", "i2", scale_factor=0.5))
    tree = xr.DataTree.from_dict({"/f": vds, "/g": vds})
    with pytest.raises(KeyError, match=r"no variable 'b'(.|\n)*in the group '/g'"):
        tree.virtual.set_encoding({"f/a": {"scale_factor": 2.0}, "g/b": {"scale_factor": 2.0}})
    with pytest.raises(KeyError, match=r"(.|\n)*in the group '/g'"):
        tree.virtual.load(["g/b"])


def test_what_is_no_attribute_of_stored_numbers_is_refused(tmp_path):
    vds = vs.open_virtual_dataset(write(tmp_path / "a.nc", "i2"))
    with pytest.raises(ValueError, match=r"\['dtype'\] of variable 'a' do not"):
        vds.virtual.set_encoding({"a": {"dtype": "f4"}})
    with pytest.raises(KeyError, match="no variable 'b'"):
        vds.virtual.set_encoding({"b": {"_FillValue": 0}})


def test_two_words_that_contradict_each_other_are_refused(tmp_path):
    vds = vs.open_virtual_dataset(write(tmp_path / "a.nc", "i2", scale_factor=0.5))
    vds.a.attrs["scale_factor"], vds.a.encoding["scale_factor"] = 2.0, 3.0
    with pytest.raises(WriterError, match=r"scale_factor = 2\.0 in its attributes and 3\.0 in its encoding"):
        vds.virtual.open()


def test_units_among_decoded_times_are_refused(tmp_path):
    """Of a loaded time, and of chunks that decode to times: the numbers are not there any more."""
    path = write(tmp_path / "a.nc", "i4", units="days since 2000-01-01")
    for options in ({"unpack": True}, {"loadable_variables": ["a"]}):
        vds = vs.open_virtual_dataset(path, **options)
        vds.a.attrs["units"] = "hours since 2000-01-01"
        with pytest.raises(WriterError, match=r"'a' .*set_encoding\("):
            vds.virtual.open()
        del vds.a.attrs["units"]
        mended = vds.virtual.set_encoding({"a": {"units": "hours since 2000-01-01"}})
        assert mended.virtual.open().a.values[0, 1] == np.datetime64("2000-01-01T02")


def test_elements_that_were_filled_in_do_not_become_values(tmp_path):
    """They hold what was missing when they were put in; saying it first works."""
    path = write(tmp_path / "a.nc", "i2", _FillValue=np.int16(-9), scale_factor=0.5)
    change = {"a": {"_FillValue": np.int16(-1)}}
    vds = vs.open_virtual_dataset(path)
    with pytest.raises(WriterError, match=r"would become values. Call vds.virtual.set_encoding for each file before"):
        vds.virtual.reindex(t=[0, 5]).virtual.set_encoding(change)
    found = vds.virtual.set_encoding(change).virtual.reindex(t=[0, 5]).virtual.open()
    np.testing.assert_array_equal(found.a.values[0], [0.5, 1, -4.5])
    assert np.isnan(found.a.values[1]).all()


@pytest.mark.parametrize("combine_attrs", ["drop", "drop_conflicts", "override"])
def test_units_that_differ_in_spelling_are_not_taken_away(tmp_path, combine_attrs):
    """xarray drops what files spell otherwise, which is not a word of the user's."""
    units = ["days since 2000-01-01", "days since 2000-01-01 00:00:00"]
    paths = [write(tmp_path / f"{i}.nc", "i4", 2 * i, units=x, long_name="x") for i, x in enumerate(units)]
    vds = xr.concat([vs.open_virtual_dataset(path) for path in paths], "t", combine_attrs=combine_attrs)
    expected = xr.concat([xr.load_dataset(path) for path in paths], "t")
    xr.testing.assert_equal(vds.virtual.open().load(), expected)


@pytest.mark.parametrize("n", [1, 0])
@pytest.mark.parametrize("attributes", [{"scale_factor": np.float32(0.5)}, {"_Unsigned": "true"}])
def test_the_packing_of_a_file_without_chunks_is_no_edit_of_the_next_file(tmp_path, attributes, n):
    """No value was written in the first file, or none of its records is taken."""
    paths = [write(tmp_path / "0.nc", "i1", **attributes), write(tmp_path / "1.nc", "i1", 2)]
    with netCDF4.Dataset(paths[0], "w") as file:
        file.createDimension("t", None)
        file.createDimension("x", 3)
        file.createVariable("t", "i4", ("t",))[:] = [0, 1]
        file.createVariable("a", "i1", ("t", "x"), chunksizes=(1, 3)).setncatts(attributes)
    virtual = [vs.open_virtual_dataset(path, unpack=True) for path in paths]
    eager = [xr.load_dataset(path) for path in paths]
    found, expected = (xr.concat([x.isel(t=slice(n)), y], "t") for x, y in (virtual, eager))
    xr.testing.assert_identical(found.virtual.open().load(), expected)

"""Values of small virtual arrays: read when they are needed, and never when references answer the question."""

import io
import json

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.latency_server import LatencyServer
from virtualstack.errors import ForbiddenLocationError, VirtualValuesError
from virtualstack.manifests import ManifestArray

VALUES = {
    "height": ((), np.float64(2.0)),
    "v": (("y", "x"), np.arange(6, dtype="f4").reshape(2, 3)),
    "holed": (("y", "x"), np.array([[1, np.nan, 3], [4, 5, np.nan]], "f4")),
    "flag": (("x",), np.array([1, 0, 3], "i2")),
    "word": (("y",), np.array(["ab", "c"], object)),
}
ENCODING = {
    "holed": {"_FillValue": np.float32(-9)},
    "packed": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9},
    "day": {"units": "days since 2000-01-01", "dtype": "i4"},
}


def write(path, add=0):
    """A file of variables that are read alike, and of two that attributes unpack."""
    made = xr.Dataset(VALUES)
    made["packed"] = ("x", [1.5, np.nan, 3 + add])
    made["day"] = ("x", np.array(["2000-01-01", "2000-01-02", "2000-01-04"], "M8[ns]"))
    made["v"] = made["v"] + np.float32(add)
    made.to_netcdf(path, engine="netcdf4", encoding=ENCODING)
    return path


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "a.nc")


def opened(path, **options):
    return vs.open_virtual_dataset(path, loadable_variables=[], **options)


@pytest.fixture
def reads(monkeypatch):
    """The names of the variables that are read from now on."""
    import virtualstack.reading as reading

    names, read = [], reading.read_array
    monkeypatch.setattr(
        reading,
        "read_array",
        lambda array, *more, **options: (names.append(array.name), read(array, *more, **options))[1],
    )
    return names


QUESTIONS = {
    "float": lambda ds: float(ds.height),
    "int": lambda ds: int(ds.flag[0]),
    "bool": lambda ds: bool(ds.flag[0] == 1),
    "format": lambda ds: f"{ds.height:.3f}",
    "item": lambda ds: ds.v[1, 2].item(),
    "values": lambda ds: ds.v.values.tolist(),
    "asarray": lambda ds: np.asarray(ds.v, "f8").tolist(),
    "contains": lambda ds: 3 in ds.v,
    "equals a number": lambda ds: (ds.v == 3).values.tolist(),
    "differs": lambda ds: (ds.v != ds.v.values).values.tolist(),
    "compared": lambda ds: (ds.v > 2).values.tolist(),
    "arithmetic": lambda ds: (1 - ds.v * 2).values.tolist(),
    "mean": lambda ds: ds.v.mean().item(),
    "mean without missing": lambda ds: ds.holed.mean("x").values.tolist(),
    "count": lambda ds: ds.holed.count().item(),
    "isnull": lambda ds: {
        k: int(v.isnull().sum()) for k, v in ds.items() if v.dtype.kind != "M" and "units" not in v.attrs
    },
    "fillna": lambda ds: np.asarray(ds.holed.isnull()).tolist(),
    "argsort": lambda ds: ds.v.argsort().values.tolist(),
    "round": lambda ds: ds.v.round().values.tolist(),
    "real": lambda ds: ds.v.real.values.tolist(),
    "text": lambda ds: ds.word.values.tolist(),
    "sum of numpy": lambda ds: float(np.sum(ds.v.data)),
    "where": lambda ds: [x.tolist() for x in np.where(ds.flag.data)],
    "select": lambda ds: ds.v.values[np.asarray(ds.flag.data[:2]) > 0].tolist(),
    "groupby": lambda ds: ds.v.groupby(ds.flag > 0).mean().values.tolist(),
    "equals": lambda ds: ds.v.equals(ds.v.copy(data=ds.v.values)),
    "identical": lambda ds: ds[["v", "flag"]].identical(ds[["v", "flag"]] * 1),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_small_array_answers_as_the_file_does(path, question):
    """Its values are those of xarray."""
    with xr.open_dataset(path, engine="netcdf4") as expected:
        assert QUESTIONS[question](opened(path)) == QUESTIONS[question](expected.load())


def test_missing_dates_are_not_counted_as_they_are_stored(tmp_path):
    """xarray keeps the units of the stored numbers, and the counts would be read as dates; the advice gives counts."""
    made = xr.Dataset({"day": ("x", np.array(["2001-01-01", "NaT", "2001-01-03"], "M8[ns]"))})
    made.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    vds = vs.open_virtual_dataset(tmp_path / "a.nc")
    for question in (lambda ds: ds.count(), lambda ds: ds.isnull().astype(int), lambda ds: (ds == ds).sum()):
        with pytest.raises(VirtualValuesError, match="unpack=True"):
            question(vds)
        counts = question(vs.open_virtual_dataset(tmp_path / "a.nc", unpack=True))
        xr.testing.assert_equal(counts.virtual.open().load(), question(made))


def test_numbers_in_units_of_time_are_values(tmp_path):
    """xarray leaves them numbers."""
    made = xr.Dataset({"lead": ("x", [1.0, 2.0], {"units": "hours"})})
    made.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    assert (
        vs.open_virtual_dataset(tmp_path / "a.nc").lead.mean() == xr.load_dataset(tmp_path / "a.nc").lead.mean() == 1.5
    )


def test_a_missing_value_does_not_equal_itself(tmp_path):
    """As in numpy, also where references prove that both arrays are the same; `equals` of xarray holds."""
    made = xr.Dataset({"v": ("x", [1.0, np.nan, 3.0])})
    made.to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    one, two = (vs.open_virtual_dataset(tmp_path / "a.nc") for _ in range(2))
    for a, b in ((one, one), (one, two)):
        assert (a.v == b.v).values.tolist() == (made.v == made.v).values.tolist() == [True, False, True]
        assert (a.v != b.v).values.tolist() == [False, True, False]
        assert a.v.where(a.v == b.v, 0).values.tolist() == [1, 0, 3]
        assert a.equals(b)
        assert not (a.v == b.v).all()


def test_missing_packed_numbers_and_dates_are_missing(tmp_path):
    """Of two files that pack alike, no missing value equals another; xarray writes NaT as a number."""
    day = np.array(["2001-01-01", "NaT", "2001-01-03"], "M8[ns]")
    files = []
    for name, last in (("a", 3.0), ("b", 5.0)):
        made = xr.Dataset({"p": ("x", [1.0, np.nan, last]), "day": ("x", day)})
        packing = {"p": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -9}}
        made.to_netcdf(tmp_path / f"{name}.nc", encoding=packing, engine="netcdf4")
        files.append(vs.open_virtual_dataset(tmp_path / f"{name}.nc"))
    one, two = files
    assert (one.p == two.p).values.tolist() == [True, False, False]
    assert not one.p.equals(two.p)
    assert one.day.equals(two.day)
    assert one.day.isnull().any()
    assert not one.day.notnull().all()


def test_comparisons_that_references_prove_read_nothing(path, reads):
    """Also questions about missing values of the same arrays."""
    one, other = opened(path), opened(path)
    assert one.equals(other)
    assert one.identical(other.copy(deep=True))
    xr.merge([one, other], compat="no_conflicts")
    xr.concat([one, other], "n", data_vars="different", compat="equals", coords="minimal")
    assert not one.flag.isnull().any()
    assert not reads
    assert float(one.height) == float(one.height) == 2
    assert reads == ["/height"]  # once


def test_arrays_of_two_files_are_compared_by_their_values(tmp_path, path):
    """Packed numbers of one meaning too."""
    same, other = opened(write(tmp_path / "b.nc")), opened(write(tmp_path / "c.nc", add=1))
    one = opened(path)
    assert one.equals(same)
    assert not one.v.equals(other.v)
    assert not one.packed.equals(other.packed)
    assert xr.merge([one, same], compat="no_conflicts").equals(one)
    with pytest.raises(xr.MergeError):
        xr.merge([one, other], compat="no_conflicts")
    joined = xr.concat([one, other], "n", data_vars="different", compat="equals", coords="minimal")
    assert sorted(name for name, x in joined.data_vars.items() if "n" in x.dims) == ["packed", "v"]
    assert all(isinstance(x.variable._data, ManifestArray) for x in joined.data_vars.values())


@pytest.mark.parametrize(
    "question", [np.asarray, lambda x: x + 1, lambda x: x.mean(), lambda x: x == 1, lambda x: x[0].item()]
)
@pytest.mark.parametrize("name", ["packed", "day"])
def test_packed_numbers_are_no_values(path, name, question):
    """Their data type and attributes are those of stored numbers; unpack=True gives values."""
    with pytest.raises(VirtualValuesError, match=rf"'/{name}' is virtual: .* packed by \[.*unpack=True"):
        question(opened(path)[name])
    question(opened(path, unpack=True)["packed"])


@pytest.mark.usefixtures("large")
def test_many_values_are_not_read(path, tmp_path):
    """The error says which argument of a join decides."""
    with pytest.raises(
        VirtualValuesError, match=r"'/v' is virtual: its values are used. It has 24 B, more than is read"
    ):
        np.asarray(opened(path).v)
    with pytest.raises(VirtualValuesError, match=r"vs\.combine_datasets"):
        opened(path).equals(opened(write(tmp_path / "b.nc")))


def test_values_cannot_be_changed(path):
    """A change would be lost."""
    array = opened(path).v
    with pytest.raises(ValueError, match="read-only"):
        array.values[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        array.data.sort()


def test_loaded_and_virtual_variables_are_joined_with_values(path, tmp_path):
    """As if both were loaded."""
    one, other = (
        vs.open_virtual_dataset(path, loadable_variables=["v"])[["v"]],
        opened(write(tmp_path / "b.nc", 1))[["v"]],
    )
    with xr.open_dataset(path) as a, xr.open_dataset(tmp_path / "b.nc") as b:
        for dim in ("x", "n"):
            xr.testing.assert_identical(
                xr.concat([one, other], dim).load(), xr.concat([a[["v"]], b[["v"]]], dim).load()
            )


def test_values_are_read_by_the_access_of_the_array(path):
    """With its options, and no other."""
    vds = vs.open_virtual_dataset(io.BytesIO(path.read_bytes()), loadable_variables=[])
    path.unlink()
    assert float(vds.height) == 2


def test_a_document_that_may_not_be_read_gives_no_values(path):
    """References that came over a network name no local file: they have no array to ask."""
    references = opened(path)[["height"]].virtual.to_kerchunk()
    (path.parent / "refs.json").write_text(json.dumps(references))
    with LatencyServer(path.parent) as server, pytest.raises(ForbiddenLocationError):
        float(vs.open_virtual_dataset(server.url("refs.json"), loadable_variables=[]).height)


@pytest.mark.parametrize(
    "write_it",
    [
        lambda ds, to: ds.to_netcdf(to),
        lambda ds, to: ds.to_netcdf(to, engine="h5netcdf"),
        lambda ds, to: xr.save_mfdataset([ds], [to]),
        lambda ds, to: xr.DataTree.from_dict({"/g": ds}).to_netcdf(to),
        lambda ds, to: ds.v.to_netcdf(to),
    ],
)
def test_a_virtual_dataset_is_not_written_to_netcdf(path, tmp_path, write_it):
    """Nothing is created, and the error says what to call."""
    to = tmp_path / "y.nc"
    with pytest.raises(VirtualValuesError, match=r"vds\.virtual\.open\(\)\.to_netcdf"):
        write_it(opened(path), to)
    assert not to.exists()
    opened(path).virtual.open().to_netcdf(to)
    with xr.open_dataset(to) as found, xr.open_dataset(path) as expected:
        xr.testing.assert_identical(found.load(), expected.load())


def test_load_and_compute_leave_virtual_variables_virtual(path, reads):
    """xarray gives an array no call in which it could load itself; values come when they are needed."""
    for vds in (opened(path).load(), opened(path).compute(), xr.DataTree(opened(path)).load().to_dataset()):
        assert isinstance(vds.v.variable._data, ManifestArray)
        assert not vds.chunks
    assert not reads

"""HDF-EOS5: the StructMetadata names dimensions, where it does not contradict the file."""

import time

import h5py
import numpy as np
import pytest
import xarray as xr
from h5py import h5d

import virtualstack as vs
from tests.corpus.report import CORPUS
from tests.data.hdf5_parts import dataset_of, properties, text
from tests.formats.groups import CHECKED, group_of, reasons
from virtualstack.formats.hdf5.hdfeos import parse_structures
from virtualstack.readers import HDF5

SWATH = CORPUS / "hdf5" / "hdfeos_sample_swath.h5"


def dims(group):
    return {array.name: array.dimension_names for _, child in group.walk() for array in child.arrays.values()}


def odl(kind, name, sizes, fields, word="DataField"):
    """Write a section of StructMetadata as the HDF-EOS5 library lays it out."""
    lines = [f"GROUP={kind}Structure", f"\tGROUP={kind.upper()}_1", f'\t\t{kind}Name="{name}"']
    if kind == "Grid":
        lines += [f"\t\t{x}={sizes.pop(x)}" for x in ("XDim", "YDim") if x in sizes]
        lines += ["\t\tUpperLeftPointMtrs=(-180000000.000000,90000000.000000)", "\t\tProjection=HE5_GCTP_GEO"]
    lines.append("\t\tGROUP=Dimension")
    for n, (dim, size) in enumerate(sizes.items(), 1):
        lines += [f"\t\t\tOBJECT=Dimension_{n}", f'\t\t\t\tDimensionName="{dim}"', f"\t\t\t\tSize={size}"]
        lines.append(f"\t\t\tEND_OBJECT=Dimension_{n}")
    lines += ["\t\tEND_GROUP=Dimension", f"\t\tGROUP={word}"]
    for n, (field, names) in enumerate(fields.items(), 1):
        listed = ",".join(f'"{x}"' for x in names)
        lines += [f"\t\t\tOBJECT={word}_{n}", f'\t\t\t\t{word}Name="{field}"', "\t\t\t\tDataType=H5T_NATIVE_FLOAT"]
        lines += [f"\t\t\t\tDimList=({listed})", f"\t\t\t\tMaxdimList=({listed})", f"\t\t\tEND_OBJECT={word}_{n}"]
    lines += [f"\t\tEND_GROUP={word}", f"\tEND_GROUP={kind.upper()}_1", f"END_GROUP={kind}Structure"]
    return "\n".join(lines) + "\n"


def write(path, text, datasets, *, parts=1):
    """Write datasets by path and shape, and the text as fixed strings of one scalar each."""
    with h5py.File(path, "w") as file:
        step = -(-len(text) // parts)
        for n in range(parts):
            part = text[n * step : (n + 1) * step].encode()
            file[f"HDFEOS INFORMATION/StructMetadata.{n}"] = np.array(part, f"S{max(len(part), 1)}")
        for name, shape in datasets.items():
            file.create_dataset(f"HDFEOS/{name}", data=np.zeros(shape, "f4"))
    return path


@pytest.mark.skipif(not SWATH.exists(), reason=f"no corpus at {CORPUS}")
def test_a_swath_of_the_corpus_has_the_names_of_its_struct_metadata():
    """Written down from its text by hand; "Count" has 32 elements, and the text says 20."""
    data, swath = "/HDFEOS/SWATHS/Swath1/Data Fields", "/HDFEOS/SWATHS/Swath1"
    group = group_of(SWATH)
    assert dims(group) == {
        f"{data}/Count": ("phony_dim_0",),
        f"{data}/Density": ("GeoTrack",),
        f"{data}/Pressure": ("Res2tr",),
        f"{data}/Spectra": ("Bands", "Res2tr", "Res2xtr"),
        f"{data}/Temperature": ("GeoTrack", "GeoXtrack"),
        f"{data}/Test_string": ("GeoXtrack",),
        f"{swath}/Geolocation Fields/Latitude": ("GeoTrack", "GeoXtrack"),
        f"{swath}/Geolocation Fields/Longitude": ("GeoTrack", "GeoXtrack"),
        f"{swath}/Geolocation Fields/Time": ("GeoTrack",),
        f"{swath}/_INDEXMAP:IndxTrack,Res2tr": ("phony_dim_9",),
        "/HDFEOS INFORMATION/StructMetadata.0": (),
    }
    assert "axis 0 of length 32 is not 'GeoTrack' of 20" in reasons(group, "noted")[f"{data}/Count"]
    assert dims(group_of(SWATH, CHECKED)) == dims(group)


GRID = odl("Grid", "a b", {"XDim": 4, "YDim": 3, "Band": 2}, {"t": ("Band", "YDim", "XDim"), "x": ("XDim",)})
ZONAL = odl("Za", "Z", {"nLats": 3, "nTimes": -1}, {"T": ("nTimes", "nLats"), "Time": ("nTimes",)})
FIELDS = {"GRIDS/a b/Data Fields/t": (2, 3, 4), "GRIDS/a b/Data Fields/x": (4,)}
ZONAL_FIELDS = {"ZAS/Z/Data Fields/T": (7, 3), "ZAS/Z/Data Fields/Time": (7,)}


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_grids_and_zonal_averages_have_names(parts, tmp_path):
    """From text in several parts, cut anywhere; a dimension that grows has the length of its fields."""
    path = write(tmp_path / "x.h5", GRID + ZONAL + "END\n", FIELDS | ZONAL_FIELDS, parts=parts)
    group = group_of(path, CHECKED)
    assert dims(group)["/HDFEOS/GRIDS/a b/Data Fields/t"] == ("Band", "YDim", "XDim")
    assert dims(group)["/HDFEOS/GRIDS/a b/Data Fields/x"] == ("XDim",)
    assert dims(group)["/HDFEOS/ZAS/Z/Data Fields/T"] == ("nTimes", "nLats")
    assert dims(group)["/HDFEOS/ZAS/Z/Data Fields/Time"] == ("nTimes",)
    assert reasons(group, "noted") == {}
    with xr.open_datatree(path, engine="h5netcdf", phony_dims="sort") as theirs:
        ours = vs.open_virtual_datatree(path)
        for node in theirs.subtree:
            assert {k: v.shape for k, v in node.variables.items()} == {
                k: v.shape for k, v in ours[node.path].variables.items()
            }


def test_the_names_of_netcdf_are_an_option_away(tmp_path):
    """As `xr.open_dataset` has them."""
    path = write(tmp_path / "x.h5", GRID, FIELDS)
    group = "HDFEOS/GRIDS/a b/Data Fields"
    with xr.open_dataset(path, group=group, engine="netcdf4") as theirs:
        ours = vs.open_virtual_dataset(path, group=group, reader=HDF5(eos_dimensions=False))
        assert {k: v.dims for k, v in ours.variables.items()} == {k: v.dims for k, v in theirs.variables.items()}
        assert not any("Dim" in str(dim) for dim in ours.dims)


@pytest.mark.parametrize("layout", ["compact", "chunked", "variable length"])
def test_the_text_may_be_stored_otherwise(layout, tmp_path):
    """Such as files of h5py have it; the HDF5 library reads it."""
    path = write(tmp_path / "x.h5", "", FIELDS)
    with h5py.File(path, "a") as file:
        del file["HDFEOS INFORMATION/StructMetadata.0"]
        name = "HDFEOS INFORMATION/StructMetadata.0"
        if layout == "variable length":
            file.create_dataset(name, (1,), h5py.string_dtype("ascii"), data=GRID)
        elif layout == "chunked":
            file.create_dataset(name, data=np.array([GRID.encode()]), chunks=(1,), compression="gzip")
        else:
            raw = np.array(GRID.encode(), f"S{len(GRID) + 1}")
            dataset_of(file, name, text(len(GRID) + 1), (), properties(layout=(h5d.COMPACT,)), raw=raw)
    assert dims(group_of(path, CHECKED))["/HDFEOS/GRIDS/a b/Data Fields/t"] == ("Band", "YDim", "XDim")


def test_dimension_scales_go_before_the_struct_metadata(tmp_path):
    """A field with scales has their names; one without takes a scale that has the name and the length."""
    path = write(tmp_path / "x.h5", GRID, FIELDS)
    with h5py.File(path, "a") as file:
        fields = file["HDFEOS/GRIDS/a b/Data Fields"]
        fields.create_dataset("lon", data=np.arange(4.0)).make_scale("lon")
        fields.create_dataset("YDim", data=np.arange(3.0)).make_scale("YDim")
        fields["x"].dims[0].attach_scale(fields["lon"])
    found = dims(group_of(path, CHECKED))
    assert found["/HDFEOS/GRIDS/a b/Data Fields/x"] == ("lon",)
    assert found["/HDFEOS/GRIDS/a b/Data Fields/t"] == ("Band", "YDim", "XDim")
    assert list(vs.open_virtual_dataset(path, group="HDFEOS/GRIDS/a b/Data Fields")["t"].YDim.values) == [0, 1, 2]


def test_a_dimension_of_another_length_keeps_its_name_for_itself(tmp_path):
    """In the group, or above: the axis is numbered."""
    path = write(tmp_path / "x.h5", GRID, FIELDS)
    with h5py.File(path, "a") as file:
        file["HDFEOS/GRIDS/a b/Data Fields"].create_dataset("XDim", data=np.arange(9.0)).make_scale("XDim")
        file["HDFEOS/GRIDS"].create_dataset("YDim", data=np.arange(8.0)).make_scale("YDim")
    t = dims(group_of(path))["/HDFEOS/GRIDS/a b/Data Fields/t"]
    assert t[0] == "Band"
    assert all(name.startswith("phony_dim_") for name in t[1:])
    assert len(set(t)) == 3


CONTRADICTIONS = {
    "a rank": (GRID.replace('DimList=("XDim")', 'DimList=("YDim","XDim")'), "x", "has 2 for 1"),
    "a size": (GRID.replace("XDim=4", "XDim=5"), "x", "axis 0 of length 4 is not 'XDim' of 5"),
    "no size": (GRID.replace('DimList=("XDim")', 'DimList=("other")').replace("YDim=3", "YDim=0"), "", ""),
    "a name of ours": (GRID.replace("XDim", "phony_dim_0"), "x", "is not 'phony_dim_0'"),
    "a path": (GRID.replace("XDim", "X/Dim"), "x", "is not 'X/Dim'"),
    "two opinions": (GRID + GRID.replace('("XDim")', '("Band")'), "x", "several times"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_contradictions_are_noted(what, tmp_path):
    """The axis has no name then; values are as they are."""
    text, field, reason = CONTRADICTIONS[what]
    group = group_of(write(tmp_path / "x.h5", text, FIELDS), CHECKED)
    path = f"/HDFEOS/GRIDS/a b/Data Fields/{field}"
    if field:
        assert dims(group)[path][0].startswith("phony_dim_")
        assert reason in reasons(group, "noted")[path]
    else:
        assert dims(group)["/HDFEOS/GRIDS/a b/Data Fields/x"] == ("other",)
        assert reasons(group, "noted") == {}


def test_a_growing_dimension_of_two_lengths_has_no_name(tmp_path):
    """Nothing says which of them it means."""
    path = write(tmp_path / "x.h5", ZONAL, ZONAL_FIELDS | {"ZAS/Z/Data Fields/Time": (6,)})
    group = group_of(path)
    assert dims(group)["/HDFEOS/ZAS/Z/Data Fields/T"][1] == "nLats"
    assert dims(group)["/HDFEOS/ZAS/Z/Data Fields/Time"][0].startswith("phony_dim_")
    assert "'nTimes' of any size" in reasons(group, "noted")["/HDFEOS/ZAS/Z/Data Fields/Time"]


def test_one_dimension_twice_names_one_axis(tmp_path):
    """As netCDF-C never gives a variable one dimension twice."""
    text = odl("Swath", "S", {"n": 3}, {"covariance": ("n", "n")})
    found = dims(group_of(write(tmp_path / "x.h5", text, {"SWATHS/S/Data Fields/covariance": (3, 3)})))
    first, second = found["/HDFEOS/SWATHS/S/Data Fields/covariance"]
    assert first == "n"
    assert second.startswith("phony_dim_")


def test_others_of_the_same_length_take_no_name(tmp_path):
    """A length alone does not mean a dimension that the product gives a meaning."""
    path = write(tmp_path / "x.h5", GRID, FIELDS | {"GRIDS/a b/Data Fields/unknown": (4,)})
    assert dims(group_of(path))["/HDFEOS/GRIDS/a b/Data Fields/unknown"][0].startswith("phony_dim_")


def test_swaths_align_with_their_geolocation(tmp_path):
    """Fields of both groups compute with each other; an axis that may grow stays one."""
    sizes, data, geo = {"nTimes": 5, "nX": 4}, {"v": ("nTimes", "nX")}, {"Latitude": ("nTimes", "nX")}
    text = odl("Swath", "S", sizes, data) + odl("Swath", "S", sizes, geo, "GeoField")
    path = write(tmp_path / "x.h5", text, {"SWATHS/S/Geolocation Fields/Latitude": (5, 4)})
    with h5py.File(path, "a") as file:
        file.create_dataset("HDFEOS/SWATHS/S/Data Fields/v", data=np.ones((5, 4)), maxshape=(None, 4), chunks=(2, 4))
    group = group_of(path, CHECKED)
    assert dims(group)["/HDFEOS/SWATHS/S/Data Fields/v"] == ("nTimes", "nX")
    assert group["HDFEOS/SWATHS/S/Data Fields"].unlimited == {"nTimes"}
    assert group["HDFEOS/SWATHS/S/Data Fields"].dimensions == {"nTimes": 5, "nX": 4}
    tree = vs.open_virtual_datatree(path)["HDFEOS/SWATHS/S"]
    assert tree["Data Fields/v"].dims == tree["Geolocation Fields/Latitude"].dims


@pytest.mark.parametrize(
    ("stored", "reason"),
    [
        (np.float32(1), "not one text"),
        (np.array([b"a", b"b"]), "not one text"),
        (np.array(b"x" * (1 << 20) + b"yz"), "are not read"),
        (h5py.Empty("S5"), "no value"),
    ],
)
def test_what_is_no_text_is_noted(stored, reason, tmp_path):
    """The file opens as without it."""
    path = write(tmp_path / "x.h5", "", FIELDS)
    with h5py.File(path, "a") as file:
        del file["HDFEOS INFORMATION/StructMetadata.0"]
        file["HDFEOS INFORMATION/StructMetadata.0"] = stored
    group = group_of(path, CHECKED)
    assert reason in reasons(group, "noted")["/HDFEOS INFORMATION/StructMetadata.0"]
    assert dims(group)["/HDFEOS/GRIDS/a b/Data Fields/x"][0].startswith("phony_dim_")


def test_many_parts_are_bounded(tmp_path):
    """No more than a MiB is read of all of them."""
    path = write(tmp_path / "x.h5", "y" * 3_000_000, FIELDS, parts=3)
    assert "more than 1048576 bytes" in reasons(group_of(path), "noted")["/HDFEOS INFORMATION/StructMetadata.1"]


@pytest.mark.parametrize(
    "text", ["", "=", "==", "a=", '"', 'DimList=("a","b")', "Size=5", 'x="', "GROUP=(((((", "a b=c"]
)
def test_odd_text_says_nothing(text):
    """It is never an error."""
    assert parse_structures(text) == []


@pytest.mark.parametrize("text", ['"a=(', "((((", "a=a=", '"="', "DimList=(", 'SwathName="x"DimList=', "\t ", "GROUP="])
def test_hostile_text_takes_no_time(text):
    """A MiB of anything is gone through once."""
    started = time.process_time()
    parse_structures(text * ((1 << 20) // len(text)))
    assert time.process_time() - started < 10


def swath_of(path):
    """Return the values of the fields of the only swath by name, as h5py reads them."""
    with h5py.File(path) as file:
        (swath,) = file["HDFEOS/SWATHS"].values()
        return {name: field[...] for part in swath.values() for name, field in part.items()}


def test_the_only_swath_of_a_file_is_one_dataset(archive):
    """Data and geolocation share their dimensions; the values are those of h5py, in one file and in all."""
    paths = archive("hdfeos")
    opened = xr.open_dataset(paths[0], engine="virtualstack", mask_and_scale=False)
    joined = xr.open_mfdataset(
        paths, engine="virtualstack", concat_dim="nTimes", combine="nested", mask_and_scale=False
    )
    virtual = vs.open_virtual_mfdataset(paths, concat_dim="nTimes", combine="nested")
    assert set(opened.coords) == {"Latitude", "Longitude", "Time"}
    assert opened["ColumnAmountO3"].dims == opened["Latitude"].dims == ("nTimes", "nXtrack")
    parts = [swath_of(path) for path in paths]
    again = virtual.virtual.open(mask_and_scale=False)
    for name in parts[0]:
        np.testing.assert_array_equal(opened[name].values, parts[0][name])
        whole = np.concatenate([part[name] for part in parts])
        np.testing.assert_array_equal(joined[name].values, whole)
        np.testing.assert_array_equal(again[name].values, whole)


def test_several_swaths_are_named_and_each_opens_as_one_dataset(tmp_path):
    """The advice of the warning, followed."""
    names, sizes = ("A", "B"), {"t": 4, "x": 3}
    text = "".join(odl("Swath", name, sizes, {"v": ("t", "x")}) for name in names)
    text += "".join(odl("Swath", name, sizes, {"lat": ("t", "x")}, word="GeoField") for name in names)
    fields = {f"SWATHS/{n}/{f}": (4, 3) for n in names for f in ("Data Fields/v", "Geolocation Fields/lat")}
    path = write(tmp_path / "a.he5", text, fields)
    with pytest.warns(UserWarning, match=r"group '/' has no variables.*Open one of them with group='/HDFEOS/SWATHS/A'"):
        assert not vs.open_virtual_dataset(path).variables
    for found in (
        vs.open_virtual_dataset(path, group="/HDFEOS/SWATHS/A"),
        xr.open_dataset(path, group="/HDFEOS/SWATHS/A", engine="virtualstack"),
    ):
        assert list(found.data_vars) == ["v"]
        assert list(found.coords) == ["lat"]
        assert found["v"].dims == found["lat"].dims


def test_fields_of_one_name_or_with_other_lengths_stay_in_their_groups(tmp_path):
    """With a note; nothing takes the place of another field."""
    text = odl("Swath", "A", {"t": 4}, {"v": ("t",)})
    path = write(tmp_path / "a.he5", text, {"SWATHS/A/Data Fields/v": (4,), "SWATHS/A/Geolocation Fields/v": (3,)})
    vds = vs.open_virtual_dataset(path)
    assert dict(vds.sizes) == {"t": 4}
    assert "its name or one of its dimensions is taken" in vds.virtual.report().to_string()

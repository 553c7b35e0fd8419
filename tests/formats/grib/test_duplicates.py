"""Fields of one variable that differ in keys which are no coordinates of cfgrib."""

import datetime

import eccodes
import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import fields_of, message, with_local_section, write
from virtualstack.errors import CombineError, ReaderError, UnsupportedFeatureError

CHEMICAL = {"productDefinitionTemplateNumber": 40, "parameterCategory": 20, "parameterNumber": 2}
AEROSOL = {"productDefinitionTemplateNumber": 48, "parameterCategory": 20, "parameterNumber": 102}
LOCAL = {"shortName": "t", "setLocalDefinition": 1}
RAIN = {"shortName": "tp"}

KINDS = {
    "constituents": [CHEMICAL | {"constituentType": n} for n in (0, 4, 62001, 62002)],
    "aerosols": [AEROSOL | {"aerosolType": a, "scaledValueOfFirstWavelength": w} for a in (1, 2) for w in (400, 500)],
    "versions": [LOCAL | {"expver": n, "dataDate": day} for n in ("0001", "0005") for day in (20200101, 20200102)],
    "intervals": [RAIN | {"stepRange": x} for x in ("0-12", "11-12")],
    "overlapping intervals": [RAIN | {"stepRange": x} for x in ("0-3", "0-6", "3-6", "6-9")],
    "processes": [{"shortName": "t", "generatingProcessIdentifier": n} for n in (81, 153)],
    "tables": [{"shortName": "t", "tablesVersion": n} for n in (4, 27)],
}
DIMS = {
    "constituents": ("constituentType",),
    "aerosols": ("aerosolType", "scaledValueOfFirstWavelength"),
    "versions": ("expver",),
    "intervals": ("lengthOfTimeRange",),
    "overlapping intervals": ("lengthOfTimeRange",),
    "processes": ("generatingProcessIdentifier",),
}
GROUPS = {
    "constituents": {"air", "carbon_dioxide", "constituentType_62001", "constituentType_62002"},
    "aerosols": {f"aerosolType_{a}_scaledValueOfFirstWavelength_{w}" for a in (1, 2) for w in (400, 500)},
    "versions": {"expver_0001", "expver_0005"},
    "intervals": {"lengthOfTimeRange_1", "lengthOfTimeRange_12"},
    "overlapping intervals": {"lengthOfTimeRange_3", "lengthOfTimeRange_6"},
    "processes": {"generatingProcessIdentifier_81", "generatingProcessIdentifier_153"},
}


def written(path, kind):
    return write(path, [message(keys, seed=n) for n, keys in enumerate(KINDS[kind])])


def values_in(datasets):
    """Return all fields of datasets, without those that are not there."""
    arrays = [x.values.reshape(-1, 24) for dataset in datasets for x in dataset.data_vars.values()]
    fields = np.concatenate(arrays)
    return sorted(x.tolist() for x in fields[~np.isnan(fields).all(axis=1)])


def expected_of(path):
    return sorted(values.tolist() for _, values in fields_of(path))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tree_has_every_field(kind, tmp_path):
    """Each field is in one group; names of groups are keys and values that users know."""
    path = written(tmp_path / "a.grib2", kind)
    nodes = [node for node in vs.open_virtual_datatree(path).subtree if node.data_vars]
    assert values_in(node.to_dataset().virtual.open().load() for node in nodes) == expected_of(path)
    if kind in GROUPS:
        assert {node.name for node in nodes} == GROUPS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_scan_has_every_field(kind, tmp_path):
    """A file whose fields form no dataset is scanned as a tree."""
    path = written(tmp_path / "a.grib2", kind)
    (group,) = vs.scan([path])
    entries = [a.in_memory().entries for _, node in group.walk() for x, a in node.arrays.items() if x in ("t", "tp")]
    unknown = [a.in_memory().entries for _, node in group.walk() for x, a in node.arrays.items() if a.ndim >= 2]
    lengths = sum(int((x["length"] > 0).sum()) for x in entries or unknown)
    assert lengths == len(KINDS[kind])


@pytest.mark.parametrize("kind", DIMS)
def test_the_error_names_keys_and_dimensions_that_work(kind, tmp_path):
    """The reader option that the message names opens a dataset with every field at its coordinates."""
    path = written(tmp_path / "a.grib2", kind)
    with pytest.raises(UnsupportedFeatureError, match=r"differ in.*open_virtual_datatree") as caught:
        vs.open_virtual_dataset(path)
    for key in DIMS[kind]:
        assert f"'{key}'" in str(caught.value)
    assert f"extra_dims={DIMS[kind]!r}" in str(caught.value)
    found = vs.open_virtual_dataset(path, reader=vs.readers.GRIB(extra_dims=DIMS[kind])).virtual.open().load()
    assert values_in([found]) == expected_of(path)
    for keys, (_, values) in zip(KINDS[kind], fields_of(path), strict=True):
        handle = eccodes.codes_new_from_message(message(keys))
        place = {key: eccodes.codes_get(handle, key) for key in DIMS[kind]}
        if "step" in found.dims:
            place["step"] = np.timedelta64(eccodes.codes_get(handle, "endStep"), "h")
        if "time" in found.dims:
            place["time"] = np.datetime64(
                datetime.datetime.strptime(str(eccodes.codes_get(handle, "dataDate")), "%Y%m%d")
            )
        name = eccodes.codes_get(handle, "cfVarName")
        eccodes.codes_release(handle)
        if "time" in place:  # the sample's hour is noon
            place["time"] += np.timedelta64(12, "h")
        at = found[name].sel(place, drop=True)
        np.testing.assert_array_equal(at.values.reshape(-1), values)


def test_the_filter_that_the_error_names_works(tmp_path):
    """It opens the fields that have the first value."""
    path = written(tmp_path / "a.grib2", "versions")
    with pytest.raises(UnsupportedFeatureError, match=r"filter_by_keys=\{'expver': '0001'\}"):
        vs.open_virtual_dataset(path)
    found = vs.open_virtual_dataset(path, reader=vs.readers.GRIB(filter_by_keys={"expver": "0001"}))
    assert values_in([found.virtual.open().load()]) == sorted(x.tolist() for _, x in fields_of(path)[:2])


def test_dimensions_are_named_only_where_all_fields_have_the_keys(tmp_path):
    """A probability has no percentile: no dimension holds both, and the message names the tree."""
    percentile = {"productDefinitionTemplateNumber": 10, "stepRange": "0-6", "percentileValue": 10}
    path = write(tmp_path / "a.grib2", [message(RAIN | {"stepRange": "0-6"}), message(RAIN | percentile, seed=1)])
    with pytest.raises(UnsupportedFeatureError, match=r"'percentileValue' \('undef', 10\)") as caught:
        vs.open_virtual_dataset(path)
    assert "extra_dims" not in str(caught.value)
    nodes = [node for node in vs.open_virtual_datatree(path).subtree if node.data_vars]
    assert len(nodes) == 2


LEVEL = {"shortName": "t", "typeOfLevel": "isobaricInhPa", "level": 500}
PERCENTILE = {"productDefinitionTemplateNumber": 6, "percentileValue": 10} | LEVEL


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([{"level": n} for n in (700, 850)], id="levels"),
        pytest.param([{"step": n} for n in (6, 12)], id="steps"),
        pytest.param([{"longitudeOfFirstGridPointInDegrees": 10, "longitudeOfLastGridPointInDegrees": 60}], id="grids"),
    ],
)
def test_percentiles_may_have_other_coordinates_than_plain_fields(others, tmp_path):
    """xarray made no tree of them, as groups for percentiles were below a group with other labels."""
    plain = [message(LEVEL | {"step": 0}), message(LEVEL | {"step": 6}, seed=1)]
    percentiles = [message(PERCENTILE | other, seed=2 + n) for n, other in enumerate(others)]
    path = write(tmp_path / "a.grib2", [*plain, *percentiles])
    nodes = [node for node in vs.open_virtual_datatree(path).subtree if node.data_vars]
    assert values_in(node.to_dataset().virtual.open().load() for node in nodes) == expected_of(path)
    assert sum(node.name == "percentile_10" for node in nodes) == 1


def test_sections_that_eccodes_does_not_know_tell_fields_apart(tmp_path):
    """Fields that differ in a local section without a definition are both in the tree."""
    plain = {"shortName": "t", "centre": 7}
    fields = [with_local_section(message(plain, seed=n), 3 + n) for n in range(2)]
    path = write(tmp_path / "a.grib2", fields)
    with pytest.raises(UnsupportedFeatureError, match="section2"):
        vs.open_virtual_dataset(path)
    nodes = [node for node in vs.open_virtual_datatree(path).subtree if node.data_vars]
    assert values_in(node.to_dataset().virtual.open().load() for node in nodes) == expected_of(path)


def test_fields_without_the_key_have_a_group(tmp_path):
    """A tree of chemical fields keeps temperature beside them."""
    path = write(tmp_path / "a.grib2", [message(x) for x in (*KINDS["constituents"], {"shortName": "t"})])
    assert "t" in vs.open_virtual_datatree(path)["surface/instant/no_constituentType"]


def test_variables_with_other_values_of_an_extra_dimension_stand_together(tmp_path):
    """A variable that lacks a value of the dimension is EMPTY there, as in a tree."""
    keys = [LOCAL | {"shortName": name, "expver": n} for name, n in (("t", "0001"), ("t", "0005"), ("u", "0001"))]
    path = write(tmp_path / "a.grib2", [message(x, seed=n) for n, x in enumerate(keys)])
    found = vs.open_virtual_dataset(path, reader=vs.readers.GRIB(extra_dims=("expver",)))
    loaded = found.virtual.open(absent="raise").load()
    assert loaded.u.dims == ("expver", "latitude", "longitude")
    assert np.isnan(loaded.u.sel(expver="0005")).all()
    assert values_in([loaded]) == expected_of(path)


def test_extra_dimensions_are_written_and_updated(tmp_path):
    """A store, references and an update keep the coordinate and the values."""
    reader = vs.readers.GRIB(extra_dims=("expver",))
    paths = []
    for day in (1, 2, 3):
        keys = [LOCAL | {"expver": n, "dataDate": 20200100 + day} for n in ("0001", "0005")]
        paths.append(write(tmp_path / f"{day}.grib2", [message(x, seed=9 * day + n) for n, x in enumerate(keys)]))
    whole = vs.open_virtual_mfdataset(paths, reader=reader)
    expected = whole.virtual.open().load()
    assert expected.t.shape == (2, 3, 4, 6)
    vs.open_virtual_mfdataset(paths[:2], reader=reader).virtual.to_vstack(tmp_path / "x.vstack")
    vs.Repository.open(tmp_path / "x.vstack").update(vs.open_virtual_dataset(paths[2], reader=reader), dim="time")
    with xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack") as found:
        np.testing.assert_array_equal(found.t.values, expected.t.values)
        assert found.expver.values.tolist() == ["0001", "0005"]
    whole.virtual.to_kerchunk(tmp_path / "refs.json")
    with xr.open_dataset(str(tmp_path / "refs.json"), engine="virtualstack") as found:
        np.testing.assert_array_equal(found.t.values, expected.t.values)


def test_update_of_a_dataset_names_the_keys(tmp_path):
    """A file whose fields form no dataset is refused by their keys, not by groups that nobody asked for."""
    first = write(tmp_path / "1.grib2", [message(LOCAL | {"expver": "0001", "dataDate": 20200101})])
    keys = [LOCAL | {"expver": n, "dataDate": 20200102} for n in ("0001", "0005")]
    second = write(tmp_path / "2.grib2", [message(x) for x in keys])
    vs.open_virtual_dataset(first).virtual.to_vstack(tmp_path / "x.vstack")
    with pytest.raises((UnsupportedFeatureError, CombineError), match="differ in 'expver'"):
        vs.Repository.open(tmp_path / "x.vstack").update(second, dim="time")


def test_fields_that_only_write_their_step_in_other_units_are_one_field(tmp_path):
    """As with cfgrib, the first one is taken."""
    fields = [message({"shortName": "t", "indicatorOfUnitOfTimeRange": unit}, seed=unit) for unit in (1, 0)]
    path = write(tmp_path / "a.grib2", fields)
    found = vs.open_virtual_dataset(path)
    np.testing.assert_array_equal(found.virtual.open().t.values.reshape(-1), fields_of(path)[0][1])
    assert "1 of 2 fields has the same coordinates as another field" in found.virtual.report().to_string()


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"shortName": "zz"}, r"'shortName' is 't', 'u'\. Choose"),
        ({"shortName": "t", "expver": "0009"}, r"'expver' is '0001', '0005'\. Choose"),
        ({"shortName": "u", "expver": "0005"}, "each value occurs, but no field has all of them"),
        ({"noSuchKey": 3}, r"'noSuchKey' is 'undef'\. Choose"),
    ],
)
def test_a_filter_that_matches_nothing_is_an_error(wanted, said, tmp_path):
    """It was an empty dataset without a word; the message has the filter and the values of the file."""
    keys = [LOCAL | {"shortName": name, "expver": n} for name, n in (("t", "0001"), ("t", "0005"), ("u", "0001"))]
    path = write(tmp_path / "a.grib2", [message(x) for x in keys])
    reader = vs.readers.GRIB(filter_by_keys=wanted)
    for open_ in (vs.open_virtual_dataset, vs.open_virtual_datatree, lambda x, reader: vs.scan([x], reader=reader)):
        with pytest.raises(ReaderError, match=f"none of the 3 fields.*{said}"):
            open_(path, reader=reader)

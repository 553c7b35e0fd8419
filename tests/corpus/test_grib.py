"""Real GRIB files beside cfgrib, and field by field beside eccodes."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import fields_of
from virtualstack.manifests import FIRST
from virtualstack.readers import ReadOptions
from virtualstack.reading import read_array

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "grib"
FILES = sorted(path.name for path in CORPUS.glob("*"))

# Where cfgrib is wrong: it takes seconds off reference times, and rows for columns.
SECONDS, COLUMNS = "MRMS_EchoTop_18_00.50_20161015-133230.grib2", "scanning_mode_with_bitmap.grib2"
KINDS = "s2s-pdt9-pdt10-pdt12.grib2"
"""A file of percentiles and probabilities, of which cfgrib takes the first one without a word."""
UNPLACED = "subgrids_reuse_bitmap.grib2"
"""A file whose points eccodes cannot compute. Its fields carry the digest of their grid, so that others do not join."""
TURNED = {COLUMNS, "alternate-scanning.grib"}

pytestmark = [
    pytest.mark.skipif(not FILES, reason=f"no corpus at {CORPUS}"),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Where cfgrib keeps its indexes of files, which it makes once."""
    return str(tmp_path_factory.mktemp("cfgrib") / "{short_hash}.idx")


def cfgrib(path, index, **options):
    kwargs = {"indexpath": index.replace("{short_hash}", f"{path.name}.{{short_hash}}"), "errors": "raise"}
    with xr.open_dataset(path, engine="cfgrib", backend_kwargs=kwargs | options) as found:
        found.attrs.pop("history")
        return found.load()


def cfgrib_errors():
    from cfgrib.dataset import DatasetBuildError

    return DatasetBuildError


LONG = {
    "MRMS_EchoTop_18_00.50_20161015-133230.grib2", "ds.waveh.5.grib", "hrrr.t06z.wrfsfcf01-CFRZR.grib2",
}  # fmt: skip
"""Files that take cfgrib seconds, and have nothing that others do not have; their fields are compared below, too."""


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.apart) if x in LONG else x for x in FILES])
def test_datasets_are_those_of_cfgrib(name, index, tmp_path):
    """Dims, coordinates, names, attributes, dtypes and values; also from a store of them; or both refuse."""
    path = CORPUS / name
    try:
        expected = cfgrib(path, index)
    except cfgrib_errors() as error:
        with pytest.raises(vs.errors.UnsupportedFeatureError, match="open_virtual_datatree"):
            vs.open_virtual_dataset(path)
        for choice in error.args[2] if len(error.args) > 2 else ():
            check_choice(path, index, choice)
        if len(error.args) == 1:  # coordinates of variables differ: cfgrib leaves those behind the first out
            found = vs.open_virtual_dataset(path, unsupported="skip").virtual.open().load()
            xr.testing.assert_identical(found, cfgrib(path, index, errors="warn"))
        return
    if name == KINDS:
        with pytest.raises(vs.errors.UnsupportedFeatureError, match=r"'mn2t' .* differ in .*'percentileValue'"):
            vs.open_virtual_dataset(path)
        return
    vds = vs.open_virtual_dataset(path)
    found = vds.virtual.open().load()
    if name == SECONDS:
        assert found.time.values == np.datetime64("2016-10-15T13:32:30")
        half = np.timedelta64(30, "s")
        found = found.assign_coords(
            time=((), (found.time - half).values, found.time.attrs),
            valid_time=((), (found.valid_time - half).values, found.valid_time.attrs),
        )
    if name == COLUMNS:
        expected = expected.assign(t=(expected.t.dims, expected.t.values.reshape(2, 3).T, expected.t.attrs))
    if name == UNPLACED:
        assert "latitude" not in found.coords
        expected = cfgrib(path, index, read_keys=["md5GridSection"])
    xr.testing.assert_identical(found, expected)
    vds.virtual.to_vstack(tmp_path / "x.vstack")
    with xr.open_dataset(tmp_path / "x.vstack", engine="virtualstack", allow="file:///") as stored:
        xr.testing.assert_identical(stored.load(), vds.virtual.open().load())


def check_choice(path, index, choice):
    try:
        expected = cfgrib(path, index, filter_by_keys=choice)
    except cfgrib_errors():
        with pytest.raises(vs.errors.UnsupportedFeatureError):
            vs.open_virtual_dataset(path, reader=vs.readers.GRIB(filter_by_keys=choice))
        return
    vds = vs.open_virtual_dataset(path, reader=vs.readers.GRIB(filter_by_keys=choice))
    xr.testing.assert_identical(vds.virtual.open().load(), expected)


@pytest.mark.parametrize("name", FILES)
def test_each_field_has_one_place_in_the_tree(name):
    """Of all fields that eccodes finds, none is lost or there twice, and values are equal bit for bit."""
    path = CORPUS / name
    (root,) = vs.scan([path], options=ReadOptions(is_tree=True))
    found = []
    for _, node in root.walk():
        assert not [x for x in node.refusals if x.kind == "refused" or "same coordinates as another" in x.reason]
        for key in node.arrays.keys() - node.coordinates:
            array = node.arrays[key]
            entries = array.in_memory().entries
            values = read_array(array, ..., None)
            n = 1 if array.dimension_names[-1] == "values" else 2
            for cell in np.argwhere(entries["location"] >= FIRST):
                entry = entries[tuple(cell)]
                found.append((int(entry["offset"]), int(entry["length"]), values[tuple(cell[:-n])]))
            assert np.isnan(values[entries["location"].reshape(values.shape[: values.ndim - n]) < FIRST]).all()
    expected = fields_of(path)
    found.sort(key=lambda x: x[:2])
    assert len({x[:2] for x in found}) == len(found) == len(expected)
    for (_, _, values), (_, other) in zip(found, expected, strict=True):
        if name in TURNED:
            values, other = np.sort(values, axis=None), np.sort(other)
        np.testing.assert_array_equal(values.reshape(-1), other)

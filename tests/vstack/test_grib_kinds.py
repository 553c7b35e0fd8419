"""GRIB files that are scanned again, or placed: fields of one name and several kinds stay apart."""

import os

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import message, write

PERCENTILES = (10, 50, 90)


def forecast(path, level=0.0):
    """One field of each percentile, which differ."""
    keys = {"productDefinitionTemplateNumber": 10, "stepRange": "0-6"}
    fields = [
        message({**keys, "percentileValue": p}, values=np.arange(24.0) + 100 * p + level, after={"bitsPerValue": 24})
        for p in PERCENTILES
    ]
    return write(path, fields)


def rewritten(path, level=0.0):
    before = path.stat().st_mtime
    forecast(path, level)
    os.utime(path, (before + 10, before + 10))


def fields_of(store):
    tree = xr.open_datatree(store, engine="virtualstack")
    return {f"{node.path}/{name}": x.values for node in tree.subtree for name, x in node.data_vars.items()}


@pytest.mark.parametrize("level", [0.0, 7.0])
def test_a_tree_of_kinds(tmp_path, level):
    """Each gets its own field; a file that was written again with the same bytes is not a changed file."""
    path = forecast(tmp_path / "a.grib2")
    vs.open_virtual_datatree(path).virtual.to_vstack(tmp_path / "x.vstack")
    before = fields_of(tmp_path / "x.vstack")
    rewritten(path, level)
    found = vs.Repository.open(tmp_path / "x.vstack").refresh()
    assert (len(found.refreshed), found.left) == (int(level != 0), ())
    after = fields_of(tmp_path / "x.vstack")
    assert len(before) == len(PERCENTILES)
    assert sorted(int(x.min()) // 100 for x in after.values()) == list(PERCENTILES)
    for name, values in after.items():
        np.testing.assert_allclose(values, before[name] + level, atol=0.01)


def test_one_dataset_that_has_one_of_them(tmp_path):
    """It has the same one as before, where the reader says which one."""
    path = forecast(tmp_path / "a.grib2")
    reader = vs.readers.GRIB(filter_by_keys={"percentileValue": 50})
    vs.open_virtual_dataset(path, reader=reader).virtual.to_vstack(tmp_path / "x.vstack")
    before = fields_of(tmp_path / "x.vstack")
    rewritten(path, 7.0)
    assert "is in 3 of its groups" in vs.Repository.open(tmp_path / "x.vstack").refresh().left[0][1]
    assert not vs.Repository.open(tmp_path / "x.vstack").refresh(reader=reader).left
    ((name, values),) = before.items()
    np.testing.assert_allclose(fields_of(tmp_path / "x.vstack")[name], values + 7, atol=0.01)


def test_one_dataset_that_has_all_of_them(tmp_path):
    """A dimension of percentiles is refreshed with the reader that made it."""
    path = forecast(tmp_path / "a.grib2")
    reader = vs.readers.GRIB(extra_dims=("percentileValue",))
    vs.open_virtual_dataset(path, reader=reader).virtual.to_vstack(tmp_path / "x.vstack")
    before = fields_of(tmp_path / "x.vstack")
    rewritten(path, 7.0)
    assert not vs.Repository.open(tmp_path / "x.vstack").refresh(reader=reader).left
    ((name, values),) = before.items()
    assert len(values) == len(PERCENTILES)
    np.testing.assert_allclose(fields_of(tmp_path / "x.vstack")[name], values + 7, atol=0.01)


def test_a_group_that_became_a_dataset(tmp_path):
    """Its name does not say which field it was: that is told, and nothing is put in its place."""
    path = forecast(tmp_path / "a.grib2")
    groups = vs.open_virtual_datatree(path)
    chosen = next(node for node in groups.subtree if node.data_vars and node.path.endswith("_90"))
    chosen.to_dataset().virtual.to_vstack(tmp_path / "x.vstack")
    ((_, before),) = fields_of(tmp_path / "x.vstack").items()
    rewritten(path, 7.0)
    found = vs.Repository.open(tmp_path / "x.vstack").refresh()
    assert not found.refreshed
    assert "is in 3 of its groups" in found.left[0][1]
    assert vs.Repository.open(tmp_path / "x.vstack").snapshot.number == 0
    only = vs.readers.GRIB(filter_by_keys={"percentileValue": 90})
    assert not vs.Repository.open(tmp_path / "x.vstack").refresh(reader=only).left
    ((_, values),) = fields_of(tmp_path / "x.vstack").items()
    assert int(values.min()) // 100 == 90
    np.testing.assert_allclose(values, before + 7, atol=0.01)


def test_files_are_placed_kind_by_kind(tmp_path):
    """Those that are given by their URLs are opened as trees, as the store is one."""
    keys = {"productDefinitionTemplateNumber": 10, "stepRange": "0-6"}
    for name, days in (("a", (1, 2)), ("b", (3, 4))):
        fields = [
            message({**keys, "percentileValue": p, "dataDate": 20000100 + day}, values=np.full(24, p + 100.0 * day))
            for p in PERCENTILES
            for day in days
        ]
        write(tmp_path / f"{name}.grib2", fields)
    vs.open_virtual_datatree(tmp_path / "a.grib2").virtual.to_vstack(tmp_path / "x.vstack")
    vs.Repository.open(tmp_path / "x.vstack").update(tmp_path / "b.grib2", dim="time")
    found = sorted(x[:, 0, 0].tolist() for x in fields_of(tmp_path / "x.vstack").values())
    assert found == [[p + 100.0 * day for day in (1, 2, 3, 4)] for p in PERCENTILES]
    for odd in (3, [None]):
        with pytest.raises(TypeError, match="is neither a virtual dataset or tree nor the URL of a file"):
            vs.Repository.open(tmp_path / "x.vstack").update(odd, dim="time")


@pytest.fixture
def three_days(tmp_path):
    """A store of three files with a message each, whose times only the store has as a dimension."""

    def day(i, level=0.0):
        values = np.arange(24.0) + 100 * i + level
        return write(
            tmp_path / f"{i}.grib2", [message({"dataDate": 20200101 + i}, values=values, after={"bitsPerValue": 24})]
        )

    paths = [day(i) for i in range(3)]
    vs.open_virtual_mfdataset(paths).virtual.to_vstack(tmp_path / "x.vstack")
    return paths, day


def test_chunks_that_have_got_a_dimension_are_compared(tmp_path, three_days):
    """Chunks of one message are found in their file, where it has no dimension of time."""
    found = vs.Repository.open(tmp_path / "x.vstack").verify(sample=1.0).chunks
    assert [chunk.status for chunk in found] == ["equal"] * 3


def test_a_changed_file_of_a_day_is_taken_in(tmp_path, three_days):
    """Its time of validity has no dimension, and that of the store has one."""
    paths, day = three_days
    before = paths[1].stat().st_mtime
    day(1, level=7.0)
    os.utime(paths[1], (before + 10, before + 10))
    found = vs.Repository.open(tmp_path / "x.vstack").refresh()
    assert (len(found.refreshed), found.left) == (1, ())
    got = xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack")
    files = [xr.load_dataset(x, engine="cfgrib", backend_kwargs={"indexpath": ""}) for x in paths]
    expected = xr.concat(files, "time", data_vars="all", coords="different", compat="equals", join="exact")
    np.testing.assert_allclose(got["t"], expected["t"], atol=0.01)
    np.testing.assert_array_equal(got["valid_time"], expected["valid_time"])

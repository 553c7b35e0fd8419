"""Virtual datasets of what was scanned."""

import pickle

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import ReaderError
from virtualstack.location import absolute_url


@pytest.fixture
def paths(tmp_path):
    made = [tmp_path / f"{day}.nc" for day in range(2)]
    for day, path in enumerate(made):
        values = np.arange(3.0).reshape(1, 3) + day
        xr.Dataset({"t": (("time", "x"), values)}, {"time": [day]}).to_netcdf(path, engine="netcdf4")
    return made


def test_groups_are_opened_as_files_are(paths):
    """In the order of the URLs, each with its source; and they can be joined."""
    datasets = vs.scan(paths).datasets()
    assert [x.encoding["source"] for x in datasets] == [absolute_url(path) for path in paths]
    for path, dataset in zip(paths, datasets, strict=True):
        with xr.open_dataset(path, engine="netcdf4") as expected:
            xr.testing.assert_identical(dataset.virtual.open().load(), expected)
    with xr.open_mfdataset(paths, engine="netcdf4") as expected:
        xr.testing.assert_identical(vs.combine_datasets(datasets).virtual.open().load(), expected.load())


def test_a_part_of_a_result_is_opened_by_another_process(paths):
    """With the options that the scan had."""
    found = vs.scan(paths, options=vs.readers.ReadOptions(drop_variables=frozenset({"x"})))
    (second,) = pickle.loads(pickle.dumps(found[1:])).datasets(loadable_variables=["t"])
    np.testing.assert_array_equal(second["t"].values, [[1.0, 2.0, 3.0]])


def test_a_group_that_cannot_be_opened_raises_or_is_left_out(paths):
    """By name; where none can be opened, that is an error."""
    with xr.open_dataset(paths[0], engine="netcdf4", decode_times=False) as dataset:
        bad = dataset.load()
    bad.time.attrs |= {"units": "days since 2000-01-01", "calendar": "lunar"}
    paths[0].unlink()
    bad.to_netcdf(paths[0], engine="netcdf4")
    found = vs.scan(paths)
    with pytest.raises(ReaderError, match="lunar"):
        found.datasets()
    with pytest.warns(UserWarning, match=r"left out '.*0\.nc': .*lunar"):
        (left,) = found.datasets(on_error="skip")
    assert left.encoding["source"].endswith("1.nc")
    with pytest.raises(ReaderError, match="lunar"):
        found[:1].datasets(on_error="skip")


@pytest.mark.parametrize("option", ["unsupported", "on_error"])
def test_an_unknown_word_is_an_error(paths, option):
    """A word with a typing error was taken for the default."""
    with pytest.raises(ValueError, match=f"{option}='inlin'"):
        vs.scan(paths).datasets(**{option: "inlin"})


def test_nothing_becomes_inline_after_a_scan(paths):
    with pytest.raises(ValueError, match=r"unsupported='inline'; after a scan .* scan with options=vs\.readers"):
        vs.scan(paths).datasets(unsupported="inline")


def test_options_are_those_of_opening_a_file(paths):
    """A group below the root needs a tree, "raise" inlines nothing, and a word for the limit is read."""
    options = vs.readers.ReadOptions.from_options(group="/a/", drop_variables="x", inline_limit="1 KiB")
    assert (options.is_tree, options.drop_variables, options.inline_limit) == (True, {"x"}, 1024)
    assert vs.readers.ReadOptions.from_options(unsupported="raise").inline_limit == 0
    with pytest.raises(ValueError, match="unsupported='no'"):
        vs.readers.ReadOptions.from_options(unsupported="no")

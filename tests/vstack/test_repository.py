"""A repository as a user meets it: made, opened, added to and read without options of the engine."""

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import (
    CombineError,
    ConflictError,
    ForbiddenLocationError,
    UnsupportedFeatureError,
    WriterError,
)


def write(path, start, n=2):
    """Write a file of a few days."""
    data = xr.Dataset(
        {"rain": (("time", "x"), np.arange(3.0 * n).reshape(n, 3) + 10 * start)},
        {"time": np.arange(start, start + n), "x": [1, 2, 3]},
    )
    data.to_netcdf(path, engine="netcdf4", encoding={"rain": {"chunksizes": (1, 3)}})
    return str(path)


@pytest.fixture
def files(tmp_path):
    return [write(tmp_path / f"{start}.nc", start) for start in (0, 2, 4)]


def wanted(files):
    return xr.concat([xr.load_dataset(path) for path in files], "time", data_vars="minimal")


def test_a_store_is_created_and_appended_to(tmp_path, files):
    """From files, virtual datasets and paths; values are those of the files."""
    repo = vs.Repository.create(tmp_path / "x.vstack", files[0], message="begin")
    longer = repo.append(files[1], "time").append(vs.open_virtual_dataset(files[2]), dim="time", message="end")
    xr.testing.assert_identical(longer.open_dataset().load(), wanted(files))
    xr.testing.assert_identical(repo.open_dataset().load(), wanted(files[:1]))
    assert [x.message for x in longer.log()] == ["end", None, "begin"]


@pytest.mark.parametrize("options", [{}, {"relative": False}, {"relative": True}])
def test_sources_are_relative_to_the_store_only_if_asked_for(tmp_path, files, options):
    repo = vs.Repository.create(tmp_path / "x.vstack", files[0], **options)
    found = {x.relative_to is not None for x in repo.open_virtual_dataset()["rain"].data.in_memory().locations}
    assert found == {options.get("relative", False)}


def test_a_store_is_created_once(tmp_path, files):
    """Another one is not replaced."""
    vs.Repository.create(tmp_path / "x.vstack", files[0])
    with pytest.raises(WriterError, match="is already a vstack"):
        vs.Repository.create(tmp_path / "x.vstack", files[1])
    xr.testing.assert_identical(vs.Repository.open(tmp_path / "x.vstack").open_dataset().load(), wanted(files[:1]))


def test_datasets_that_are_appended_must_fit(tmp_path, files):
    """The error has both, and the store stays as it was."""
    repo = vs.Repository.create(tmp_path / "x.vstack", files[1])
    with pytest.raises(CombineError, match=r"Repository\.update to insert"):
        repo.append(files[0], "time")
    with pytest.raises(TypeError, match="dim=1 is not the name of a dimension"):
        repo.append(files[2], 1)
    assert len(repo.log()) == 1
    out_of_order = repo.append(files[0], "time", ordered=False)
    xr.testing.assert_identical(out_of_order.open_dataset().load(), wanted([files[1], files[0]]))


def test_two_who_append_to_one_snapshot(tmp_path, files):
    """The later one is placed after the first, and loses nothing of it."""
    repo = vs.Repository.create(tmp_path / "x.vstack", files[0])
    repo.append(files[1], "time")
    later = repo.append(files[2], "time")
    assert later.snapshot.number == 2
    xr.testing.assert_identical(later.open_dataset().load(), wanted(files))


def test_trees(tmp_path, files):
    """They are created, appended to, and opened with values and as virtual trees."""
    trees = [
        xr.DataTree.from_dict({"/a": vs.open_virtual_dataset(path), "/b": vs.open_virtual_dataset(path)})
        for path in files
    ]
    repo = vs.Repository.create(tmp_path / "x.vstack", trees[0])
    for tree in trees[1:]:
        repo = repo.append(tree, "time")
    for found in (repo.open_datatree(), repo.open_virtual_datatree().virtual.open()):
        xr.testing.assert_identical(found["a"].to_dataset().load(), wanted(files))
    xr.testing.assert_identical(repo.open_dataset(group="b").load(), wanted(files))
    assert repo.open_virtual_dataset(group="b").virtual.nrefs == 6


def test_options_of_opening(tmp_path, files):
    """Those of the engine and of opening virtual datasets pass through."""
    repo = vs.Repository.create(tmp_path / "x.vstack", files[0])
    assert "x" not in repo.open_dataset(drop_variables="x").variables
    assert repo.open_dataset(chunks={}, task_bytes=0)["rain"].chunks == ((1, 1), (3,))
    assert "x" not in repo.open_virtual_dataset(drop_variables="x").variables
    assert repo.open_virtual_dataset(loadable_variables=["rain"]).virtual.nrefs == 0


def test_what_a_repository_may_read_it_opens(tmp_path, files):
    """``allow`` is given once, where the repository is opened."""
    vs.Repository.create(tmp_path / "a" / "x.vstack", files[0])
    with pytest.raises(ForbiddenLocationError):
        vs.Repository.open(tmp_path / "a" / "x.vstack", allow=vs.Listed()).open_dataset().load()
    repo = vs.Repository.open(tmp_path / "a" / "x.vstack", allow=vs.Listed(tmp_path))
    xr.testing.assert_identical(repo.open_dataset().load(), wanted(files[:1]))
    xr.testing.assert_identical(repo.open_virtual_dataset().virtual.open().load(), wanted(files[:1]))


def test_a_storage_goes_with_a_repository(files):
    """A filesystem that is given once reads the values of both kinds of datasets."""
    store = vs.open_virtual_dataset(files[0])
    store.virtual.to_vstack("memory://travels/x.vstack")
    repo = vs.Repository.open("memory://travels/x.vstack")
    xr.testing.assert_identical(repo.open_virtual_dataset().virtual.open().load(), wanted(files[:1]))


def test_changes_since_are_not_lost_by_writing_a_repository_anew(tmp_path, files):
    """What was opened from the newest snapshot conflicts with later ones; what ``at=`` asked for replaces them."""
    url = tmp_path / "x.vstack"
    first = vs.Repository.create(url, files[0])
    opened = first.open_virtual_dataset()
    first.append(files[1], "time")
    changed = opened.assign_attrs(title="mine")
    with pytest.raises(ConflictError):
        changed.isel(time=[0]).virtual.to_vstack(url, mode="w")
    vs.Repository.open(url, at=0).open_virtual_dataset().virtual.to_vstack(url, mode="w")
    xr.testing.assert_identical(vs.Repository.open(url).open_dataset().load(), wanted(files[:1]))


def test_a_variable_that_cannot_be_referenced_is_not_left_out(tmp_path, files):
    """A file that is given by its URL loses none; the error says how to open it otherwise."""
    path = str(tmp_path / "texts.nc")
    texts = xr.Dataset({"s": ("time", np.array(["a" * 700_000, "b" * 700_000], object))}, {"time": [6, 7]})
    xr.merge([xr.load_dataset(write(tmp_path / "b.nc", 6)), texts]).to_netcdf(path, engine="netcdf4")
    repo = vs.Repository.create(tmp_path / "x.vstack", files[0])
    for change in (
        lambda: vs.Repository.create(tmp_path / "y.vstack", path),
        lambda: repo.append(path, "time"),
        lambda: repo.update(path, "time"),
    ):
        with pytest.raises(UnsupportedFeatureError, match="drop_variables=") as caught:
            change()
        assert "pass the dataset that it returns" in caught.value.__notes__[0]
    opened = vs.open_virtual_dataset(path, drop_variables="s")
    assert repo.append(opened, "time").open_dataset().sizes["time"] == 4


def test_what_wrote_a_store_sees_what_others_see(tmp_path, files):
    """A repository that was created or appended to opens the same datasets as one that is opened afterwards."""
    url = tmp_path / "x.vstack"
    repo = vs.Repository.create(url, files[0])
    for change in (lambda repo: repo, lambda repo: repo.append(files[1], "time")):
        repo = change(repo)
        mine, others = repo.open_virtual_dataset(), vs.Repository.open(url).open_virtual_dataset()
        assert mine.encoding == others.encoding
        assert mine.encoding["source"] == url.as_uri()
        xr.testing.assert_identical(mine.virtual.open().load(), others.virtual.open().load())

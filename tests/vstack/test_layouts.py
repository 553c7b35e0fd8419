"""``Repository.rechunk``: a variable in other chunks, which every change of the store keeps up to date."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.vstack.growing import dataset, write
from virtualstack.errors import ConflictError, StorageError, WriterError
from virtualstack.manifests import ABSENT, ChunkAxis
from virtualstack.reading import blocks
from virtualstack.storage import LocalTarget
from virtualstack.storage.dry_run import dry_run
from virtualstack.vstack.repository import Repository

SERIES = {"time": 4, "lat": 2, "lon": 3}


@pytest.fixture
def files(tmp_path):
    """Files of days in the order in which they come; the last two fill gaps."""
    days = (0, 1, 2), (3, 4), (5, 6, 7, 8), (12, 13), (10, 11), (9,)
    return [write(tmp_path / f"{i}.nc", dataset(x, seed=i)) for i, x in enumerate(days)]


@pytest.fixture
def repo(tmp_path, files):
    repo = Repository.create(tmp_path / "x.vstack", vs.open_virtual_dataset(files[0]))
    return repo.rechunk("t", SERIES, name="series")


def check(repo, files=None, **written):
    """Compare the layout with its variable, and with xarray's values of the files."""
    for made in (repo.open_dataset(), Repository.open(repo.url).open_dataset()):
        assert made.series.dtype == made.t.dtype
        assert made.series.attrs["virtualstack_layout_of"] == "t"
        np.testing.assert_array_equal(made.series.values, made.t.values)
        if files is not None:
            plain = xr.concat([xr.load_dataset(x) for x in files], "time", data_vars="minimal").sortby("time")
            np.testing.assert_array_equal(made.series.values, plain.t.values)
    axes = repo.open_virtual_dataset().series.data.grid.axes
    n = repo.open_dataset().sizes["time"]
    assert axes == (ChunkAxis.regular(n, 4), ChunkAxis.regular(6, 2), ChunkAxis.regular(8, 3))


def test_appended_and_late_files_fill_the_layout(repo, files):
    check(repo, files[:1])
    for n in range(2, 4):
        repo = repo.append(files[n - 1], "time")
        check(repo, files[:n])
    for n in range(4, 7):
        repo = repo.update(files[n - 1], "time")
        check(repo, files[:n])
    assert all("series" in str(entry.changes) for entry in repo.log()[:-1])


def test_only_what_is_new_is_read(repo, files, tmp_path):
    """The files of earlier days are gone; the chunk of the layout that is not full is completed from the layout."""
    repo = repo.edit(lambda vds: vds.drop_vars(["mask", "rain"]))  # which would be compared
    repo = repo.append(files[1], "time", drop_variables=["mask", "rain"])
    before = repo.open_dataset().series.load()
    for gone in files[:2]:
        (tmp_path / gone).unlink()
    repo = repo.append(files[2], "time", drop_variables=["mask", "rain"])
    series = repo.open_dataset().series
    np.testing.assert_array_equal(series[:5].values, before.values)
    np.testing.assert_array_equal(series[5:].values, xr.load_dataset(files[2]).t.values)
    entries = repo.open_virtual_dataset().series.data.in_memory().entries["location"]
    assert set(entries[0].flat).isdisjoint(entries[1:].flat)  # a chunk that was full stays where it is


def same(repo):
    made = Repository.open(repo.url).open_dataset()
    assert made.series.dtype == made.t.dtype
    np.testing.assert_array_equal(made.series.values, made.t.values)
    return made


def test_every_way_into_the_store_fills_the_layout(repo, files, tmp_path):
    """Labels along other dimensions, regions, other orders, compaction, members beside it."""
    repo = repo.edit(lambda vds: vds.drop_vars(["mask", "rain"]))
    options = {"drop_variables": ["mask", "rain"]}
    more = write(tmp_path / "more.nc", dataset((2, 4), seed=7, lat=8), t={"chunksizes": (1, 8, 8)})
    repo = repo.update(more, "time", join="outer", prefer="last", **options)
    assert same(repo).sizes["lat"] == 8
    one = vs.open_virtual_dataset(write(tmp_path / "one.nc", dataset(2, seed=8, lat=8), t={"chunksizes": (1, 8, 8)}))
    one.drop_vars(["mask", "rain"]).virtual.to_vstack(repo.url, region="auto")
    later = write(tmp_path / "later.nc", dataset(5, seed=9, lat=8), t={"chunksizes": (1, 8, 8)})
    vs.open_virtual_dataset(later, **options).virtual.to_vstack(repo.url, append_dim="time")
    repo = Repository.open(repo.url).compact()
    assert same(repo).sizes["time"] == 5
    xr.Dataset({"z": ("lat", np.arange(8.0))}).virtual.to_vstack(repo.url, mode="a")
    vds = Repository.open(repo.url).open_virtual_dataset()
    vds.assign(t=vds["t"][::-1]).virtual.to_vstack(repo.url, mode="w")  # the layout is as it was
    assert Repository.open(repo.url).snapshot.layouts
    same(repo)


def test_another_packing_decodes_the_layout_too(tmp_path):
    parts = [dataset(range(a, a + 2), seed=a) for a in (0, 2)]
    parts[1]["rain"].encoding["scale_factor"] = 0.25
    paths = [write(tmp_path / f"p{i}.nc", part) for i, part in enumerate(parts)]
    repo = Repository.create(tmp_path / "y.vstack", vs.open_virtual_dataset(paths[0]))
    repo = repo.rechunk("rain", {"time": 3}, name="series").append(paths[1], "time")
    made = repo.open_dataset()
    np.testing.assert_array_equal(made.rain.values, xr.concat([part.rain for part in parts], "time").values)
    np.testing.assert_array_equal(made.series.values, made.rain.values)


def test_written_values_and_labels_without_files(repo, files):
    repo = repo.append(files[1], "time").write("t", {"time": slice(2, 4), "lon": 3}, 7.0)
    check(repo)
    repo = repo.update([], "time", labels=np.array(["2000-01-20", "2000-01-21"], "M8[ns]"))
    check(repo)
    repo = repo.update([], "time", labels=np.array(["2000-01-22", "2000-01-23", "2000-01-24"], "M8[ns]"))
    check(repo)
    last = repo.open_virtual_dataset().series.data.in_memory().entries["location"][-1]
    assert (last == ABSENT).all()


def test_changed_files(repo, files):
    repo = repo.append(files[1], "time")
    write(files[1], dataset((3, 4), seed=9))
    repo = repo.refresh().repository
    check(repo, files[:2])
    write(files[1], dataset((3, 4), seed=10, lat=5))
    repo = repo.refresh(changed="mask").repository
    check(repo)
    assert np.isnan(repo.open_dataset().series[3:].values).all()


def test_masked_chunks_are_missing_values(tmp_path):
    """Of a variable without a fill value too, whose chunks that were never written are other values."""
    odd = {"t": {"_FillValue": None}}
    files = [write(tmp_path / f"{i}.nc", dataset((3 * i, 3 * i + 1, 3 * i + 2)), **odd) for i in range(2)]
    repo = Repository.create(tmp_path / "x.vstack", files[0]).rechunk("t", SERIES, name="series")
    repo = repo.append(files[1], "time")
    write(files[0], dataset((0, 1, 2), lat=5), **odd)
    repo = repo.refresh(changed="mask").repository
    check(repo)
    made = repo.rechunk("t", {"time": 3}, name="later").open_dataset()
    np.testing.assert_array_equal(made.later.values, made.t.values)
    assert np.isnan(made.later[:3].values).all()


def test_a_recipe_fills_the_layout(tmp_path, files):
    (tmp_path / "in").mkdir()
    (tmp_path / "0.nc").rename(tmp_path / "in" / "0.nc")
    repo = Repository.build(tmp_path / "y.vstack", vs.Recipe([f"{tmp_path}/in/*.nc"], dim="time"), sample=0).repository
    repo = repo.rechunk("t", SERIES, name="series")
    for name in ("1.nc", "2.nc"):
        (tmp_path / name).rename(tmp_path / "in" / name)
    repo = repo.sync(sample=0).repository
    check(repo, sorted((tmp_path / "in").iterdir()))


def test_packed_numbers_stay_packed(repo):
    repo = repo.rechunk("rain", {"time": -1, "lat": 2}, name="rain_series")
    made = repo.open_dataset()
    np.testing.assert_array_equal(made.rain_series.values, made.rain.values)
    assert repo.open_virtual_dataset().rain_series.data.dtype == np.dtype("i2")


def test_attributes_follow_the_variable(repo):
    repo = repo.edit(lambda vds: vds.virtual.set_encoding({"t": {"scale_factor": 2.0}}))
    check(repo)
    assert repo.open_dataset().series.max() == repo.open_dataset().t.max()


def test_what_has_no_layout_any_more(repo, files):
    """Dropping the layout, or all, ends the declaration; a change that leaves a layout behind is an error."""
    with pytest.raises(WriterError, match="removes or renames"):
        repo.edit(lambda vds: vds.rename(t="x"))
    with pytest.raises(WriterError, match="Write to that variable"):
        repo.write("series", ..., 0)
    with pytest.raises(WriterError, match="already"):
        repo.rechunk("t", {"time": 1}, name="series")
    assert "series" not in repo.edit(lambda vds: vds.drop_vars(["series", "t"])).open_dataset()
    assert "series" not in Repository.open(repo.url, at=0).open_dataset()


@pytest.mark.parametrize(
    "change",
    [
        lambda vds: vds.isel(time=slice(1, 3)),
        lambda vds: vds.transpose("lat", ...),
        lambda vds: vds.assign(series=vds.t),
        lambda vds: vds.rename(series="other"),
    ],
    ids=["part", "order", "other values", "other name"],
)
def test_an_edit_leaves_no_layout_behind_that_nothing_fills(repo, change):
    with pytest.raises(WriterError, match=r"'/series' has the values of '/t' .* (replaces|copies) them"):
        repo.edit(change)
    repo = repo.edit(lambda vds: change(vds).drop_vars(["series", "other"], errors="ignore")).rechunk(
        "t", {"lat": 2}, name="series"
    )
    made = repo.open_dataset()
    np.testing.assert_array_equal(made.series.values, made.t.values)


def test_a_layout_may_take_the_place_of_its_variable(repo):
    before = repo.open_dataset().t.values
    repo = repo.edit(lambda vds: vds.drop_vars("t").rename(series="t"))
    np.testing.assert_array_equal(repo.open_dataset().t.values, before)
    assert repo.snapshot.layouts == {}


def test_a_layout_whose_last_chunk_is_cut_is_filled_on(repo, files):
    repo = repo.edit(lambda vds: vds.isel(time=slice(0, 2)))
    check(repo)
    check(repo.append(files[1], "time"))


def test_dropped_layouts_are_not_filled(repo, files):
    repo = repo.edit(lambda vds: vds.drop_vars("series")).append(files[1], "time")
    assert "series" not in repo.open_dataset()
    repo = repo.rechunk("t", {"time": -1, "lat": 1}, name="series")
    assert repo.open_virtual_dataset().series.data.grid.axes[0] == ChunkAxis.regular(5, 5)


def test_another_writer_is_never_left_out(repo, files, tmp_path):
    """A layout that would lag behind the newest snapshot is not committed."""
    other = Repository.open(repo.url).append(files[1], "time")
    with pytest.raises(ConflictError):
        repo.rechunk("t", SERIES, name="second")
    with pytest.raises(ConflictError):
        repo.write("t", {"time": 0}, 1.0)
    late = Repository.open(repo.url)
    other.rechunk("t", SERIES, name="second")
    with pytest.raises(ConflictError):
        late.write("t", {"time": 0}, 1.0)
    grown = late.append(files[2], "time")  # placed again, with the layout that it did not know
    check(grown, files[:3])
    cube = grown.open_dataset().load()
    xr.testing.assert_equal(cube["second"].transpose(*cube["t"].dims).variable, cube["t"].variable)


@pytest.mark.parametrize("n", [0, 3])
def test_a_killed_writer_leaves_the_store_as_it_was(repo, files, n, monkeypatch):
    before, left = repo.open_dataset().load(), [n]
    real = LocalTarget.put

    def die(*args):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(LocalTarget, "put", die)
        with pytest.raises(KeyboardInterrupt):
            repo.append(files[1], "time")
        with pytest.raises(KeyboardInterrupt):
            repo.rechunk("t", SERIES, name="second")
    xr.testing.assert_identical(Repository.open(repo.url).open_dataset().load(), before)
    check(Repository.open(repo.url).append(files[1], "time"), files[:2])


def test_a_dry_run_writes_nothing(repo):
    with dry_run() as would:
        made = repo.rechunk("t", SERIES, name="second")
    assert made.snapshot.number == 2
    assert any("/values/" in url for url in would.written)
    assert Repository.open(repo.url).snapshot.number == 1


def test_files_that_cannot_be_read_are_an_error(repo, files, tmp_path):
    vds = vs.open_virtual_dataset(files[1])
    (tmp_path / "1.nc").unlink()
    with pytest.raises(StorageError):
        repo.append(vds, "time")


@pytest.mark.parametrize(
    ("chunks", "error"),
    [({"tim": 1}, "did you mean|Did you mean"), ({"time": 0}, "not a chunk length"), ({"time": 2.5}, "not a chunk")],
)
def test_chunks_that_are_not_valid(repo, chunks, error):
    with pytest.raises(ValueError, match=error):
        repo.rechunk("t", chunks, name="second")


@pytest.mark.parametrize("name", ["", "..", "a/b"])
def test_names_that_are_not_valid(repo, name):
    with pytest.raises(ValueError, match="name="):
        repo.rechunk("t", SERIES, name=name)


def test_loaded_variables_have_no_layout(repo):
    with pytest.raises(WriterError, match="'time' is loaded"):
        repo.rechunk("time", {"time": 1}, name="second")


def test_too_little_memory_is_an_error(repo):
    with pytest.raises(ValueError, match="give at least 384"):
        repo.rechunk("t", {"time": -1, "lat": 2, "lon": 8}, name="second", max_bytes=100)


@pytest.mark.parametrize("most", [12, 40, 200, 10_000])
def test_blocks_are_read_once_within_the_budget(most):
    """Any grids; no box that is read is larger than the budget, and together they are the region, once."""
    rng = np.random.default_rng(most)
    for _ in range(20):
        shape = tuple(rng.integers(1, 14, 3).tolist())
        values = rng.integers(0, 1 << 30, shape)
        stored = [ChunkAxis.from_lengths(_lengths(rng, n)) for n in shape]
        wanted = [ChunkAxis.regular(n, int(rng.integers(1, min(n, 3) + 1))) for n in shape]
        region = tuple(slice(axis.span(0).start, n) for axis, n in zip(wanted, shape, strict=True))
        least = int(np.prod([axis.longest for axis in wanted]))
        asked = []

        def read(box, values=values, asked=asked):
            asked.append(box)
            return values[box]

        found = np.full(shape, -1)
        for box, part in blocks.read_blocks(read, region, stored, wanted, max(most, least)):
            assert (found[box] == -1).all()
            assert part.size <= max(most, least)
            found[box] = part
        np.testing.assert_array_equal(found, values)
        count = np.zeros(shape, int)
        for box in asked:
            count[box] += 1
            assert values[box].size <= max(most, least)
        assert (count == 1).all()


def _lengths(rng, n):
    found = []
    while sum(found) < n:
        found.append(int(rng.integers(1, min(4, n - sum(found)) + 1)))
    return found

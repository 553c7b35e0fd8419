"""Timelines of cubes and of surveyed files: eras, gaps and duplicates with their places."""

import json

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkManifest
from virtualstack.surveying.cube import cube_timeline


def write_days(folder, days, **encoding):
    """Write one file of six hourly steps for each day, and return the paths."""
    paths = []
    for day in days:
        time = np.datetime64("2000-01-01", "ns") + np.arange(24 * day, 24 * day + 24, 6) * np.timedelta64(1, "h")
        part = xr.Dataset({"rain": (("time", "x"), np.full((4, 6), day, "f4"))}, {"time": time})
        paths.append(str(folder / f"{day:03d}.nc"))
        part.to_netcdf(
            paths[-1],
            engine="netcdf4",
            unlimited_dims=["time"],
            encoding={
                "rain": {"chunksizes": (2, 3), **encoding},
                "time": {"units": "hours since 2000-01-01", "dtype": "i8"},
            },
        )
    return paths


@pytest.fixture
def archive(tmp_path):
    """Ten days, of which two are missing, stored without compression and then with zlib."""
    return write_days(tmp_path, [0, 1, 2, 5]) + write_days(tmp_path, [6, 7, 8, 9], zlib=True, shuffle=False)


def test_cube_has_the_eras_and_gaps_of_its_files(archive):
    """A cube shows the same eras and gaps as a survey of its files, at the same places."""
    surveyed = vs.survey(archive).timeline
    found = cube_timeline(vs.open_virtual_mfdataset(archive).virtual.to_group())
    for timeline in (surveyed, found):
        assert timeline.dim == "time"
        assert timeline.is_to_scale
        assert (timeline.first, timeline.last) == ("2000-01-01", "2000-01-10T18:00")
        assert (timeline.n_files, timeline.n_failed, timeline.n_eras, timeline.n_duplicates) == (8, 0, 2, 0)
        first, second = timeline.eras
        assert (first.first, first.last, first.n_files, first.changes) == ("2000-01-01", "2000-01-06T18:00", 4, "")
        assert (second.first, second.last, second.n_files) == ("2000-01-07", "2000-01-10T18:00", 4)
        assert second.changes == "codecs of rain: none -> zlib"
        (gap,) = timeline.gaps
        assert (gap.after, gap.before, gap.n_steps) == ("2000-01-03T18:00", "2000-01-06", 8)
        assert timeline.n_missing == 8
        hours = 9 * 24 + 18
        assert first.begin == 0
        assert second.end == 1
        assert gap.begin == pytest.approx(66 / hours)
        assert gap.end == pytest.approx(120 / hours)
        assert second.begin == pytest.approx(144 / hours)
        assert json.loads(json.dumps(timeline.to_json()))["eras"][0]["n_files"] == 4


def test_cube_whose_chunks_change_within_a_file(tmp_path):
    """An era ends where a store was appended to by values in memory, which are INLINE."""
    (path,) = write_days(tmp_path, [0])
    cube = vs.open_virtual_dataset(path)
    cube.virtual.to_vstack(tmp_path / "x.vstack")
    more = xr.Dataset(
        {"rain": (("time", "x"), np.ones((4, 6), "f4"))},
        {"time": np.datetime64("2000-01-02", "ns") + np.arange(0, 24, 6) * np.timedelta64(1, "h")},
    )
    vs.Repository.open(tmp_path / "x.vstack").append(more, "time")
    (group,) = vs.scan([tmp_path / "x.vstack"])
    found = cube_timeline(group, "time")
    assert [(x.first, x.last) for x in found.eras][-1] == ("2000-01-02", "2000-01-02T18:00")
    assert "chunks of rain" in found.eras[-1].changes
    assert found.eras[0].n_files == 1


def test_duplicate_values_of_a_cube():
    """Values of a coordinate that exist twice are listed at their places."""
    cube = xr.Dataset({"rain": ("time", [1.0, 2.0, 3.0, 4.0])}, {"time": [0, 1, 1, 4]})
    found = cube_timeline(cube.virtual.to_group(), "time")
    assert [(x.text, x.at, x.n_values) for x in found.duplicates] == [("1", 0.25, 2)]
    assert found.n_files == 0


def test_dimension_without_a_coordinate(tmp_path):
    """Without a coordinate, places are positions along the dimension."""
    xr.Dataset({"rain": (("time", "x"), np.ones((4, 6)))}).to_netcdf(
        tmp_path / "a.nc", engine="netcdf4", unlimited_dims=["time"]
    )
    (group,) = vs.scan([tmp_path / "a.nc"])
    found = cube_timeline(group)
    assert (found.dim, found.is_to_scale, found.first, found.last) == ("time", False, "0", "3")
    assert found.n_eras == 1
    assert found.gaps == ()


def test_lost_steps_are_gaps(tmp_path):
    """A store that lists the steps that should exist shows those that no file has, as the survey of its files does."""
    files = write_days(tmp_path, [0, 1, 3, 4])
    steps = np.datetime64("2000-01-01", "ns") + np.arange(0, 24 * 5, 6) * np.timedelta64(1, "h")
    repo = vs.Repository.create(tmp_path / "x.vstack", files[0]).update(files[1:], dim="time", labels=steps)
    surveyed, found = vs.survey(files).timeline, cube_timeline(repo.open_virtual_dataset().virtual.to_group())
    for timeline in (surveyed, found):
        (gap,) = timeline.gaps
        assert (gap.after, gap.before, gap.n_steps) == ("2000-01-02T18:00", "2000-01-04", 4)
        assert (gap.begin, gap.end) == pytest.approx((42 / 114, 72 / 114))
    assert (found.n_gaps, found.n_missing, found.n_eras) == (1, 4, 1)


def test_no_dimension_at_all():
    """A cube of scalars has a timeline without a dimension."""
    found = cube_timeline(xr.Dataset({"rain": ((), 1.0)}).virtual.to_group())
    assert (found.dim, found.eras, found.n_eras) == (None, (), 0)


def test_unknown_dimension(archive):
    """A dimension that does not exist is an error that lists the dimensions."""
    (group,) = vs.scan(archive[:1])
    with pytest.raises(vs.errors.CombineError, match=r"no variable has a dimension 'day'; they have \['time', 'x'\]"):
        cube_timeline(group, "day")


def test_duplicate_files(tmp_path):
    """Files that exist twice in a survey are duplicates with their names."""
    found = vs.survey(write_days(tmp_path, [0, 1]) * 2).timeline
    assert found.n_duplicates == 2
    assert found.duplicates[0].text == "000.nc and 000.nc: same labels"
    assert found.duplicates[0].n_values == 4


def test_timeline_is_bounded():
    """3,000 files whose chunks change every ten files have 300 eras, of which 200 are listed."""
    n = 3000
    entries = np.zeros((n, 1), ENTRY)
    entries["location"][:, 0] = np.arange(n) + FIRST
    entries["encoding"][:, 0] = np.arange(n) // 10 % 2
    entries["length"] = 8
    manifest = ChunkManifest(
        entries,
        (vs.Fill.zero("f4"),),
        tuple(vs.ChunkEncoding.c_order(dtype, (1, 2)) for dtype in ("<f4", ">f4")),
        tuple(Location(f"s3://bucket/{i}.nc") for i in range(n)),
    )
    grid = vs.ChunkGrid.regular((n, 2), (1, 2))
    array = vs.ManifestArray(manifest=manifest, grid=grid, dtype="f4", dimension_names=("t", "x"))
    found = cube_timeline(vs.ManifestGroup(arrays={"rain": array}), "t")
    assert (found.n_files, found.n_eras, len(found.eras)) == (3000, 300, 200)
    assert {era.n_files for era in found.eras} == {10}
    assert found.eras[1].changes == "dtype of rain: float32 -> float32 big-endian"
    assert len(json.dumps(found.to_json())) < 100_000


def test_survey_without_a_coordinate(tmp_path):
    """Files without a coordinate are at places in their order."""
    for i in range(3):
        xr.Dataset({"rain": (("time", "x"), np.ones((4, 6)))}).to_netcdf(
            tmp_path / f"{i}.nc", engine="netcdf4", unlimited_dims=["time"]
        )
    found = vs.survey(f"{tmp_path}/*.nc").timeline
    assert not found.is_to_scale
    assert [(x.begin, x.end, x.n_files) for x in found.eras] == [(0.0, 1.0, 3)]


def test_survey_of_nothing_that_can_be_read():
    """A survey in which all files fail has an empty timeline."""
    found = vs.survey(["/nowhere/a.nc"]).timeline
    assert (found.n_eras, found.n_failed, found.eras) == (0, 1, ())


def test_cube_of_packed_files(tmp_path):
    """Eras name the stored dtype, and no casts."""
    for i, (dtype, packing) in enumerate([("f4", {}), ("f8", {}), ("i2", {"scale_factor": 0.5, "_FillValue": -1})]):
        part = xr.Dataset({"rain": (("time", "x"), np.ones((1, 4)))}, {"time": [i]})
        encoding = {"rain": {"dtype": dtype, "chunksizes": (1, 4), **packing}}
        part.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4", encoding=encoding)
    cube = vs.open_virtual_mfdataset(f"{tmp_path}/*.nc", unpack=True)
    changes = [era.changes for era in cube_timeline(cube.virtual.to_group(), "time").eras]
    assert changes[1] == "dtype of rain: float32 -> float64"
    assert changes[2].startswith("dtype of rain: float64 -> int16; codecs of rain: none -> virtualstack.cf(")

"""Archives at a glance: eras, outliers, duplicates and gaps, as xarray on the files sees them."""

import copy
import dataclasses
import itertools
import shutil
from pathlib import Path

import netCDF4
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import virtualstack as vs
from tests.amount import examples
from tests.data import make_grib
from tests.data.netcdf4 import netcdf4_file
from virtualstack.dataset import decode, variables
from virtualstack.errors import CombineError, SourceNotFoundError, StorageError
from virtualstack.formats.hdf5.reader import HDF5
from virtualstack.planning.gaps import Gap, find_gaps
from virtualstack.planning.overlaps import Shared, count_shared, find_interleaved
from virtualstack.storage import MemoryTarget
from virtualstack.surveying import archive as archive_of
from virtualstack.surveying import coordinate as survey_line
from virtualstack.surveying import sequence
from virtualstack.surveying.facts import collect_facts, describe_fact, find_periods

EPOCH = "days since 2000-01-01"


def write(
    path,
    start,
    n=5,
    *,
    times=None,
    units=EPOCH,
    offset=0,
    calendar=None,
    x=0,
    name="tas",
    dtype="f4",
    attrs=None,
    chunk=1,
    extra=(),
    file_attrs=None,
    kind="NETCDF4",
    **storage,
):
    """Write one file of a series, of days ``start`` to ``start + n - 1``, or of those given."""
    times = np.arange(start, start + n) if times is None else np.asarray(times)
    values = np.arange(4 * len(times)).reshape(-1, 4) % 100
    options = {"chunksizes": (chunk, 4), "zlib": True, **storage} if kind == "NETCDF4" else {}
    variables = {
        "time": ("f8", "time", times - offset, {"units": units} | ({"calendar": calendar} if calendar else {})),
        "x": ("f8", "x", np.arange(4) + x),
        name: (dtype, "time x", values, attrs or {}, options),
    } | {other: ("f4", "time x", np.ones_like(values)) for other in extra}
    return str(netcdf4_file(path, {"time": None, "x": 4}, variables, kind=kind, **file_attrs or {}))


def series(folder, n, change=lambda i: {}, step=5, **common):
    return [write(folder / f"f{i:03d}.nc", step * i, step, **{**common, **change(i)}) for i in range(n)]


def names(urls):
    return [url.rsplit("/", 1)[-1] for url in urls]


# -- eras -----------------------------------------------------------------------------------------------------


def test_storage_that_changes_in_each_file_makes_eras(tmp_path):
    """Packing does not: each file may have its own range of values."""
    changes = ({}, {"shuffle": False}, {"chunk": 2})
    assert vs.survey(series(tmp_path, 3, changes.__getitem__)).eras["files"].tolist() == [1, 1, 1]
    found = vs.survey(series(tmp_path, 3, lambda i: {"attrs": {"scale_factor": 0.5 + i}}))
    assert found.eras["files"].tolist() == [3]
    assert "packing of 'tas': 3 values" in str(found)


def test_files_that_are_alike_are_one_era(tmp_path):
    """With first and last value as xarray decodes them."""
    files = series(tmp_path, 6)
    found = vs.survey(files[::-1])
    assert found.dim == "time"
    assert names(found.table["url"]) == [f"f{i:03d}.nc" for i in range(6)]
    for (_, row), path in zip(found.table.iterrows(), files, strict=True):
        with xr.open_dataset(path) as opened:
            times = opened["time"].values.astype("M8[D]").astype(str)
            assert (row["first"], row["last"], row["steps"]) == (times[0], times[-1], opened.sizes["time"])
            assert row["variables"] == len(opened.variables)
    assert found.table["size"].tolist() == [Path(path).stat().st_size for path in files]
    ((_, era),) = found.eras.iterrows()
    assert (era["files"], era["first"], era["last"], era["changes"]) == (6, "2000-01-01", "2000-01-30", "")
    for part in ("outliers", "duplicates", "interleaved", "gaps", "failures", "irregular"):
        assert len(getattr(found, part)) == 0
    assert len(found) == 6


def test_files_of_one_time_each_follow_it(tmp_path):
    """A scalar coordinate, as fields of GRIB files have; what is missing between them is seen."""
    for day in (0, 1, 2, 4, 5):
        data = xr.Dataset(
            {"t": (("y", "x"), np.full((2, 3), day))},
            {"time": np.datetime64("2020-01-01", "ns") + np.timedelta64(day, "D"), "y": [0, 1]},
        )
        data["time"].encoding["units"] = "days since 2020-01-01"
        data.to_netcdf(tmp_path / f"{9 - day}.nc", engine="netcdf4")
    (tmp_path / "3.nc").write_bytes((tmp_path / "4.nc").read_bytes())
    found = vs.survey(str(tmp_path / "*.nc"))
    assert found.dim == "time"
    assert [Path(x).name for x in found.table.url] == ["9.nc", "8.nc", "7.nc", "5.nc", "3.nc", "4.nc"]
    assert "1 step between 2020-01-03 and 2020-01-05" in str(found)
    assert "3.nc and 4.nc: same" in str(found)


@pytest.mark.parametrize(
    ("later", "said"),
    [
        ({"shuffle": False}, "codecs of tas: shuffle + zlib -> zlib"),
        ({"fletcher32": True}, "codecs of tas: shuffle + zlib -> fletcher32 + shuffle + zlib"),
        ({"chunk": 2}, "chunks of tas: 1 x 4 -> 2 x 4"),
        ({"dtype": "f8"}, "dtype of tas: float32 -> float64"),
        ({"dtype": ">f4", "endian": "big"}, "dtype of tas: float32 -> float32 big-endian"),
        ({"attrs": {"scale_factor": 0.5}}, "packing of tas: none -> scale_factor=0.5"),
        ({"attrs": {"units": "days since 2000-01-01"}}, "time units of tas: none -> days"),
        ({"extra": ("pr",)}, "pr: absent -> there"),
        ({"attrs": {"missing_value": np.float32(-9)}}, "fill of tas: unwritten="),
        ({"calendar": "noleap"}, "calendar of time: standard -> noleap"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "+".join(value),
)
def test_an_era_begins_where_files_change(later, said, tmp_path):
    """And says what has changed, once."""
    found = vs.survey(series(tmp_path, 8, lambda i: later if i >= 5 else {}))
    assert found.eras["files"].tolist() == [5, 3]
    if "calendar" not in later:
        assert found.eras["first"].tolist() == ["2000-01-01", "2000-01-26"]
    assert found.eras["changes"][0] == ""
    assert found.eras["changes"][1].startswith(said)
    assert found.eras["changes"][1].count(";") == ("units" in str(later))
    assert found.table["era"].tolist() == [1] * 5 + [2] * 3
    assert names(found.eras["first_url"]) == ["f000.nc", "f005.nc"]
    assert names(found.eras["last_url"]) == ["f004.nc", "f007.nc"]


@pytest.mark.parametrize(
    "change",
    [
        lambda i: {"complevel": 1 + i % 9},
        lambda i: {"units": f"days since {np.datetime64('2000-01-01') + np.timedelta64(5 * i, 'D')}", "offset": 5 * i},
        lambda i: {"attrs": {"long_name": f"of file {i}"}, "file_attrs": {"history": f"made {i}"}},
    ],
    ids=["level", "epoch of each file", "attributes"],
)
def test_what_does_not_hinder_joining_makes_no_eras(change, tmp_path):
    """Compression levels, units of times that are loaded, texts."""
    found = vs.survey(series(tmp_path, 12, change))
    assert found.eras["files"].tolist() == [12]
    assert not len(found.gaps)
    assert found.table["first"].tolist() == [
        str(np.datetime64("2000-01-01") + np.timedelta64(5 * i, "D")) for i in range(12)
    ]


def test_numbers_that_differ_in_dtype_alone_are_told_apart(tmp_path):
    """A scale of float32 unpacks to other values than one of float64, and so joining takes them for different."""
    scales = [np.float64(0.5)] * 3 + [np.float32(0.5)] * 3
    found = vs.survey(series(tmp_path, 6, lambda i: {"dtype": "i2", "attrs": {"scale_factor": scales[i]}}))
    assert found.eras["changes"][1] == "packing of tas: scale_factor=0.5 -> scale_factor=0.5 (float32)"


def test_files_in_one_chunk_of_their_length_are_alike(tmp_path):
    """Months are as long as they are; then chunks of one day begin an era."""
    lengths, start, files = [31, 28, 31, 30, 31, 30], 0, []
    for i, n in enumerate(lengths):
        files.append(write(tmp_path / f"{i}.nc", start, n, chunk=n if i < 4 else 1))
        start += n
    found = vs.survey(files)
    assert found.eras["files"].tolist() == [4, 2]
    assert found.eras["changes"][1] == "chunks of tas: all x 4 -> 1 x 4"


def test_a_short_last_file_in_chunks_of_the_others_is_alike(tmp_path):
    """Its chunks are longer than the file."""
    files = [write(tmp_path / f"{i}.nc", 24 * i, 24 if i < 3 else 5, chunk=24) for i in range(4)]
    found = vs.survey(files)
    assert found.eras["files"].tolist() == [4]
    row = found.variables.set_index(["variable", "property"]).loc["tas", "chunks"]
    assert (row["most"], row["values"]) == ("24 x 4", 1)


def test_a_property_that_changes_too_often_makes_no_eras_but_is_told(tmp_path):
    """Two kinds of files in turn."""
    found = vs.survey(series(tmp_path, 20, lambda i: {"shuffle": i % 2 == 0}))
    assert found.eras["files"].tolist() == [20]
    row = found.variables.set_index(["variable", "property"]).loc["tas", "codecs"]
    assert (row["values"], row["files"], row["changes"], row["varies"]) == (2, 10, 19, True)
    assert "codecs of 'tas': 2 values, most often shuffle + zlib (10 files); 19 changes (in no era: too often)" in str(
        found
    )


def test_variables_that_change_together_are_one_line(tmp_path):
    """Of many the first ones are named."""
    names = tuple(f"v{i}" for i in range(6))
    text = str(vs.survey(series(tmp_path, 6, lambda i: {"extra": names if i >= 3 else ()})))
    assert "  'v0', 'v1', 'v2', 'v3' and 2 more: 2 values, most often there (3 files); 1 change\n" in text + "\n"
    assert "era 2: 2000-01-16 to 2000-01-30, 3 files: v0, v1, v2, v3 and 2 more: absent -> there\n" in text


def test_netcdf3_and_netcdf4_are_two_eras(tmp_path):
    """Another byte order, and no codecs."""
    found = vs.survey(series(tmp_path, 6, lambda i: {"kind": "NETCDF3_CLASSIC"} if i < 3 else {}))
    assert found.eras["files"].tolist() == [3, 3]
    assert "dtype of tas: float32 big-endian -> float32" in found.eras["changes"][1]
    assert "codecs of tas: none -> shuffle + zlib" in found.eras["changes"][1]


def test_other_data_is_another_series(tmp_path):
    """Files of temperature and of rain, of the same days."""
    both = [write(tmp_path / f"{name}{i}.nc", 5 * i, name=name) for i in range(3) for name in ("tas", "pr")]
    found = vs.survey(both)
    assert found.eras["series"].tolist() == ["tas", "pr"]
    assert found.eras["files"].tolist() == [3, 3]
    assert not len(found.duplicates)
    assert "series 'pr'" in str(found)


SPANS = {
    "falling": [np.arange(10 * i, 10 * i + 10)[::-1] for i in range(4)],
    "nested": [np.arange(400), np.arange(100, 110) + 0.5],
    "missing at the ends": [[np.nan, 1, 2], [3, 4, np.nan]],
    "missing in one file": [[0, 1, 2], [np.nan, np.nan], [3, 4]],
    "one within another": [np.arange(i, i + 10 if i < 5 else i + 2) for i in range(6)],
    "in no order": [[5, 0, 9, 6], [15, 3, 13]],
}


@pytest.mark.parametrize("calendar", [None, "360_day"])
@pytest.mark.parametrize("case", SPANS)
def test_an_era_reaches_from_its_least_value_to_its_greatest(case, calendar, tmp_path):
    """Whatever the order in its files; as xarray decodes them."""
    if case == "missing in one file" and calendar:
        pytest.skip("xarray decodes no file whose dates in this calendar are all missing")
    times = SPANS[case]
    files = [write(tmp_path / f"{i}.nc", 0, times=x, calendar=calendar) for i, x in enumerate(times)]
    values = np.concatenate([xr.load_dataset(path)["time"].values for path in files])
    values = values[~pd.isnull(values)]
    least, greatest = (survey_line.label(x) for x in (values.min(), values.max()))
    ((_, era),) = vs.survey(files).eras.iterrows()
    assert (era["first"], era["last"]) == (least, greatest)


def test_an_outlier_is_told_with_its_least_value(tmp_path):
    """Which lies within its era."""
    times = [np.arange(10 * i, 10 * i + 10)[::-1] for i in range(5)]
    found = vs.survey(series(tmp_path, 5, lambda i: {"times": times[i], "dtype": "f8" if i == 2 else "f4"}))
    assert found.outliers["first"].tolist() == ["2000-01-21"]


def test_files_without_chunks_of_a_variable_say_nothing_of_its_codecs(tmp_path):
    """What was never written is not a change."""
    files = series(tmp_path, 5)
    variables = {
        "time": ("f8", "time", np.arange(10, 15), {"units": EPOCH}),
        "x": ("f8", "x", np.arange(4)),
        "tas": ("f4", "time x", None, {}, {"chunksizes": (1, 4), "zlib": True}),
    }
    netcdf4_file(tmp_path / "f002.nc", {"time": None, "x": 4}, variables)
    assert vs.survey(files).eras["files"].tolist() == [5]


# -- outliers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [{3}, {3, 4}, {2, 6}])
def test_one_or_two_files_unlike_their_neighbours_are_outliers(odd, tmp_path):
    """They make no era."""
    found = vs.survey(series(tmp_path, 9, lambda i: {"dtype": "f8"} if i in odd else {}))
    assert names(found.outliers["url"]) == [f"f{i:03d}.nc" for i in sorted(odd)]
    assert set(found.outliers["differs"]) == {"dtype of tas: float32 -> float64"}
    assert found.eras["files"].tolist() == [9]
    assert found.eras["outliers"].tolist() == [len(odd)]
    assert np.flatnonzero(found.table["is_outlier"]).tolist() == sorted(odd)


def test_two_different_files_side_by_side_are_outliers(tmp_path):
    """Each is unlike in its own way."""
    found = vs.survey(series(tmp_path, 8, lambda i: {3: {"dtype": "f8"}, 4: {"chunk": 2}}.get(i, {})))
    assert found.outliers["differs"].tolist() == ["dtype of tas: float32 -> float64", "chunks of tas: 1 x 4 -> 2 x 4"]


def test_three_files_are_an_era(tmp_path):
    """And so are those at the end, which nothing follows."""
    found = vs.survey(series(tmp_path, 10, lambda i: {"dtype": "f8"} if i in (3, 4, 5, 9) else {}))
    assert found.eras["files"].tolist() == [3, 3, 3, 1]
    assert not len(found.outliers)


codes = arrays(np.int32, st.tuples(st.integers(1, 30), st.integers(0, 4)), elements=st.integers(-1, 2))


@settings(deadline=None, max_examples=examples(200))
@given(codes, st.data())
def test_files_of_an_era_are_alike_but_for_outliers(codes, data):
    """Whatever the archive: eras are runs, and each begins with a change."""
    is_structure = data.draw(arrays(np.bool_, codes.shape[1]))
    found = find_periods(codes, is_structure)
    assert set(np.diff(found.era).tolist()) <= {0, 1}
    used = found.codes[:, is_structure & ~found.varies]
    for era in range(int(found.era[-1]) + 1):
        alike = used[(found.era == era) & ~found.is_outlier]
        assert (alike == alike[0]).all()
        assert (found.typical[era][is_structure & ~found.varies] == alike[0]).all()
        assert (used[(found.era == era) & found.is_outlier] != alike[0]).any(axis=1).all()
        if era:
            assert (found.typical[era] != found.typical[era - 1])[is_structure & ~found.varies].any()
    said = codes != -1
    assert (found.codes[said] == codes[said]).all()


# -- duplicates and gaps --------------------------------------------------------------------------------------


def test_a_copy_is_there_twice(tmp_path):
    """By its coordinate."""
    files = series(tmp_path, 4)
    shutil.copy(files[1], tmp_path / "copy.nc")
    found = vs.survey([*files, tmp_path / "copy.nc"])
    assert names(found.duplicates["url"]) == ["f001.nc"]
    assert names(found.duplicates["other"]) == ["copy.nc"]
    assert found.duplicates[["kind", "values"]].values.tolist() == [["same labels", 5]]
    assert not len(found.gaps)


def stored_twice(tmp_path, *starts):
    """Put files into memory under names a, b ...; give their URLs."""
    target = MemoryTarget("memory://survey")
    for name, start in zip("abcdef", starts, strict=False):
        target.put(f"{name}.nc", Path(write(tmp_path / f"{name}.nc", start)).read_bytes())
    return [f"memory://survey/{name}.nc" for name in "abcdef"[: len(starts)]]


def test_a_copy_of_the_same_size_and_etag_is_told(tmp_path):
    """Once, and the values agree too."""
    found = vs.survey(stored_twice(tmp_path, 0, 5, 10, 0))
    assert found.duplicates.values.tolist() == [
        ["memory://survey/a.nc", "memory://survey/d.nc", "same labels, size and etag", 5]
    ]
    assert "a.nc and d.nc: same labels, size and etag (5 labels)" in str(found)


def test_size_and_etag_alone_make_no_duplicate(tmp_path, monkeypatch):
    """A server may make the etag of a time and a size, which files of one day share."""
    monkeypatch.setattr(sequence, "read_version", lambda group: (1000, '"3b9aca00-3e8"'))
    assert not len(vs.survey(stored_twice(tmp_path, 0, 5, 10)).duplicates)


def test_size_and_etag_are_told_where_there_is_no_coordinate(tmp_path, monkeypatch):
    """As what they are."""
    monkeypatch.setattr(sequence, "read_version", lambda group: (1000, "x"))
    for i in range(2):
        xr.Dataset({"v": ("x", np.ones(3) + i)}).to_netcdf(tmp_path / f"{i}.nc", engine="h5netcdf")
    found = vs.survey(str(tmp_path / "*.nc"))
    assert found.duplicates["kind"].tolist() == ["same size and etag"]
    assert "  0.nc and 1.nc: same size and etag\n" in str(found) + "\n"


def test_overlaps_are_told(tmp_path):
    """Some values are in two files."""
    files = [write(tmp_path / "a.nc", 0, 5), write(tmp_path / "b.nc", 4, 5), write(tmp_path / "c.nc", 9, 5)]
    found = vs.survey(files).duplicates
    assert [[*names(row[:2]), *row[2:]] for row in found.values.tolist()] == [["a.nc", "b.nc", "overlap", 1]]


def test_duplicates_have_their_place_on_the_timeline(tmp_path):
    """It is the first value that both files can have; values that one file repeats have none."""
    files = [write(tmp_path / "a.nc", 0, 5), write(tmp_path / "b.nc", 4, 5), write(tmp_path / "c.nc", 9, 12)]
    again = [write(tmp_path / "d.nc", 10, 5), write(tmp_path / "e.nc", 0, times=[1, 2, 2, 3])]
    duplicates = vs.survey([*files, *again]).timeline.duplicates
    found = {x.text.partition(":")[0]: x.at and round(x.at, 9) for x in duplicates}
    assert found == {"a.nc and b.nc": 0.2, "c.nc and d.nc": 0.5, "a.nc and e.nc": 0.05, "e.nc": None}


def test_every_file_that_a_long_one_holds_overlaps_it(tmp_path):
    """Not the next one alone."""
    files = [write(tmp_path / "long.nc", 0, 60), *(write(tmp_path / f"{i}.nc", 10 * i, 5) for i in (1, 3, 5))]
    found = vs.survey(files)
    assert names(found.duplicates["url"]) == ["long.nc"] * 3
    assert names(found.duplicates["other"]) == ["1.nc", "3.nc", "5.nc"]
    assert found.duplicates["values"].tolist() == [5, 5, 5]
    assert not len(found.interleaved)


def test_files_that_interleave_are_no_duplicates(tmp_path):
    """Even days and odd days; a third one that repeats odd days is found, too."""
    even, odd = (write(tmp_path / f"{name}.nc", 0, times=np.arange(i, 40, 2)) for i, name in enumerate(("even", "odd")))
    found = vs.survey([even, odd])
    assert not len(found.duplicates)
    assert [names(row) for row in found.interleaved.values.tolist()] == [["even.nc", "odd.nc"]]
    assert "interleaved, with no value twice\n  even.nc and odd.nc" in str(found)
    found = vs.survey([even, odd, write(tmp_path / "again.nc", 0, times=[11, 13])])
    assert [[*names(row[:2]), *row[2:]] for row in found.duplicates.values.tolist()] == [
        ["odd.nc", "again.nc", "overlap", 2]
    ]


def test_values_that_a_file_repeats_are_told(tmp_path):
    """Such a file cannot be joined by its coordinate."""
    found = vs.survey([write(tmp_path / "a.nc", 0, times=[0, 1, 2, 2, 3, 3, 3]), write(tmp_path / "b.nc", 4)])
    assert [[*names(row[:2]), *row[2:]] for row in found.duplicates.values.tolist()] == [["a.nc", "a.nc", "repeats", 3]]
    assert "duplicates\n  a.nc: repeats 3 labels" in str(found)


def test_overlaps_of_tiles_are_no_duplicates(tmp_path):
    """Another coordinate tells them apart."""
    found = vs.survey([write(tmp_path / "a.nc", 0), write(tmp_path / "b.nc", 2, x=4)]).duplicates
    assert not len(found)


def test_without_the_coordinates_that_tell_files_apart_there_is_no_plan(tmp_path, monkeypatch):
    """The failure says why: to advise that one file is left out would be wrong."""
    files = [write(tmp_path / "a.nc", 0), write(tmp_path / "b.nc", 0)]

    def failing(group, **options):
        raise StorageError(f"{group.url} does not answer")

    monkeypatch.setattr(archive_of, "to_dataset", failing)
    found = vs.survey(files)
    assert found.duplicates["kind"].tolist() == ["same labels"]
    assert found.plan == ()
    assert found.failures["error"].tolist() == ["StorageError"] * 2


values_of_files = st.lists(
    st.lists(st.integers(-4, 12), min_size=1, max_size=6).map(lambda x: np.array(x, np.int64)), max_size=6
)


def repeats(parts):
    return {(i, i): len(part) - len(set(part)) for i, part in enumerate(parts) if len(part) > len(set(part))}


def overlaps(parts):
    pairs = itertools.combinations(range(len(parts)), 2)
    return {(i, j): n for i, j in pairs if (n := len(set(parts[i]) & set(parts[j])))}


@settings(deadline=None, max_examples=examples(300))
@given(values_of_files)
def test_shared_values_are_counted(parts):
    """Of every pair, as sets of Python do it."""
    lists = [part.tolist() for part in parts]
    assert count_shared(parts) == Shared(overlaps(lists) | repeats(lists), True)


@settings(deadline=None, max_examples=examples(300))
@given(values_of_files)
def test_of_very_many_shared_values_those_of_neighbours_are_counted(parts):
    """Counts are those of sets all the same, and each file that overlaps others is there with the nearest of them."""
    lists = [part.tolist() for part in parts]
    every = overlaps(lists)
    nearest = {(i, min(b for a, b in every if a == i)) for i, _ in every}
    nearest |= {(max(a for a, b in every if b == j), j) for _, j in every}
    found = count_shared(parts, most=0)
    assert found.counts == {pair: n for pair, n in every.items() if pair in nearest} | repeats(lists)
    assert found.has_all is not bool(every)


def test_ten_thousand_files_that_all_overlap_take_bounded_work():
    """Of fifty million pairs twenty thousand are told."""
    found = count_shared([np.array([0, 2 * i + 1, 2 * i + 3]) for i in range(10_000)])
    assert not found.has_all
    assert found.counts == {(i, i + 1): 2 for i in range(9_999)}


def test_files_that_begin_day_after_day_overlap_each_other(tmp_path):
    """Not the first one alone, and none is interleaved."""
    spans = [(0, 10), (1, 11), (2, 12), (3, 5)]
    files = [write(tmp_path / f"{i}.nc", 0, times=np.arange(*span)) for i, span in enumerate(spans)]
    found = vs.survey(files)
    told = {(int(row.url[-4]), int(row.other[-4])): row["values"] for _, row in found.duplicates.iterrows()}
    times = [xr.load_dataset(path)["time"].values.tolist() for path in files]
    assert told == overlaps(times)
    assert len(told) == 6
    assert not len(found.interleaved)
    assert "no value twice" not in str(found)


def test_a_text_that_leaves_out_pairs_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(sequence, "count_shared", lambda parts: count_shared(parts, most=2))
    text = str(vs.survey([write(tmp_path / f"{i}.nc", i) for i in range(3)]))
    assert "duplicates (for each file, only the nearest overlapping files before and after it)\n  0.nc and 1.nc" in text
    assert "0.nc and 2.nc" not in text


@settings(deadline=None, max_examples=examples(300))
@given(values_of_files)
def test_a_file_is_interleaved_where_it_begins_before_the_end_of_one_before_it(parts):
    """Paired with the one that ends last, where they have no value in common."""
    order = sorted(range(len(parts)), key=lambda i: parts[i].min())
    expected = []
    for n, b in enumerate(order):
        a = max(order[:n], key=lambda i: parts[i].max(), default=b)
        if parts[b].min() < parts[a].max() and not set(parts[a].tolist()) & set(parts[b].tolist()) and a != b:
            expected.append((a, b))
    assert find_interleaved(parts) == expected


def test_tiles_are_no_duplicates(tmp_path):
    """Another coordinate tells them apart."""
    paths = [write(tmp_path / "a.nc", 0), write(tmp_path / "b.nc", 0, x=4)]
    found = vs.survey(paths)
    assert not len(found.duplicates)
    assert found.plan == ("along 'x'",)
    assert vs.open_virtual_mfdataset(paths).sizes == {"time": 5, "x": 8}


def test_gaps_are_missing_steps(tmp_path):
    """With the values around them."""
    files = series(tmp_path, 6)
    found = vs.survey([path for i, path in enumerate(files) if i not in (2, 3)])
    assert found.gaps.values.tolist() == [["tas", "2000-01-10", "2000-01-21", 10]]
    assert "10 steps between 2000-01-10 and 2000-01-21" in str(found)


def test_gaps_in_other_calendars_have_their_dates(tmp_path):
    """There is a 30th of February."""
    files = [write(tmp_path / f"{i}.nc", 20 * i, 20, calendar="360_day") for i in range(5) if i != 2]
    found = vs.survey(files)
    with xr.open_dataset(files[-1]) as opened:
        assert found.table["last"].tolist()[-1] == str(opened["time"].values[-1])
    assert found.gaps.values.tolist() == [["tas", "2000-02-10 00:00:00", "2000-03-01 00:00:00", 20]]


@pytest.mark.parametrize("missing", [set(), {7}, {3, 4, 15}])
def test_months_are_regular(missing):
    """Of 28 to 31 days; a missing one is found."""
    months = pd.date_range("2001-01-01", periods=36, freq="MS")
    kept = [i for i in range(36) if i not in missing]
    gaps = find_gaps(months[kept].values.astype("M8[ns]").view("i8"))
    assert sum(gap.n_steps for gap in gaps) == len(missing)


def test_steps_that_are_not_regular_have_no_gaps(tmp_path):
    """Orbits come when they come, which is said."""
    starts = np.cumsum([0, 3, 9, 20, 4, 35, 6, 17])
    found = vs.survey([write(tmp_path / f"{i}.nc", start, 1) for i, start in enumerate(starts)])
    assert found.irregular.values.tolist() == [["tas", "the labels have no regular step"]]
    assert not len(found.gaps)
    assert "gaps that cannot be known\n  the labels have no regular step" in str(found)


@pytest.mark.parametrize(("n", "reasons"), [(1, []), (2, ["two labels do not determine a step"]), (3, [])])
def test_two_values_have_no_regular_steps(n, reasons, tmp_path):
    """January and June: whether months are missing cannot be known."""
    found = vs.survey([write(tmp_path / f"{i}.nc", 150 * i, 1) for i in range(n)])
    assert found.irregular["reason"].tolist() == reasons
    assert not len(found.gaps)


def test_text_has_no_gaps_but_may_be_there_twice(tmp_path):
    """Both are said."""
    for i, stations in enumerate((["b", "a"], ["c", "b"])):
        xr.Dataset(coords={"station": stations}).to_netcdf(tmp_path / f"{i}.nc")
    found = vs.survey(str(tmp_path / "*.nc"), dim="station")
    assert found.irregular["reason"].tolist() == ["labels of type str have no steps"]
    assert found.duplicates[["kind", "values"]].values.tolist() == [["overlap", 1]]


def test_files_in_two_calendars_have_the_gaps_of_each(tmp_path):
    """What is between them is not known, which is said."""
    files = [write(tmp_path / f"a{i}.nc", 5 * i, calendar="noleap") for i in (0, 1, 3)]
    files += [write(tmp_path / f"b{i}.nc", 1000 + 5 * i) for i in (0, 2)]
    found = vs.survey(files)
    assert found.gaps["steps"].tolist() == [5, 5]
    assert found.irregular["reason"].tolist() == [
        "labels of several kinds, between which gaps cannot be found: cftime, calendar 'noleap', datetime64"
    ]


def test_gaps_of_large_integers_are_those_of_python():
    """Which neither int64 nor float64 holds."""
    assert find_gaps(np.array([2**63, 2**63 + 1, 2**63 + 2, 2**63 + 5], np.uint64)) == [Gap(2**63 + 2, 2**63 + 5, 2)]
    ends = np.array([-(2**63), -(2**63) + 1, -(2**63) + 2, 2**63 - 1], np.int64)
    assert find_gaps(ends)[0].n_steps == 2**64 - 4
    step, far = 2.0**-1000, 2.0**1000
    assert find_gaps(np.array([0, step, 2 * step, far])) == [Gap(2 * step, far, 2**2000 - 3)]


def test_integers_of_two_dtypes_are_compared_as_integers(tmp_path):
    """Of which float64, that both become together, would make one number."""
    for i, dtype in enumerate(("i8", "u8")):
        at = np.arange(3, dtype=dtype) * 4 + 2**62 + 2 * i
        xr.Dataset({"v": ("id", np.ones(3))}, {"id": at}).to_netcdf(tmp_path / f"{i}.nc")
    found = vs.survey(str(tmp_path / "*.nc"), dim="id")
    assert not len(found.duplicates)
    assert [names(row) for row in found.interleaved.values.tolist()] == [["0.nc", "1.nc"]]
    assert not len(found.gaps)
    assert not len(found.irregular)


def test_values_that_are_not_finite_are_left_out(tmp_path):
    """They would overlap everything."""
    files = [write(tmp_path / f"{i}.nc", 5 * i, units="m") for i in range(3)]
    files.append(write(tmp_path / "odd.nc", 0, units="m", times=[np.inf, np.nan, -np.inf, 15.0]))
    found = vs.survey(files)
    assert not len(found.duplicates)
    assert not len(found.interleaved)
    assert not len(found.gaps)


@settings(deadline=None, max_examples=examples(100))
@given(st.integers(8, 60), st.data())
def test_a_run_without_some_steps_has_these_gaps(n, data):
    """As many steps are missing as were taken out."""
    inner = st.sets(st.integers(1, n - 2), max_size=n // 8)
    missing = data.draw(inner)
    kept = np.array([i for i in range(n) if i not in missing]) * 7.5
    gaps = find_gaps(np.random.default_rng(0).permutation(kept))
    assert sum(gap.n_steps for gap in gaps) == len(missing)
    assert all(gap == Gap(gap.after, gap.after + 7.5 * (gap.n_steps + 1), gap.n_steps) for gap in gaps)


# -- what it reads, and what fails ----------------------------------------------------------------------------


def test_bad_files_do_not_stop_it(tmp_path):
    """They are named with the reason."""
    files = series(tmp_path, 3)
    (tmp_path / "bad.nc").write_bytes(Path(files[0]).read_bytes()[:700])
    (tmp_path / "odd.txt").write_text("no data")
    found = vs.survey([tmp_path / "gone.nc", files[0], tmp_path / "bad.nc", *files[1:], tmp_path / "odd.txt"])
    assert len(found) == 3
    assert dict(zip(names(found.failures["url"]), found.failures["error"], strict=True)) == {
        "gone.nc": "SourceNotFoundError",
        "bad.nc": "MalformedFileError",
        "odd.txt": "UnknownFormatError",
    }
    assert "3 failed" in str(found)


def test_a_coordinate_that_cannot_be_read_or_decoded_is_a_failure(tmp_path):
    """The file stays in the table."""
    files = series(tmp_path, 3)
    with netCDF4.Dataset(files[1], "a") as file:
        file["time"].units = "days since the flood"
    found = vs.survey(files)
    assert found.failures["error"].tolist() == ["ReaderError"]
    assert "cannot be decoded" in found.failures["message"][0]
    assert len(found) == 3
    assert found.table["first"].tolist() == ["2000-01-01", "2000-01-11", ""]


@pytest.mark.parametrize("at", [0, 3, 8])
def test_one_coordinate_that_cannot_be_decoded_fails_alone(at, tmp_path):
    """Among files with the same units, which are decoded together."""
    bad = {"times": [1e300, 2e300]}
    found = vs.survey(series(tmp_path, 9, lambda i: bad if i == at else {}))
    assert names(found.failures["url"]) == [f"f{at:03d}.nc"]
    assert "cannot be decoded" in found.failures["message"][0]
    assert (found.table["first"] == "").sum() == 1
    assert (found.eras["first"] != "").all()
    assert (found.eras["last"] != "").all()


def test_one_far_date_leaves_the_others_as_they_are(tmp_path):
    """Decoded together, all would be dates of cftime."""
    files = series(tmp_path, 5, lambda i: {"times": [2_900_000]} if i == 2 else {})
    found = vs.survey(files)
    with xr.open_dataset(files[2], decode_times=xr.coders.CFDatetimeCoder(use_cftime=True)) as opened:
        far = str(opened["time"].values[0])
    assert found.table["first"].tolist() == ["2000-01-01", "2000-01-06", "2000-01-16", "2000-01-21", far]
    assert found.gaps["steps"].tolist() == [5]
    assert "'standard'" in found.irregular["reason"][0]


def test_a_coordinate_that_is_gone_since_the_scan_is_a_failure(tmp_path, monkeypatch):
    """With the error of storage."""
    files = series(tmp_path, 3)
    read = decode.loaded_variable

    def failing(name, array, *arguments, **options):
        if array.a_url().endswith("f001.nc"):
            Path(files[1]).unlink()
        return read(name, array, *arguments, **options)

    monkeypatch.setattr(decode, "loaded_variable", failing)
    found = vs.survey(files)
    assert found.failures["error"].tolist() == ["SourceNotFoundError"]
    assert len(found) == 3


def test_coordinates_alone_are_read_once(tmp_path, monkeypatch):
    read, asked = variables.read_array, []

    def recorded(array, *arguments, **options):
        asked.append(array.name.strip("/"))
        return read(array, *arguments, **options)

    monkeypatch.setattr(variables, "read_array", recorded)
    files = series(tmp_path, 4)
    vs.survey(files)
    assert sorted(asked) == ["time"] * 4 + ["x"] * 4


@pytest.mark.parametrize("change", [1e-9, 0.5])
def test_the_plan_says_what_opening_says_of_another_coordinate(change, tmp_path):
    """Numbers that differ by rounding, and another grid."""
    files = []
    for i in range(3):
        files.append(tmp_path / f"{i}.nc")
        lon = np.array([0.0, 1.0, 2.0]) + change * (i == 2)
        xr.Dataset({"v": (("time", "lon"), np.full((1, 3), i))}, {"time": [i], "lon": lon}).to_netcdf(files[-1])
    with pytest.raises(CombineError) as caught:
        vs.open_virtual_mfdataset(files)
    assert vs.survey(files).plan == ("along 'time'", str(caught.value))
    ((name, value),) = caught.value.remedies[0].arguments.items()
    joined = vs.open_virtual_mfdataset(files, **{name: value if name == "join" else float(value.python)})
    assert joined.sizes == {"time": 3, "lon": 3 if change < 0.1 else 6}


def test_a_coordinate_of_many_bytes_is_read(tmp_path):
    """A month of seconds is an axis of files, too."""
    files = []
    for i, (start, stop) in enumerate([(0, 2_200_000), (2_200_000, 2_200_010), (2_200_500, 2_200_510)]):
        seconds = xr.Variable("time", np.arange(start, stop, dtype="f8"), {"units": "seconds since 2000-01-01"})
        files.append(tmp_path / f"{i}.nc")
        xr.Dataset({"v": ("time", np.zeros(stop - start, "i1"))}, {"time": seconds}).to_netcdf(files[-1])
    found = vs.survey(files[::-1])
    assert names(found.table["url"]) == ["0.nc", "1.nc", "2.nc"]
    assert found.eras[["first", "last"]].values.tolist() == [["2000-01-01", "2000-01-26T11:15:09"]]
    assert found.gaps["steps"].tolist() == [490]
    assert not len(found.failures)


@pytest.mark.parametrize(
    ("limit", "most", "failed"),
    [
        ("_MAX_FILE_BYTES", 40, ["1.nc"]),
        ("_MAX_TOTAL_BYTES", 120, ["3.nc"]),
        ("_MAX_TOTAL_BYTES", 100, ["2.nc", "3.nc"]),
    ],
)
def test_a_coordinate_of_too_many_bytes_is_a_failure(limit, most, failed, tmp_path, monkeypatch):
    """Not silence: the place of the file is not known."""
    files = [write(tmp_path / f"{i}.nc", 10 * i, 6 if i == 1 else 4) for i in range(4)]
    monkeypatch.setattr(survey_line, limit, most)
    found = vs.survey(files)
    assert names(found.failures["url"]) == failed
    for message in found.failures["message"]:
        assert message.startswith("coordinate 'time' was not read, so the position of this file is not known. It has ")
    assert names(found.table["url"][found.table["first"] == ""]) == failed


def test_remote_coordinates_are_read_in_threads(tmp_path):
    """With the same result."""
    target = MemoryTarget("memory://survey-threads")
    for i, path in enumerate(series(tmp_path, 5)):
        target.put(f"{i}.nc", Path(path).read_bytes())
    found = vs.survey([f"memory://survey-threads/{i}.nc" for i in range(5)])
    assert found.table["first"].tolist() == [f"2000-01-{1 + 5 * i:02d}" for i in range(5)]


# -- the dimension --------------------------------------------------------------------------------------------


def test_files_without_a_dimension_stay_in_the_order_given(tmp_path):
    """They have eras all the same."""
    paths = []
    for i in range(4):
        paths.append(tmp_path / f"{3 - i}.nc")
        xr.Dataset({"v": ("x", np.ones(3, "f4" if i < 2 else "f8"))}).to_netcdf(paths[-1], engine="h5netcdf")
    found = vs.survey(paths)
    assert found.dim is None
    assert names(found.table["url"]) == ["3.nc", "2.nc", "1.nc", "0.nc"]
    assert found.eras["files"].tolist() == [2, 2]
    assert "in the given order" in str(found)
    assert "era 1: 3.nc on, 2 files" in str(found)


def archive(folder, n, dims, *, units=(), unlimited=(), name="v", others=()):
    """Write files with a data variable of dimensions; with units, those have a coordinate."""
    sizes = {dim: None if dim in unlimited else 2 for dim in (*dims, *others)}
    data = {name: ("f4", " ".join(dims), np.zeros((2,) * len(dims)))}
    files = []
    for i in range(n):
        labels = {dim: ("f8", dim, [2 * i, 2 * i + 1], {"units": unit}) for dim, unit in dict(units).items()}
        files.append(str(netcdf4_file(folder / f"{name}{i}.nc", sizes, labels | data)))
    return files


BOTH = {"time": EPOCH, "reftime": EPOCH}


@pytest.mark.parametrize(
    ("options", "dim"),
    [
        ({"dims": ("time", "x"), "units": BOTH, "unlimited": BOTH, "others": ("reftime",)}, "time"),
        ({"dims": ("time", "reftime"), "units": BOTH, "unlimited": BOTH}, "time"),
        ({"dims": ("time", "reftime"), "units": BOTH, "unlimited": ("reftime",)}, "reftime"),
        ({"dims": ("x", "time"), "units": {"time": EPOCH, "x": "m"}}, "time"),
        ({"dims": ("time", "x"), "units": {"time": EPOCH, "x": "m"}, "unlimited": ("x",)}, "x"),
        ({"dims": ("time", "x"), "units": {"time": EPOCH}, "unlimited": ("x",)}, "time"),
        ({"dims": ("y", "x"), "unlimited": ("x",)}, "x"),
        ({"dims": ("y", "x"), "units": {"time": EPOCH}, "others": ("time",)}, "time"),
        ({"dims": ("y", "x"), "units": {"y": "m"}}, None),
    ],
)
def test_the_dimension_is_one_of_data_variables(options, dim, tmp_path):
    """Unlimited and with times, unlimited with a coordinate, with times, unlimited; where axes begin with it."""
    assert vs.survey(archive(tmp_path, 3, **options)).dim == dim


def test_the_dimension_is_that_of_most_files(tmp_path):
    """One file that is better described does not decide for nine."""
    files = archive(tmp_path, 9, ("time",), units={"time": EPOCH})
    files += archive(tmp_path, 1, ("obs_time",), units={"obs_time": EPOCH}, unlimited=("obs_time",), name="o")
    assert vs.survey(files).dim == "time"


def test_a_dimension_without_coordinate_makes_no_eras_by_its_length(tmp_path):
    """Months as models write them, with their times in text; which are in the order given."""
    files = [
        netcdf4_file(tmp_path / f"{i}.nc", {"Time": None}, {"v": ("f4", "Time", np.zeros(n), {}, {"chunksizes": (1,)})})
        for i, n in enumerate([31, 28, 31, 30])
    ]
    found = vs.survey(files)
    assert found.dim == "Time"
    assert found.eras["files"].tolist() == [4]
    assert found.table["steps"].tolist() == [31, 28, 31, 30]
    assert found.irregular["reason"].tolist() == ["no file has labels of 'Time' that can be compared"]


def test_the_dimension_can_be_named(tmp_path):
    """Then it is that one, and another one is an error."""
    files = [write(tmp_path / f"{i}.nc", 0, x=4 * i) for i in (2, 0, 1)]
    found = vs.survey(files, dim="x")
    assert found.table["first"].tolist() == ["0", "4", "8"]
    assert not len(found.gaps)
    with pytest.raises(CombineError, match=r"no file has a dimension 'y'; they have \['time', 'x'\]"):
        vs.survey(files, dim="y")


def test_text_and_falling_coordinates(tmp_path):
    """Text has no order and no gaps; falling numbers are put in order of their least."""
    paths = []
    for i, station in enumerate(("b", "a")):
        paths.append(tmp_path / f"{i}.nc")
        xr.Dataset(coords={"station": [station], "z": np.arange(4.0)[::-1] + 4 * (1 - i)}).to_netcdf(paths[-1])
    found = vs.survey(paths, dim="station")
    assert found.table["first"].tolist() == ["b", "a"]
    found = vs.survey(paths, dim="z")
    assert found.table[["first", "last"]].values.tolist() == [["3", "0"], ["7", "4"]]


ATTRIBUTES = [
    np.array([1, 2], "i2"),
    np.float32(0.1),
    [1, 2],
    np.array([], "f4"),
    b"x",
    np.bytes_(b"abc"),
    np.array([(1, 2.0)], [("a", "i2"), ("b", "f4")]),
    np.array(["ab", "c"], np.dtypes.StringDType()),
    np.array("", "S0"),
    None,
    "two\nlines " + 100 * "x",
]


@pytest.mark.parametrize("value", ATTRIBUTES, ids=repr)
def test_attributes_of_every_kind_compare_and_have_a_text(value):
    """By value, not by object; a long text is cut."""
    groups = [vs.ManifestGroup(attributes={"a": copy.deepcopy(value)}, url=f"memory://{i}") for i in range(2)]
    facts = collect_facts([*groups, vs.ManifestGroup(attributes={"a": "other"})], None)
    assert facts.codes[:, 0].tolist() == [0, 0, 1]
    text = describe_fact("attribute a", facts.values[0][0])
    assert 0 < len(text) <= 60
    assert "\n" not in text


def test_patterns_are_taken_as_opening_takes_them(tmp_path):
    """Local and remote, one or among others, in natural order; one that matches nothing is an error."""
    files = [write(tmp_path / f"t{i}.nc", 5 * i) for i in (9, 10, 11)]
    assert names(vs.survey(tmp_path / "t1*.nc").table["url"]) == ["t10.nc", "t11.nc"]
    assert names(vs.survey([tmp_path / "t1*.nc", files[0]]).table["url"]) == ["t9.nc", "t10.nc", "t11.nc"]
    target = MemoryTarget("memory://survey-patterns")
    for path in files:
        target.put(f"deep/{Path(path).name}", Path(path).read_bytes())
    assert len(vs.survey("memory://survey-patterns/**/*.nc")) == 3
    with pytest.raises(SourceNotFoundError, match="nothing matches"):
        vs.survey([*files, str(tmp_path / "u*.nc")])


def test_a_url_of_a_list_may_be_percent_encoded(tmp_path):
    """As pathlib writes it, and as opening takes it."""
    path = tmp_path / "b c.nc"
    write(path, 0)
    for files in ([path.as_uri()], path.as_uri(), path.as_uri().replace("c.nc", "*.nc")):
        found = vs.survey(files)
        assert names(found.table["url"]) == ["b c.nc"]
        assert not len(found.failures)


def test_no_files_are_no_error():
    """There is nothing to tell."""
    found = vs.survey([])
    assert len(found) == 0
    assert str(found).startswith("0 files")


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_workers_scan(executor, tmp_path):
    """The survey is the same."""
    files = series(tmp_path, 4, lambda i: {"shuffle": i < 2})
    assert str(vs.survey(files, executor=executor)) == str(vs.survey(files))


def test_options_reach_the_scan(tmp_path):
    """Reader, cache and progress."""
    done = []
    files = series(tmp_path, 3)
    for _ in range(2):
        found = vs.survey(
            files, reader="hdf5", cache=tmp_path / "cache", progress=lambda *numbers: done.append(numbers)
        )
    assert len(found) == 3
    assert done[-1] == (3, 3)


class WithoutUrl(HDF5):
    """A reader of somebody else's, whose groups do not say where they are from."""

    def read(self, url, storage, options):
        return dataclasses.replace(HDF5.read(self, url, storage, options), url=None)


def test_files_are_named_by_their_arrays_where_groups_do_not_say(tmp_path):
    files = series(tmp_path, 3)
    assert vs.survey(files, reader=WithoutUrl()).table["url"].tolist() == [f"file://{x}" for x in files]


def test_the_text_is_short_and_can_be_whole(tmp_path):
    """Of each part the first lines."""
    (tmp_path / "bad").mkdir()
    bad = [tmp_path / "bad" / f"{i}.nc" for i in range(20)]
    found = vs.survey([*series(tmp_path, 2), *bad])
    assert "... and 8 more" in str(found)
    assert repr(found) == str(found)
    assert "more" not in found.text()
    assert found.text().count("SourceNotFoundError") == 20


@pytest.mark.parametrize(
    ("dim", "keys"),
    [
        ("step", {"stepRange": "6"}),
        ("isobaricInhPa", {"level": 500}),
    ],
)
def test_fields_that_share_their_scalar_time_join_as_they_are_built(tmp_path, dim, keys):
    """Only the coordinate that tells the files apart becomes a dimension."""
    usual = {"typeOfLevel": "isobaricInhPa", "level": 850, "stepRange": "0"}
    files = [make_grib.write(tmp_path / f"{i}.grib2", [make_grib.message(usual | x)]) for i, x in enumerate(({}, keys))]
    cube = vs.open_virtual_mfdataset(files)
    assert set(cube.sizes) == {dim, "latitude", "longitude"}
    assert vs.survey(files).plan[0] == f"along '{dim}'"


def test_fields_of_two_variables_are_merged_without_a_new_dimension(tmp_path):
    """As they are built; their scalar time is no dimension."""
    usual = {"typeOfLevel": "isobaricInhPa", "level": 850}
    fields = {name: make_grib.message(usual | {"shortName": name}) for name in ("t", "u")}
    files = [make_grib.write(tmp_path / f"{name}.grib2", [field]) for name, field in fields.items()]
    assert set(vs.open_virtual_mfdataset(files).sizes) == {"latitude", "longitude"}
    assert vs.survey(files).plan == ()

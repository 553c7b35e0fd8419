"""Plans of facts: random splits of a cube into files, in any order, give back the cube; what is ambiguous is said."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import virtualstack as vs
from virtualstack.errors import CombineError
from virtualstack.planning import FileFacts, FromAttribute, FromName, make_plan
from virtualstack.planning.names import dated, differing_words

DATES = pd.date_range("2001-01-01", periods=12)


def facts(source="a.nc", **given):
    """Return facts of a file with one variable along (time, x)."""
    usual = {"names": frozenset({"v"}), "dims": ("time", "x"), "sizes": {"time": 1, "x": 2}}
    return FileFacts(source=source, **{**usual, **given})


def cut(n, data):
    """Return the edges of a random cut of n elements."""
    return [0, *sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=3))), n]


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_cube_cut_into_files_is_the_cube_again(data):
    """By times, tiles and members, in any order of the files, without an option."""
    times, members = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 3))
    has_labels = data.draw(st.booleans())
    values = np.arange(members * times * 4 * 5.0).reshape(members, times, 4, 5)
    names = [f"r{i + 1}i1p1f1" for i in range(members)]
    whole = xr.Dataset({"v": (("variant_label", "time", "y", "x"), values)}, {"time": DATES[:times]})
    whole = whole.assign_coords(variant_label=names)
    whole = whole.assign_coords(y=np.arange(4.0), x=np.arange(5.0)) if has_labels else whole
    edges = cut(times, data), cut(4, data), cut(5, data)
    files = []
    for member in range(members):
        for (a, b), (c, d), (e, f) in itertools.product(*(list(itertools.pairwise(x)) for x in edges)):
            part = whole.isel(variant_label=member, time=slice(a, b), y=slice(c, d), x=slice(e, f), drop=True)
            firsts, sizes = np.array([e + 1, c + 1], "i4"), np.array([f - e, d - c], "i4")
            tile = {} if has_labels else {"DOMAIN_position_first": firsts, "DOMAIN_size_local": sizes}
            files.append(part.assign_attrs(variant_label=names[member], **tile))
    joined = vs.combine_datasets(data.draw(st.permutations(files)))
    expected = whole if members > 1 else whole.isel(variant_label=0, drop=True)
    xr.testing.assert_equal(joined.drop_attrs(), expected.transpose(*joined["v"].dims))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_scenes_with_a_scalar_time_are_sorted_and_their_gaps_are_known(data):
    """Of two scenes of a time, the one that the user wants is kept; xarray joins the same ones."""
    minutes = data.draw(st.lists(st.integers(0, 20), min_size=2, max_size=8))
    scenes = [
        xr.Dataset({"v": ("x", np.array([i, i + 0.5]))}, {"t": DATES[0] + pd.Timedelta(minutes=m), "x": [0, 1]})
        for i, m in enumerate(minutes)
    ]
    for keep in ("first", "last"):
        chosen = {}
        for m, scene in zip(minutes, scenes, strict=True):
            chosen[m] = chosen.get(m, scene) if keep == "first" else scene
        if len(chosen) < 2:
            continue
        expected = xr.concat([chosen[m] for m in sorted(chosen)], "t")
        xr.testing.assert_equal(vs.combine_datasets(scenes, duplicates=keep), expected)
    if len(set(minutes)) < len(minutes):
        with pytest.raises(CombineError, match=r"both have t .*\. duplicates='first' .* duplicates='last'"):
            vs.combine_datasets(scenes)


def test_overlaps_are_cut_as_the_user_wants():
    """The labels that an earlier (or later) file has are left out of the other."""
    a = xr.Dataset({"v": ("time", [0.0, 1, 2])}, {"time": DATES[:3]})
    b = xr.Dataset({"v": ("time", [11.0, 12, 13])}, {"time": DATES[1:4]})
    assert vs.combine_datasets([b, a], duplicates="first")["v"].values.tolist() == [0, 11, 12, 13]
    assert vs.combine_datasets([b, a], duplicates="last")["v"].values.tolist() == [0, 1, 2, 13]


@pytest.mark.parametrize("has_labels", [True, False])
def test_files_that_only_another_file_lies_between_are_a_question(has_labels):
    """Those at one place do not overlap each other; the file between them may have labels or none."""
    between = {"x": pd.Index([3, 4, 5])} if has_labels else {}
    files = [
        facts("a.nc", labels={"time": DATES[:1], "x": pd.Index([0, 1, 2, 3])}),
        facts("b.nc", labels={"time": DATES[:1], "x": pd.Index([4, 5, 6])}),
        facts("c.nc", labels={"time": DATES[1:2], **between}),
    ]
    question = make_plan(files).question
    assert isinstance(question, CombineError)
    assert question.variable == "x"
    assert question.right_url == ("c.nc" if has_labels else "b.nc")


def test_gaps_and_duplicates_are_in_the_plan():
    """So are the order, and the dimension that later files continue."""
    files = [
        facts(f"{i}.nc", labels={"time": DATES[[i]]}, unlimited=frozenset({"time"})) for i in (3, 0, 1, 2, 6, 7, 8, 2)
    ]
    plan = make_plan(files, duplicates="first")
    assert (plan.dims, plan.grows) == (("time",), "time")
    assert plan.order == (1, 2, 3, 0, 4, 5, 6)
    assert [(x.kept, x.other) for x in plan.duplicates] == [(3, 7)]
    assert [(gap.after, gap.before, gap.n_steps) for gap in plan.gaps] == [(DATES[3], DATES[6], 2)]
    assert plan.notes(files)[0] == "'2.nc' is not used for time 2001-01-03 00:00:00, which '2.nc' has"


def test_members_are_told_apart_by_attributes_or_by_their_names():
    """The plainest attribute is enough; a number of the version of a file is no member."""
    labels = {"time": DATES[:1]}
    by_attribute = [
        facts(f"{i}.nc", labels=labels, attributes={"variant_label": x, "realization_index": i, "tracking_id": i})
        for i, x in enumerate(("r1i1p1f1", "r2i1p1f1"))
    ]
    assert make_plan(by_attribute).new == {"variant_label": FromAttribute("variant_label")}
    plan = make_plan([facts(f"d/t_mem{i:02}_2001.nc", labels=labels) for i in (1, 2, 3)])
    assert plan.new == {"member": FromName(r"_mem(\d+)")}
    assert plan.labels == {"member": [1, 2, 3]}
    versions = make_plan([facts(f"t_{i}_c{c}.nc", labels={"time": DATES[[i]]}) for i, c in ((0, 71), (1, 72), (1, 79))])
    assert versions.new == {}
    assert "duplicates='first' keeps the first of them. Or duplicates='last'" in str(versions.question)
    assert "new_dim" not in str(versions.question)


def test_files_of_other_lengths_are_no_duplicates():
    """To keep one of them would lose the other."""
    files = [facts(f"{i}.nc", labels={"time": DATES[:1]}, sizes={"time": 1, "x": 2 + i}) for i in range(2)]
    question = str(make_plan(files).question)
    assert "duplicates=" not in question
    assert "2 elements along 'x', '1.nc' has 3" in question


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["S2_20200101_B04.tif", "S2_20200111_B04.tif"], FromName(r"(\d{8})", format="%Y%m%d")),
        (["T_20240406T103000_B4.tif", "T_20240511T103000_B4.tif"], FromName(r"(\d{8}T\d{6})", format="%Y%m%dT%H%M%S")),
        (["a_2001-01.nc", "a_2001-02.nc"], FromName(r"(\d{4}-\d{2})", format="%Y-%m")),
        (["v2.0.2021.01.tif", "v2.0.2021.02.tif"], FromName(r"(\d{4}\.\d{2})", format="%Y.%m")),
        (["/2021/01/15/a.tif", "/2021/02/15/a.tif"], FromName(r"(\d{4}/\d{2}/\d{2})", format="%Y/%m/%d")),
        (["a_2001-2005.nc", "a_2006-2010.nc"], FromName(r"(\d{4})", format="%Y")),
        (["20010101_12345678_20020101.nc", "20010101_12345678_20020102.nc"], None),
    ],
)
def test_dates_in_names(names, found):
    """Only those that are dates, in every name, and differ."""
    source = dated(names)
    assert source == found or (found is None and (source is None or len(set(source.texts(names))) == 2))


def test_words_are_found_again_by_their_expressions():
    """Whatever stands around them."""
    names = [f"/data/run{r}/tas_{m}_gn_{y}.nc" for r in (1, 2) for m in ("hist", "ssp") for y in (1990, 2000)]
    found = list(differing_words(names))
    assert len(found) == 3
    for words, _, source in found:
        texts = source.texts(names)
        assert [str(x) for x in texts] == [w.removeprefix("run") if "\\d" in source.pattern else w for w in words]


def test_members_in_folders_are_called_by_the_word_before_them(tmp_path):
    """Of two files with one name, the survey shows the folders."""
    members = []
    for i, member in enumerate("ab"):
        (folder := tmp_path / f"member_{member}").mkdir()
        members.append(xr.Dataset({"v": ("time", [i, 2.0])}, {"time": DATES[:2]}))
        members[-1].to_netcdf(folder / "t.nc", engine="netcdf4")
    paths = [tmp_path / f"member_{member}" / "t.nc" for member in "ab"]
    with pytest.raises(CombineError, match=r"new_dim={'member': vs.FromName\(r'/member_"):
        vs.open_virtual_mfdataset(paths)
    joined = vs.open_virtual_mfdataset(paths, new_dim={"member": vs.FromName(r"/member_([^_./-]+)")})
    expected = xr.concat(members, pd.Index(["a", "b"], name="member"))
    xr.testing.assert_equal(joined.virtual.open().load(), expected)
    assert "member_a/t.nc and member_b/t.nc: same labels" in str(vs.survey(paths))


@pytest.mark.filterwarnings("ignore:Unable to decode time axis")
@pytest.mark.parametrize("years", [(1, 2), (850, 1990), (2300, 2301), (2000, 2301)])
def test_dates_of_all_years_are_proposed(years, tmp_path):
    """The advice keeps the dates, also those that nanoseconds cannot count."""
    for i, year in enumerate(years):
        part = xr.Dataset({"v": ("x", [i, 2.0])}, {"x": [0, 1]}, {"date": f"{year:04}-02-03"})
        part.to_netcdf(tmp_path / f"{'ab'[i]}.nc", engine="netcdf4")
    with pytest.raises(CombineError, match=r"vs.FromAttribute\('date', format='%Y-%m-%d'\)"):
        vs.open_virtual_mfdataset(f"{tmp_path}/*.nc")
    how = {"time": vs.FromAttribute("date", format="%Y-%m-%d")}
    joined = vs.open_virtual_mfdataset(f"{tmp_path}/*.nc", new_dim=how).virtual.open()
    assert [x.strftime("%Y-%m-%d").zfill(10) for x in joined.time.to_index()] == [f"{year:04}-02-03" for year in years]
    assert joined.v.values.tolist() == [[0, 2], [1, 2]]


def test_words_that_tell_apart_only_together_are_proposed_together(tmp_path):
    """Models and scenarios: with the models alone, a scenario would be left out."""
    paths = {}
    for i, (model, scenario, year) in enumerate(itertools.product("AB", ("hist", "ssp"), (2000, 2001))):
        part = xr.Dataset({"v": ("time", [float(i)])}, {"time": [np.datetime64(f"{year}-01-01", "ns")]})
        paths[model, scenario, year] = tmp_path / f"v_{model}_{scenario}_{year}.nc"
        part.to_netcdf(paths[model, scenario, year], engine="netcdf4")
    with pytest.raises(CombineError, match="tells them apart") as question:
        vs.open_virtual_mfdataset(paths.values())
    assert "duplicates" not in str(question.value)
    new = {"part": vs.FromName(r"^v_([^_./-]+)"), "part2": vs.FromName(r"^v_[^_./-]+_([^_./-]+)")}
    assert question.value.remedies[0].arguments["new_dim"].keys() == new.keys()
    assert new["part2"].pattern in str(question.value)
    cube = vs.open_virtual_mfdataset(paths.values(), new_dim=new).virtual.open()
    for (model, scenario, year), path in paths.items():
        with xr.open_dataset(path, engine="netcdf4") as part:
            value = cube["v"].sel(part=model, part2=scenario, time=f"{year}-01-01").values
            np.testing.assert_array_equal(value, part["v"].values)
    with pytest.raises(CombineError, match=r"part2.*tells them apart") as question:  # the other one is still needed
        vs.open_virtual_mfdataset(paths.values(), new_dim={"part": new["part"]})
    assert "duplicates" not in str(question.value)


def test_dates_that_come_again_for_each_band_are_proposed_with_the_band():
    """The day of the month alone would be no date, and would tell no band."""
    names = [f"scene_2021-01-{day}_{band}.tif" for day in ("01", "05") for band in ("B02", "B8A")]
    files = [
        FileFacts(source=name, names=frozenset({"band_data"}), dims=("y", "x"), sizes={"y": 2, "x": 2})
        for name in names
    ]
    question = make_plan(files).question
    [remedy] = question.remedies
    proposed = remedy.arguments["new_dim"]
    assert {dim: repr(code) for dim, code in proposed.items()} == {
        "time": "vs.FromName(r'(\\d{4}-\\d{2}-\\d{2})', format='%Y-%m-%d')",
        "part": "vs.FromName(r'_([^_./-]+)\\.tif$')",
    }


def test_missing_labels_are_named_and_left_out_as_proposed(tmp_path):
    """Sorting, which helps other labels, does not help these."""
    for i, dates in enumerate((["2001-01-01", "NaT", "2001-01-03"], ["2001-02-01"])):
        part = xr.Dataset({"v": ("time", np.arange(len(dates)) + 10.0 * i)}, {"time": np.array(dates, "M8[ns]")})
        part.to_netcdf(tmp_path / f"{i}.nc", engine="netcdf4")
    with pytest.raises(CombineError, match="missing labels, 1 of 3") as question:
        vs.open_virtual_mfdataset(f"{tmp_path}/*.nc")
    assert "preprocess=lambda ds: ds.sel(time=ds.time.notnull())" in str(question.value)
    cube = vs.open_virtual_mfdataset(f"{tmp_path}/*.nc", preprocess=lambda ds: ds.sel(time=ds.time.notnull()))
    np.testing.assert_array_equal(cube.virtual.open()["v"].values, [0.0, 2.0, 10.0])

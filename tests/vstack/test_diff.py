"""What two snapshots differ in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import virtualstack as vs
from tests.amount import examples
from tests.vstack.stores import (
    Change,
    added,
    appended,
    create,
    create_rows,
    labels,
    opened,
    removed,
    values_of,
    virtual,
    written,
)
from virtualstack.cli.command import main
from virtualstack.combine.region import merged
from virtualstack.errors import SourceNotFoundError
from virtualstack.manifests import Fill, ManifestGroup, inline_array
from virtualstack.printable import MAX_SHOWN_ITEMS
from virtualstack.vstack.diff import Changed, Diff
from virtualstack.vstack.format.names import snapshot_key
from virtualstack.vstack.repository import Repository


@pytest.fixture
def url(tmp_path):
    return create_rows(tmp_path, title="a")


def overwrite(url, tmp_path, first, *values):
    Change(url, lambda group: group, overlays=written("v", first, virtual(tmp_path, values))).commit()


def test_nothing(url):
    """A snapshot and itself."""
    found = Repository.open(url).diff(0)
    assert not found
    assert repr(found).endswith("\n  no difference")


@pytest.mark.parametrize(
    "one",
    [{}, {"added": ("v",)}, {"removed": ("v",)}, {"changed": {"/": Changed(anew=True)}}, {"relocated": (("a", "b"),)}],
)
def test_any_difference_is_one(one):
    """Of a snapshot; so is any of a variable."""
    nothing = {"added": (), "removed": (), "changed": {}, "relocated": ()}
    assert bool(Diff(url="memory://x", before=0, after=1, **nothing | one)) == bool(one)
    box = ({"time": slice(0, 1)},)
    each = {"attributes": {"a": (1, 2)}, "properties": {"dtype": ("i1", "i2")}, "appended": box, "overwritten": box}
    assert not Changed()
    assert all(Changed(**{name: value}) for name, value in {**each, "anew": True}.items())


def test_variables_come_and_go(url, tmp_path):
    """And groups."""
    Change(url, lambda group: added(w=virtual(tmp_path, range(4), "w"))(removed("v")(group))).commit()
    below = ManifestGroup(arrays={"u": virtual(tmp_path, [1], "u")})
    Change(url, lambda group: replace(group, groups={"g": below})).commit()
    found = Repository.open(url).diff(0)
    assert (found.added, found.removed, found.changed) == (("g", "g/u", "w"), ("v",), {})
    back = Repository.open(url).diff(2, 0)
    assert (back.added, back.removed) == (("v",), ("g", "g/u", "w"))
    assert "  + g/u" in repr(found)
    assert "  - v" in repr(found)


def test_attributes(url):
    """Of variables and groups, values before and after."""

    def change(group):
        time = labels(range(4), units="hours since 2000-01-01")
        time = replace(time, attributes={**time.attributes, "n": np.arange(2)})
        return replace(group, attributes={"title": "b"}, arrays={**group.arrays, "time": time})

    Change(url, change).commit()
    changed = Repository.open(url).diff(0).changed
    assert changed["/"].attributes == {"title": ("a", "b")}
    assert changed["time"].attributes["units"] == ("days since 2000-01-01", "hours since 2000-01-01")
    assert changed["time"].attributes["n"][0] is None
    assert not changed["time"].overwritten
    lines = list(changed["time"].lines())
    assert "attribute units: 'days since 2000-01-01' to 'hours since 2000-01-01'" in lines
    assert "attribute n: none to [0, 1]" in lines


@pytest.mark.parametrize(("n", "shown"), [(58, "'" + 58 * "a" + "'"), (59, "'" + 56 * "a" + "...")])
def test_long_attributes_and_lists_of_boxes_are_shortened(n, shown):
    boxes = tuple({"time": slice(i, i + 1)} for i in range(MAX_SHOWN_ITEMS + n - 58))
    changed = Changed(attributes={"title": ("b", n * "a")}, overwritten=boxes, anew=True)
    first, *others, last = changed.lines()
    assert first == f"attribute title: 'b' to {shown}"
    assert others[:2] == ["overwritten: time 0:1", "overwritten: time 1:2"]
    assert others[MAX_SHOWN_ITEMS:] == ["overwritten: 1 more region"] * (n - 58)
    assert last == "made anew"
    for change in ({"anew": True}, {"appended": boxes}, {"properties": {"dtype": ("i4", "i8")}}):
        assert Changed(**change)
    assert not Changed()


def test_a_variable_of_one_chunk_is_overwritten_as_a_whole(url, tmp_path):
    """Its reference is in the bundle of the snapshot, and has no placement."""
    for value in (7, 8):
        one = replace(virtual(tmp_path, [value], "w"), dimension_names=("y", "x"))
        Change(url, added(w=one)).commit()
    found = Repository.open(url).diff(1)
    assert found.changed["w"].overwritten == ({"y": slice(0, 1), "x": slice(0, 4)},)


def test_an_append_and_an_overwrite(url, tmp_path):
    """In boxes of elements by dimension, which `isel` takes."""
    Change(url, appended(range(7), v=virtual(tmp_path, [4, 5, 6]))).commit()
    overwrite(url, tmp_path, 1, 10, 11)
    found = Repository.open(url).diff(0)
    v, time = found.changed["v"], found.changed["time"]
    assert v.appended == ({"time": slice(4, 7), "x": slice(0, 4)},)
    assert v.overwritten == ({"time": slice(1, 3), "x": slice(0, 4)},)
    assert v.properties == {"shape": ((4, 4), (7, 4))}
    assert time.appended == ({"time": slice(4, 7)},)
    assert time.overwritten == ()
    assert "      overwritten: time 1:3, x 0:4" in repr(found)
    assert Repository.open(url).diff(1).changed.keys() == {"v"}


def test_loaded_values(url):
    """The box that holds all that differ; as bytes, so that NaN is itself."""
    values = np.array([0.0, np.nan, 2.0, 3.0])
    for n, last in enumerate((3.0, 5.0)):
        values = np.array([n, np.nan, 2.0, last])
        Change(url, added(lat=inline_array(values, name="lat", dims=("lat",), attributes={}))).commit()
    assert Repository.open(url).diff(1).changed["lat"].overwritten == ({"lat": slice(0, 4)},)
    values = np.array([1, np.nan, 2.0, 7.0])
    Change(url, added(lat=inline_array(values, name="lat", dims=("lat",), attributes={}))).commit()
    assert Repository.open(url).diff(2).changed["lat"].overwritten == ({"lat": slice(3, 4)},)


def test_loaded_texts_and_single_values(url):
    """Of no numbers, and no axes."""
    for n in range(2):
        names = np.array(["a", "b", "cd"[n]], np.dtypes.StringDType())
        one = inline_array(np.array(n), name="one", dims=(), attributes={})
        names = inline_array(names, name="names", dims=("names",), attributes={})
        Change(url, added(names=names, one=one)).commit()
    changed = Repository.open(url).diff(1).changed
    assert changed["names"].overwritten == ({"names": slice(2, 3)},)
    assert changed["one"].overwritten == ({},)
    assert "overwritten: the value" in repr(Repository.open(url).diff(1))


def test_a_variable_that_is_made_anew(url, tmp_path):
    """With the same chunks, its boxes differ; with others, there are none to compare."""
    Change(url, added(v=virtual(tmp_path, range(4)))).commit()
    assert Repository.open(url).diff(0).changed["v"].overwritten == ({"time": slice(0, 4), "x": slice(0, 4)},)
    new = virtual(tmp_path, range(4))
    new = replace(new, manifest=replace(new.manifest, fills=(Fill.from_value(-2, "<i4"),)))
    Change(url, added(v=new)).commit()
    assert Repository.open(url).diff(1).changed["v"].overwritten == ({"time": slice(0, 4), "x": slice(0, 4)},)
    Change(url, added(v=virtual(tmp_path, range(4), chunk=3))).commit()
    changed = Repository.open(url).diff(1).changed["v"]
    assert changed.anew
    assert changed.properties == {"chunks": ((1, 4), (3, 4))}
    assert "      made anew" in repr(Repository.open(url).diff(1))


def test_a_variable_of_another_dtype_is_made_anew(url):
    for dtype in ("i4", "f8"):
        values = inline_array(np.arange(3, dtype=dtype), name="lat", dims=("lat",), attributes={})
        Change(url, added(lat=values)).commit()
    changed = Repository.open(url).diff(1).changed["lat"]
    assert (changed.anew, changed.overwritten, list(changed.properties)) == (True, (), ["dtype"])


def test_what_was_put_together_anew(url, tmp_path):
    """Chunks that are pointed to again are the same ones."""
    new = virtual(tmp_path, [10])

    def change(group):
        v = group.arrays["v"]
        joined = np.concatenate([v[:2], new, v[3:]], 0)
        joined = replace(joined, name="v", dimension_names=v.dimension_names, attributes={})
        return replace(group, arrays={**group.arrays, "v": joined})

    Change(url, change).commit()
    assert values_of(url) == [0, 1, 10, 3]
    (box,) = Repository.open(url).diff(0).changed["v"].overwritten
    assert box["time"].start <= 2
    assert box["time"].stop >= 3


def test_a_compaction_is_no_difference(url, tmp_path):
    """What was changed before and after it is told, as long as the snapshots between are there."""
    overwrite(url, tmp_path, 0, 10)
    overwrite(url, tmp_path, 2, 12)
    Repository.open(url).compact()
    assert not Repository.open(url).diff(2)
    overwrite(url, tmp_path, 3, 13)
    assert Repository.open(url).diff(2).changed["v"].overwritten == ({"time": slice(3, 4), "x": slice(0, 4)},)
    rows = [box["time"] for box in Repository.open(url).diff(0).changed["v"].overwritten]
    assert rows == [slice(0, 1), slice(2, 4)]
    assert [box["time"] for box in Repository.open(url).diff(4, 0).changed["v"].overwritten] == rows
    (url / snapshot_key(2)).unlink()
    changed = Repository.open(url).diff(0).changed["v"]
    assert changed.anew
    assert changed.overwritten == ()


def test_relocations(url, tmp_path):
    """Old and new places."""
    Repository.open(url).relocate({str(tmp_path): "s3://bucket/x"})
    found = Repository.open(url, allow="s3://bucket/").diff(0)
    assert found.relocated == ((f"file://{tmp_path}/", "s3://bucket/x/"),)
    assert "is now s3://bucket/x/" in repr(found)


def test_a_snapshot_that_is_not_there(url):
    with pytest.raises(SourceNotFoundError, match="no snapshot 7"):
        Repository.open(url).diff(7)


@settings(max_examples=examples(20), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_boxes_hold_all_that_differs(tmp_path_factory, data):
    """Whatever was appended, overwritten and compacted: outside of the boxes values are the same."""
    folder = tmp_path_factory.mktemp("diff")
    url, serial = folder / "x.vstack", iter(range(1000, 9000))
    create(url, {"v": virtual(folder, [next(serial) for _ in range(4)])})
    for _ in range(data.draw(st.integers(1, 6))):
        n = len(values_of(url))
        match data.draw(st.sampled_from(["append", "overwrite", "compact"])):
            case "append":
                Change(url, appended(range(n + 1), v=virtual(folder, [next(serial)]))).commit()
            case "overwrite":
                overwrite(url, folder, data.draw(st.integers(0, n - 1)), next(serial))
            case "compact":
                Repository.open(url).compact()
    last = opened(url)[1].number
    a, b = data.draw(st.integers(0, last)), data.draw(st.integers(0, last))
    changed = Repository.open(url).diff(a, b).changed.get("v")
    before, after = values_of(url, at=a), values_of(url, at=b)
    common = min(len(before), len(after))
    boxes = [box["time"] for box in changed.overwritten] if changed else []
    found = {n for box in boxes for n in range(box.start, box.stop)}
    assert found == {n for n in range(common) if before[n] != after[n]}
    assert [box["time"] for box in (changed.appended if changed else ())] == [
        slice(len(before), len(after)) for _ in range(1) if len(after) > len(before)
    ]


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(*[st.tuples(st.integers(0, 5), st.integers(1, 3)) for _ in range(2)]), max_size=8))
def test_merged_boxes_hold_the_same(drawn):
    """And are not more."""
    boxes = [tuple((begin, begin + n) for begin, n in box) for box in drawn]

    def cells(boxes):
        return {(i, j) for (a, b), (c, d) in boxes for i in range(a, b) for j in range(c, d)}

    assert cells(merged(boxes)) == cells(boxes)
    assert len(merged(boxes)) <= len(boxes)


def test_what_is_shown_of_many_boxes_and_attributes(url, tmp_path):
    """Long values are cut, and boxes beyond some are counted."""
    for first in range(0, 4, 2):
        overwrite(url, tmp_path, first, 7)
    Change(
        url, lambda group: replace(group, arrays={**group.arrays, "time": labels(range(4), units="u" * 99)})
    ).commit()
    found = Repository.open(url).diff(0)
    assert "attribute units: 'days since 2000-01-01' to 'uuu" in repr(found)
    assert "u" * 70 not in repr(found)


def test_values_that_move_into_the_bundle_and_out_of_it(tmp_path):
    """A loaded variable is compared as a whole with a virtual one of the same chunks; one without axes by its value."""
    url = tmp_path / "m.vstack"
    cube = xr.Dataset({"t": ("x", np.arange(4.0)), "s": ((), 1.0)}, {"x": np.arange(4)})
    cube.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={name: {"_FillValue": None} for name in ("t", "s")})
    virtual = vs.open_virtual_dataset(tmp_path / "a.nc", loadable_variables=["x", "s"])
    virtual.virtual.to_vstack(url)
    cube.virtual.to_vstack(url, mode="w")
    whole = {"overwritten": ({"x": slice(0, 4)},), "anew": False}
    found = Repository.open(url).diff(0)
    assert {name: getattr(found.changed["t"], name) for name in whole} == whole
    assert "s" not in found.changed
    virtual.assign(s=((), 2.0)).virtual.to_vstack(url, mode="w")
    found = Repository.open(url).diff(1)
    assert {name: getattr(found.changed["t"], name) for name in whole} == whole
    assert found.changed["s"].overwritten == ({},)
    assert "s\n      overwritten: the value" in repr(found)


def test_attributes_are_shown_as_they_are(tmp_path):
    """Not as objects of numpy."""
    url = tmp_path / "a.vstack"
    cube = xr.Dataset({"t": ("x", np.arange(4.0), {"n": np.int64(2), "r": np.array([1, 2], "i2")})})
    cube.virtual.to_vstack(url)
    cube["t"].attrs = {"n": np.int64(3), "r": np.array([1, 3], "i2"), "_FillValue": np.float64("nan")}
    cube.virtual.to_vstack(url, mode="w")
    shown = repr(Repository.open(url).diff(0))
    assert "attribute n: 2 to 3" in shown
    assert "attribute r: [1, 2] to [1, 3]" in shown


def test_a_snapshot_in_between_that_is_gone(url, tmp_path):
    """What was compacted is compared by way of a snapshot in between; without it, the variable counts as new."""
    for i in range(4):
        overwrite(url, tmp_path, i, 10.0 + i)
    Repository.open(url).compact()
    expected = Repository.open(url).diff(1).changed["v"]
    assert not expected.anew
    assert expected.overwritten
    (url / snapshot_key(3)).unlink()
    assert Repository.open(url).diff(1).changed["v"].anew


def test_the_last_change_is_shown_by_default(tmp_path, monkeypatch, capsys):
    """In Python and on the command line; the first snapshot has none before it."""
    monkeypatch.chdir(tmp_path)
    first = vs.Repository.create("a.vstack", xr.Dataset({"v": ("t", [1.0, 2.0, 3.0])}))
    with pytest.raises(SourceNotFoundError, match=r"snapshot 0 is the first of .*: there is none before it"):
        first.diff()
    second = first.write("v", {"t": 0}, 5.0)
    third = second.write("v", {"t": 2}, 7.0)
    assert third.diff().changed["v"].overwritten == ({"t": slice(2, 3, None)},)
    assert second.diff().changed["v"].overwritten == ({"t": slice(0, 1, None)},)
    assert main(["diff", "a.vstack"]) == 0
    assert capsys.readouterr().out == f"{third.diff(1)}\n"

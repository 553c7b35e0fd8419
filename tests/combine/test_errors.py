"""Errors say what differs between which two files, in the message and in their fields."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from tests.data.arrays import referenced_array
from virtualstack import combine_datasets
from virtualstack.combine.addition import _check_order
from virtualstack.combine.concat import check_calendars, concat_parts
from virtualstack.combine.conflicts import Rules
from virtualstack.combine.datasets import CombineOptions, combine_trees
from virtualstack.combine.fitting import Fitting, check_presence, cut_like
from virtualstack.combine.part import Part, each_node
from virtualstack.combine.region import _by_labels, placed
from virtualstack.combine.update import _differing, _listed
from virtualstack.errors import ChunkAlignmentError, CombineError
from virtualstack.manifests import ChunkAxis, ManifestGroup
from virtualstack.planning.labels import check_kinds, span
from virtualstack.storage import Storage

STORAGE = Storage.from_option(None)


def dataset(source, variables=None, **labels):
    made = xr.Dataset(variables or {}, labels)
    made.encoding["source"] = source
    return made


def part(source, variables=None, **labels):
    return Part.from_dataset(dataset(source, variables, **labels))


def virtual(shape=(3,), dims=("y",), **options):
    return xr.Variable(dims, referenced_array(shape, shape, dimension_names=dims, **options))


def fields(error):
    return error.variable, error.property, error.left, error.right, error.left_url, error.right_url


def nested(dims, datasets, **options):
    return lambda: combine_datasets(datasets, combine="nested", concat_dim=dims, **options)


def by_coords(*datasets, **options):
    return lambda: combine_datasets(datasets, **options)


def appended(before, after):
    return lambda: _check_order("t", part("old", t=before), part("new", t=after))


def concat(parts, dim="t"):
    return lambda: concat_parts(parts, dim, Rules(), STORAGE)


def group(url, *names):
    return ManifestGroup(arrays={}, groups={name: ManifestGroup(arrays={}) for name in names}, url=url)


def tiles(*places):
    return by_coords(*(dataset(f"{t}{x}", {"v": (("t", "x"), [[1.0]])}, t=[t], x=[x]) for t, x in places))


def lacks(source, *names):
    return part(source, {name: ("t", [1.0]) for name in names}, t=[ord(source)])


DATES = {
    calendar: xr.date_range("2000", periods=2, calendar=calendar, use_cftime=True) for calendar in ("noleap", "360_day")
}
FITTING = Fitting.from_options(join="outer", options=None, storage=STORAGE)
REFUSED = {
    "appended labels that are before": (
        appended([1, 3, 5], [4, 6, 7]),
        "to append start at 4 in 'new', but the labels of 'old' end at 5. In a vstack, use",
        ("t", "order", 5, 4, "old", "new"),
    ),
    "appended labels that equal the last": (
        appended([1, 3, 5], [5]),
        "to append start at 5 in 'new', but the labels of 'old' end at 5. In a vstack, use",
        ("t", "order", 5, 5, "old", "new"),
    ),
    "appended labels that descend": (
        appended([1, 3, 5], [8, 7, 6]),
        "to append do not ascend in 'new', but the labels of 'old' end at 5. In a vstack, use",
        ("t", "order", 5, 8, "old", "new"),
    ),
    "appended labels that are twice": (
        appended(np.zeros(0, "i8"), [6, 7, 7]),
        "to append do not ascend in 'new', but the labels of 'old' end at None. In a vstack, use",
        ("t", "order", None, 6, "old", "new"),
    ),
    "a dimension that one file lacks": (
        concat([lacks("a", "v"), part("b", {"v": ((), 1.0)}), lacks("c", "v")]),
        "'b' has no dimension 't' to join along; it has []; other files have it",
        (None, "dimension", "t", None, "a", "b"),
    ),
    "a dimension that the first file lacks": (
        concat([part("a", {"v": ("x", [1.0])}), part("b", {"v": ("x", [1.0])}), lacks("c", "v"), lacks("d", "v")]),
        "'a' has no dimension 't' to join along; it has ['x']; other files have it",
        (None, "dimension", "t", None, "c", "a"),
    ),
    "five variables that one file lacks": (
        concat([lacks("a", "u", "v"), lacks("b", *"opqruv")][::-1]),
        "of 2 files, 'o' is missing from 1, 'p' is missing from 1, 'q' is missing from 1, 'r' is missing from 1; 'b'",
        ("o", "presence", True, False, "b", "a"),
    ),
    "six variables that one file lacks": (
        concat([lacks("a", "v"), lacks("b", *"opqrsuv"), lacks("c", "v")]),
        "'o' is missing from 2, 'p' is missing from 2, 'q' is missing from 2, 'r' is missing from 2, 's' is missing "
        "from 2, and 1 more; 'b' has 'o' and 'a' does not.",
        ("o", "presence", False, True, "a", "b"),
    ),
    "labels that are virtual in one file": (
        concat(
            [
                part("a", t=[0]),
                part("b", t=[1]),
                Part(variables={"t": virtual(dims=("t",))}, sizes={"t": 3}, source="c"),
            ]
        ),
        "coordinate 't' is loaded in 'a' and virtual in 'c'. Open",
        ("t", "virtual", "loaded", "virtual", "a", "c"),
    ),
    "lists of several lengths": (
        nested(["t", "x"], [[dataset(x, {"v": (("t", "x"), [[1.0]])}) for x in row] for row in ("ab", "cd", "e")]),
        "lists along ['x'] have lengths [2] at 'a' and [1] at 'e', but",
        (None, "hypercube", (2,), (1,), "a", "e"),
    ),
    "groups that one file lacks": (
        lambda: combine_trees(
            [
                xr.DataTree.from_dict({path: dataset(source, {"v": ("t", [1.0])}, t=[n]) for path in paths})
                for n, (source, paths) in enumerate({"a": ["/", "/x"], "b": ["/", "/x", "/y"], "c": ["/"]}.items())
            ],
            CombineOptions(),
        ),
        "group '/x' is missing from 1 of 3 files: 'a' has it, 'c' does not.",
        ("/x", "presence", True, False, "a", "c"),
    ),
    "groups that the store lacks": (
        lambda: each_node(group("old", "x"), [group("a", "x"), group("new", "x", "y")], lambda *x: x),
        "group '/y' is in 'new' and not in 'old', but",
        ("/y", "presence", False, True, "old", "new"),
    ),
    "groups that an addition lacks": (
        lambda: each_node(group("old", "x", "y"), [group("new", "x")], lambda *x: x),
        "group '/y' is in 'old' and not in 'new', but",
        ("/y", "presence", True, False, "old", "new"),
    ),
    "variables too large to be compared": (
        nested("t", [dataset(x, {"v": virtual((10**6, 2000), ("y", "x"), urls=x), "w": ("t", [1.0])}) for x in "ab"]),
        "would read 8 GB from each of 2 files.",
        ("v", "size", None, None, "a", None),
    ),
    "another scale": (
        nested(
            "t",
            [
                dataset(n, {"v": virtual(cf={"scale_factor": x}), "w": ("t", [1.0])})
                for n, x in (("a", 2.0), ("b", 3.0))
            ],
            unpack=False,
        ),
        "differs between 'a' and 'b': scale_factor is 2.0 and 3.0. Decode both with unpack='differing'. Or",
        ("v", "values", 2.0, 3.0, "a", "b"),
    ),
    "a variable that the store lacks": (
        lambda: check_presence(part("old"), part("new", {"v": ("x", [1])}), ["v"]),
        "'new' has variable 'v' and 'old' does not. Leave",
        ("v", "presence", False, True, "old", "new"),
    ),
    "a variable that an addition lacks": (
        lambda: check_presence(part("old", {"v": ("x", [1])}), part("new"), ["v"]),
        "'old' has variable 'v' and 'new' does not. Take",
        ("v", "presence", True, False, "old", "new"),
    ),
    "labels that are farther apart the more files there are": (
        nested(
            "t",
            [
                dataset(n, {"v": (("t", "x"), [[1.0] * 3])}, x=[x, 1, 2])
                for n, x in (("a", 0), ("b", 0.25), ("c", 0.125))
            ],
        ),
        "'x' differs in 2 of 3 files, by at most 0.25, first in 'b'. tolerance=0.25 takes the labels of 'a' if all",
        ("x", "labels", 3, 3, "a", "b"),
    ),
    "labels of several lengths": (
        nested(
            "t", [dataset(n, {"v": (("t", "x"), [[1.0] * len(x)])}, x=x) for n, x in (("a", [4, 5, 6]), ("b", [7]))]
        ),
        "'x' differs in 1 of 2 files: 3 labels from 4 to 6 in 'a', the label 7 there, first in 'b'. join=",
        ("x", "labels", 3, 1, "a", "b"),
    ),
    "no labels": (
        nested(
            "t",
            [
                dataset(n, {"v": (("t", "x"), [[1.0] * len(x)])}, x=x)
                for n, x in (("a", [4, 5]), ("b", np.zeros(0, int)))
            ],
        ),
        "'x' differs in 1 of 2 files: 2 labels from 4 to 5 in 'a', no labels there, first in 'b'. join=",
        ("x", "labels", 2, 0, "a", "b"),
    ),
    "labels of several kinds": (
        lambda: check_kinds(
            "x", [part("a"), part("b"), part("c")], [pd.Index([]), pd.Index([1, 2]), pd.Index(["p", "q"])]
        ),
        "which have no order: 1 (number) in 'b', p (str) in 'c'. Convert",
        ("x", "labels", 1, "p", "b", "c"),
    ),
    "labels that one file has twice": (
        nested(
            "t",
            [
                dataset(n, {"v": (("t", "x"), [[1.0] * len(x)])}, x=x)
                for n, x in (("a", [1, 2]), ("b", [7, 8, 9, 8, 7]))
            ],
            join="outer",
        ),
        "coordinate 'x' has label 8 more than once in 'b', and",
        ("x", "labels", None, None, "b", None),
    ),
    "dates of several calendars": (
        lambda: check_calendars("t", [part("a"), part("b")], [x.values for x in DATES.values()]),
        "cftime, calendar 'noleap' in 'a', cftime, calendar '360_day' in 'b'. Leave",
        ("t", "calendar", "cftime, calendar 'noleap'", "cftime, calendar '360_day'", "a", "b"),
    ),
    "one file that is missing": (
        tiles((0, 5), (1, 6), (1, 5)),
        "3 files do not fill a grid of 2 x 2 along ['t', 'x']: no file for t 0, x 6. join='outer'",
        (None, "hypercube", (2, 2), 3, None, None),
    ),
    "two files that are missing": (
        tiles((0, 5), (1, 6)),
        "no file for t 0, x 6, and for 1 more. join='outer'",
        (None, "hypercube", (2, 2), 2, None, None),
    ),
    "files of the same coordinates": (
        by_coords(dataset("a", x=[0, 1]), dataset("b", x=[0, 1], y=[5]), dataset("c", x=[0, 1])),
        "'a' and 'b' have the same coordinates ['x'], so their order is not known. Say what",
        (None, "labels", None, None, "a", "b"),
    ),
    "labels without an order": (
        by_coords(*(dataset(n, x=np.array(x, object)) for n, x in (("a", [1 + 1j]), ("b", [3 + 1j])))),
        "labels of 'x' such as (1+1j) in 'a' have no order: ",
        ("x", "labels", None, None, "a", None),
    ),
    "labels that overlap": (
        by_coords(dataset("a", x=[1, 2, 3, 4]), dataset("b", x=[3, 4, 5, 6])),
        "'a' and 'b' both have x 3 to 4. duplicates='first' keeps the first of them. Or duplicates='last' keeps",
        (None, "labels", None, None, "a", "b"),
    ),
    "labels that overlap by one": (
        by_coords(dataset("b", x=[4, 5, 6]), dataset("a", x=[1, 2, 4])),
        "'b' and 'a' both have x 4. duplicates=",
        (None, "labels", None, None, "b", "a"),
    ),
    "regions of an unknown dimension": (
        lambda: placed(group("old"), group("new"), {"y": 0, "z": 1, "x": 2}, FITTING),
        "region names ['x', 'y', 'z'], and 'old' has the dimensions []",
        (None, "dimension", [], "x", "old", None),
    ),
    "regions along labels that only the addition has": (
        lambda: _by_labels("x", part("old"), part("new", x=[1])),
        "along 'x' by labels, so 'old' and 'new' must",
        ("x", "labels", False, True, "old", "new"),
    ),
    "regions along labels that only the store has": (
        lambda: _by_labels("x", part("old", x=[1]), part("new")),
        "along 'x' by labels, so 'old' and 'new' must",
        ("x", "labels", True, False, "old", "new"),
    ),
    "regions along labels that are twice": (
        lambda: _by_labels("x", part("old", x=[1, 2, 2, 1]), part("new", x=[1])),
        "'old' has label 2 of 'x' more than once, so",
        ("x", "labels", None, None, "old", "new"),
    ),
    "regions at unknown labels": (
        lambda: _by_labels("x", part("old", x=[1, 2, 3]), part("new", x=[2, 9, 8])),
        "'old' does not have the label 9 along 'x', which 'new' needs.",
        ("x", "labels", None, None, "old", "new"),
    ),
    "regions at labels that begin before the store": (
        lambda: _by_labels("x", part("old", x=[1, 2, 3]), part("new", x=[9, 1, 2])),
        "'old' does not have the label 9 along 'x', which 'new' needs.",
        ("x", "labels", None, None, "old", "new"),
    ),
    "regions at labels that come back": (
        lambda: _by_labels("x", part("old", x=[1, 2, 3]), part("new", x=[1, 2, 1])),
        "'old' does not have these labels in sequence along 'x', which 'new' needs.",
        ("x", "labels", None, None, "old", "new"),
    ),
    "regions at labels in another order": (
        lambda: _by_labels("x", part("old", x=[1, 2, 3]), part("new", x=[3, 2])),
        "'old' does not have these labels in sequence along 'x', which 'new' needs.",
        ("x", "labels", None, None, "old", "new"),
    ),
    "labels of an update that are twice": (
        lambda: _differing(part("old", x=[1, 2]), [part("new", x=[4, 5, 5, 4])], "t"),
        "'new' has label 5 more than once along 'x', and",
        ("x", "labels", None, None, None, "new"),
    ),
    "labels of an update that are lists": (
        lambda: _listed([[0, 1, 2]], "x", "old"),
        "labels of 'x', each of them one value, not [[0, 1, 2]]",
        ("x", "labels", None, None, "old", None),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_names_both_files_and_what_they_have(case):
    refused, message, expected = REFUSED[case]
    with pytest.raises(CombineError) as caught:
        refused()
    assert message in str(caught.value)
    assert fields(caught.value) == expected


def test_chunks_that_end_within_those_of_a_store_are_named():
    array = referenced_array((6,), (4,), urls="new")
    with pytest.raises(ChunkAlignmentError) as caught:
        cut_like("v", "y", array, 0, ChunkAxis.regular(6, 3))
    assert "chunks of variable 'v' end at element 4 of 'y' in 'new', but those of the store do not" in str(caught.value)
    assert "Elements and lengths of chunks are 6/4 and 6/3" in str(caught.value)


def test_files_and_labels_have_names_in_messages():
    assert part("a").called == "'a'"
    assert Part(variables={}, sizes={}).called == "'a dataset'"
    assert Part(variables={}, sizes={}, source="a", n_files=0).called == "'a'"
    assert Part(variables={}, sizes={}, source="a", n_files=2).called == "'a' (joined with 1 more)"
    assert Part(variables={}, sizes={}, source="a", n_files=3).called == "'a' (joined with 2 more)"
    assert span(pd.Index([4])) == "4"
    assert span(pd.Index([4, 5])) == "4 to 5"
    assert span(pd.Index([4, 5, 6])) == "4 to 6"

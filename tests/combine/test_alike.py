"""Files that are alike, joined at once: the same cube as when each is opened by itself, or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.combine import CombineOptions, combine_datasets
from virtualstack.dataset import to_group
from virtualstack.manifests.serialised.headers import ArrayHeader, same_group_header, same_header
from virtualstack.storage import Storage
from virtualstack.storage.listing import list_files
from virtualstack.vstack.files import Sync, open_files
from virtualstack.vstack.recipe import kept

N = 8


def scene(i, *, is_scalar=True, y=0.0, mask=1, time=None, **attributes):
    """A scene of a satellite: packed data, a number and bounds at one time, or at two times."""
    n = 1 if is_scalar else 2
    times = np.arange(n) + n * i if time is None else np.full(n, time)
    found = xr.Dataset(
        {
            "tb": (("t", "y", "x"), 0.5 * np.arange(n * 12.0).reshape(n, 3, 4) + i, {"units": "K"}),
            "quality": ("t", np.arange(n) + 0.25 * i),
            "bounds": (("t", "b"), np.arange(2.0 * n).reshape(n, 2) + i),
            "mask": (("y", "x"), np.full((3, 4), mask)),
        },
        {"t": ("t", times, {"units": "days since 2000-01-01"}), "y": np.arange(3.0) + y, "x": np.arange(4.0)},
        {"title": "scenes", "part": 3, **attributes},
    )
    return found.isel(t=0) if is_scalar else found


def write(*scenes):
    packed = {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1, "zlib": True}
    for i, each in enumerate(scenes):
        each.to_netcdf(f"scene{i}.nc", engine="netcdf4", encoding={"tb": packed}, unlimited_dims=[])


def opened(*, together, **options):
    recipe = kept(vs.Recipe(["scene*.nc"], dim="t", **options))
    storage = Storage.from_option(None)
    return open_files(list_files(recipe.files, storage=storage), recipe, Sync(storage=storage), together=together)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def check_same(part, others, **options):
    """Compare a cube with that of files which were opened one by one: values, chunks, attributes and notes."""
    join = CombineOptions.from_options(unpack=options.get("unpack"), combine_options=options.get("combine_options"))
    expected = combine_datasets([x.dataset for x in others], join)
    xr.testing.assert_identical(part.dataset.virtual.open().load(), expected.virtual.open().load())
    assert list(part.dataset.variables) == list(expected.variables)
    left, right = to_group(part.dataset), to_group(expected)
    assert same_group_header(left, right)
    assert left.refusals == right.refusals
    for name, array in left.arrays.items():
        assert same_header(ArrayHeader.from_array(array), ArrayHeader.from_array(right.arrays[name]))
        assert (array.in_memory().entries["length"] == right.arrays[name].in_memory().entries["length"]).all()


@pytest.mark.parametrize("is_scalar", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"unpack": True}, {"decode_times": False}, {"combine_options": {"combine_attrs": "override"}}],
    ids=str,
)
def test_a_cube_is_that_of_files_opened_one_by_one(options, is_scalar):
    """Also if the names of files are in another order than their labels, and an attribute of the last one differs."""
    scenes = [scene(i, is_scalar=is_scalar, made=str(i), part=3 + (i == 0)) for i in range(N)]
    write(*reversed(scenes))
    (part,), errors = opened(together=True, **options)
    others, _ = opened(together=False, **options)
    assert errors == {}
    assert [Path(x).stem for x in part.files] == [f"scene{i}" for i in reversed(range(N))]
    if options.get("decode_times") is not False:
        check_same(part, others, **options)
    for other in others:
        (alone,) = part.only([other.url])
        xr.testing.assert_equal(alone.dataset.virtual.open().load(), other.dataset.virtual.open().load())


@pytest.mark.parametrize(("last", "n_files"), [(2.0, [1, N]), (N + 1.0, [N + 1]), (np.nan, [1] * (N + 1))])
def test_what_repeats_a_label_or_has_none_is_left_out(last, n_files):
    write(*(scene(i, time=float(i)) for i in range(N)), scene(N, time=last))
    parts, _ = opened(together=True)
    assert sorted(len(x.files) for x in parts) == n_files


@pytest.mark.parametrize("odd", [{"y": 0.5}, {"mask": 2}, {"member_id": "r2"}], ids=str)
@pytest.mark.parametrize("which", [0, 1, N - 1])
def test_files_that_are_not_alike_are_opened_one_by_one(odd, which):
    """What differs in one file is told of this file, wherever it is: nothing of the others counts for it."""
    member = {"member_id": "r1"} if "member_id" in odd else {}
    write(*(scene(i, **(odd if i == which else member)) for i in range(N)))
    parts, errors = opened(together=True)
    found, others = {}, {x.url: x for x in opened(together=False)[0]}
    for part in parts:
        found |= {url: part.only([url])[0] for url in part.files}
    assert errors == {}
    assert found.keys() == others.keys()
    for url, each in found.items():
        xr.testing.assert_equal(each.dataset.virtual.open().load(), others[url].dataset.virtual.open().load())
    if "member_id" in odd:
        assert sorted(len(x.files) for x in parts) == [1, N - 1]


def test_a_label_that_is_not_valid_is_told_of_its_file():
    write(*(scene(i) for i in range(N)))
    limits = {"t": ["2000-01-01", "2000-01-05"]}
    parts, errors = opened(together=True, valid=limits)
    assert (len(parts), [Path(x).stem for x in errors]) == (5, ["scene5", "scene6", "scene7"])


def test_a_store_of_alike_files_is_that_of_each_by_itself(monkeypatch):
    """With segments and without them."""
    write(*(scene(i, made=str(i)) for i in range(N)))
    recipe = vs.Recipe(["scene*.nc"], dim="t", unpack=True)
    expected = vs.Repository.build("a.vstack", recipe).repository.open_dataset().load()
    monkeypatch.setattr("virtualstack.vstack.segments.N_FILES", 4)
    monkeypatch.setattr("virtualstack.vstack.sync.N_FILES", 4)
    done = vs.Repository.build("b.vstack", recipe)
    xr.testing.assert_identical(done.repository.open_dataset().load(), expected)
    assert {x.status for x in done.chunks} == {"equal"}
    monkeypatch.setattr("virtualstack.combine.alike._MIN_FILES", N + 1)
    xr.testing.assert_identical(vs.Repository.build("c.vstack", recipe).repository.open_dataset().load(), expected)

"""Random files joined: what xarray makes of the decoded files, or an error where files differ."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.combine import CombineOptions, combine_datasets
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError
from virtualstack.manifests import inline_array

DTYPES = ["f4", "f8", "i2", "i4", "u1", "M8[ns]"]
JOINS = ["exact", "outer", "inner", "left", "right"]


def virtual(variable, name, cut):
    """Cut values into two chunks that stand in the manifest."""
    values = variable.values
    stored = values.view("i8") if values.dtype.kind == "M" else values
    attributes = {"units": "nanoseconds since 1970-01-01"} if values.dtype.kind == "M" else {}
    pieces = [
        inline_array(piece, name=name, dims=variable.dims, attributes=attributes)
        for piece in ((stored[:cut], stored[cut:]) if stored.ndim else (stored,))
    ]
    array = np.concatenate(pieces) if len(pieces) > 1 else pieces[0]
    return xr.Variable(variable.dims, array, {**variable.attrs, **attributes})


def virtually(dataset, cut):
    """Make all but the dimension coordinates virtual."""
    made = {
        name: virtual(variable, name, cut) for name, variable in dataset.variables.items() if name not in dataset.dims
    }
    coords = {name: made.pop(name) for name in list(made) if name in dataset.coords}
    return xr.Dataset(made, coords=xr.Coordinates(coords, indexes={})).assign_coords(
        {dim: dataset[dim] for dim in dataset.dims if dim in dataset.coords}
    )


@st.composite
def files(draw):
    """Give datasets along time that may lack labels of x, or a variable."""
    n = draw(st.integers(1, 4))
    dtype, other = (draw(st.sampled_from(DTYPES)) for _ in range(2))
    ends = np.cumsum([0, *(draw(st.integers(1, 3)) for _ in range(n))])
    descends = draw(st.booleans())
    is_same = draw(st.booleans())
    labels = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True))
    made = []
    for i in range(n):
        if i and not is_same:
            labels = draw(st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True))
        x = np.array(sorted(labels, reverse=descends), "f8")
        time = np.arange(ends[i], ends[i + 1])
        v = np.arange(time.size * x.size).reshape(time.size, x.size) + 10 * i
        variables = {"v": (("time", "x"), v.astype(dtype))}
        if draw(st.integers(0, 3)):
            variables["w"] = (("x", "time"), v.T.astype(other))
        variables["c"] = ((), np.float32(3))
        variables["edges"] = ("x", x.astype("f4") * 2)
        coords = {"time": time, "x": x, "row": ("time", time.astype("i2"))}
        made.append(xr.Dataset(variables, coords=coords))
    return made


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(files(), st.sampled_from(JOINS), st.randoms(use_true_random=False), st.integers(0, 3))
def test_files_along_time_join_as_with_xarray(made, join, random, cut):
    """Labels that files lack and variables that they lack read as xarray fills them."""
    order = list(range(len(made)))
    random.shuffle(order)
    parts = [virtually(made[i], cut) for i in order]
    is_lacking = len({frozenset(x.data_vars) for x in made}) > 1
    try:
        found = combine_datasets(parts, CombineOptions.from_options(join=join)) if len(made) > 1 else parts[0]
    except CombineError as error:
        is_differing = any(not x.x.equals(made[0].x) for x in made)
        assert join != "outer", error
        assert is_lacking or (is_differing and (join == "exact" or "do not fill a grid" in str(error))), error
        return
    assert join == "outer" or not is_lacking
    options = {"join": join, "data_vars": "minimal", "coords": "minimal", "compat": "override"}
    expected = xr.concat([x.drop_vars("edges") for x in made], "time", **options)
    expected = expected.assign(edges=("x", expected.x.values.astype("f4") * 2))  # each label is in a file
    assert all(virtual_array(found[name].variable) is not None for name in ("v", "c"))
    opened = found.virtual.open().load()
    if join == "outer":  # labels that descend in all files and do not overlap stay so; xarray sorts those it unites
        opened, expected = opened.sortby("x"), expected.sortby("x")
    xr.testing.assert_equal(opened, expected)
    assert {name: x.dtype for name, x in opened.variables.items()} == {
        name: x.dtype for name, x in expected.variables.items()
    }


@st.composite
def tiles(draw):
    """Give tiles of a cube, cut along both dimensions, some of which may be absent."""
    cuts = [sorted({0, n, *draw(st.lists(st.integers(1, n - 1), max_size=2))}) for n in (5, 6)]
    values = np.arange(30, dtype=draw(st.sampled_from(["f4", "i2", "f8"]))).reshape(5, 6)
    turned = draw(st.booleans())
    whole = xr.Dataset(
        {"v": (("y", "x"), values)}, coords={"y": np.arange(5), "x": np.arange(6)[::-1] if turned else np.arange(6)}
    )
    made = [
        whole.isel(y=slice(a, b), x=slice(c, d))
        for a, b in zip(cuts[0], cuts[0][1:], strict=False)
        for c, d in zip(cuts[1], cuts[1][1:], strict=False)
    ]
    absent = draw(st.sets(st.integers(0, len(made) - 1), max_size=len(made) - 1)) if draw(st.booleans()) else set()
    order = draw(st.permutations(range(len(made))))
    return whole, [made[i] for i in order if i not in absent], bool(absent)


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tiles(), st.integers(0, 3))
def test_tiles_make_the_cube_that_they_were_cut_from(drawn, cut):
    """In any order; absent ones are filled by an outer join alone."""
    whole, made, is_lacking = drawn
    assume(len(made) > 1)
    parts = [virtually(x, cut) for x in made]
    found = combine_datasets(parts, CombineOptions.from_options(join="outer"))
    expected = xr.merge(made, join="outer", compat="no_conflicts")
    expected = expected.sel(y=found.y, x=found.x)
    opened = found.virtual.open().load()
    xr.testing.assert_equal(opened, expected)
    if not is_lacking:
        xr.testing.assert_identical(opened, whole)
        assert combine_datasets(parts).virtual.open().load().identical(whole)
    elif expected.sizes["x"] * expected.sizes["y"] > sum(x.v.size for x in made):
        with pytest.raises(CombineError, match=r"do not fill a grid|differs in"):
            combine_datasets(parts)

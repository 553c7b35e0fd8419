"""What xarray does with virtual variables, against what it does with their values."""

import numpy as np
import pytest
import xarray as xr

from virtualstack.errors import CombineError, VirtualValuesError
from virtualstack.manifests import ManifestArray
from virtualstack.reading import read_array
from virtualstack.storage import MemoryTarget, Storage
from virtualstack.testing.strategies import ZLIB, store_array

RNG = np.random.default_rng(7)


def pair(n, t0, chunks, y0=0, **options):
    """The same dataset twice, virtual and loaded."""
    values = RNG.integers(0, 99, (n, 6, 10)).astype("f4")
    known = store_array(values, chunks, url=f"memory://xarray/{t0}", **options)
    for url, data in known.sources.items():
        MemoryTarget("memory://xarray/").put(url.rpartition("/")[2], data)
    coords = {"t": np.arange(t0, t0 + n), "y": np.arange(y0, y0 + 6) * 1.0, "x": np.arange(10)}
    return [xr.Dataset({"v": (("t", "y", "x"), x)}, coords) for x in (known.array, known.values)]


A, B, C = (
    pair(5, 0, (4, 3, 5)),
    pair(7, 5, (3, 2, 10), codecs=(ZLIB,), stored_dtype=">f4"),
    pair(4, 20, (4, 6, 4), y0=2, holes=np.array([[[0, 1, 2]]], np.uint8), fill=3),
)
STORAGE = Storage.from_option(None)

OPERATIONS = {
    "concat": lambda a, b, c: xr.concat([a, b], "t"),
    "concat on a new dimension": lambda a, b, c: xr.concat([a, a], "n"),
    "combine by coords": lambda a, b, c: xr.combine_by_coords([b, a]),
    "outer join": lambda a, b, c: xr.concat([a, c], "t", join="outer"),
    "inner join": lambda a, b, c: xr.concat([a, c], "t", join="inner"),
    "outer join with a fill value": lambda a, b, c: xr.concat([a, c], "t", join="outer", fill_value=-1),
    "merge, outer": lambda a, b, c: xr.merge([a, c.rename(v="w")], join="outer"),
    "reindex one axis": lambda a, b, c: a.reindex(t=[9, 0, 2, 3, 17]),
    "reindex two axes": lambda a, b, c: a.reindex(t=[0, 9, 2], y=[9.0, 1.0, 2.0]),
    "reindex to the nearest": lambda a, b, c: a.reindex(y=[0.2, 4.9, 70.0], method="nearest", tolerance=1),
    "reindex to nothing": lambda a, b, c: a.reindex(t=[]),
    "align": lambda a, b, c: xr.align(a, c, join="left")[1],
    "isel, outer": lambda a, b, c: a.isel(t=[0, 3, 4], y=[5, 1]),
    "isel, pointwise": lambda a, b, c: a.isel(
        t=xr.DataArray([0, 3, 2], dims="p"), y=xr.DataArray([1, 2, 1], dims="p")
    ),
    "isel, points of two dims": lambda a, b, c: a.isel(
        t=xr.DataArray([[0, 3], [2, 2]], dims=("p", "q")), x=xr.DataArray([[1, 2], [9, 0]], dims=("p", "q"))
    ),
    "isel, pointwise and outer": lambda a, b, c: a.isel(
        t=xr.DataArray([0, 3], dims="p"), x=xr.DataArray([1, 2], dims="p"), y=[5, 0, 0]
    ),
    "isel, by one array of a new dim": lambda a, b, c: a.isel(y=xr.DataArray([5, 0], dims="p")),
    "isel, booleans": lambda a, b, c: a.isel(t=np.array([True, False, True, True, False])),
    "isel, integers and steps": lambda a, b, c: a.isel(t=-1, y=slice(None, None, -2)),
    "sel, pointwise": lambda a, b, c: a.sel(t=xr.DataArray([4, 0], dims="p"), y=xr.DataArray([5.0, 5.0], dims="p")),
    "sel, repeated": lambda a, b, c: a.sel(t=[4, 4, 0]),
    "head, tail and thin": lambda a, b, c: b.tail(t=6).head(y=4).thin(x=3),
    "pad": lambda a, b, c: a.pad(t=(1, 2), constant_values=3),
    "pad with missing values": lambda a, b, c: a.pad(t=(1, 2), x=(0, 1)),
    "pad with edges": lambda a, b, c: a.pad(t=(1, 2), mode="edge"),
    "pad, wrapped": lambda a, b, c: a.pad(x=(3, 3), mode="wrap"),
    "shift": lambda a, b, c: a.shift(t=2),
    "roll": lambda a, b, c: a.roll(t=2, x=-3),
    "roll with coordinates": lambda a, b, c: a.roll(x=5, roll_coords=True),
    "transpose": lambda a, b, c: a.transpose("x", "t", "y"),
    "squeeze": lambda a, b, c: a.isel(t=[1]).squeeze(),
    "expand dims": lambda a, b, c: a.expand_dims(member=3, axis=1),
    "stack": lambda a, b, c: a.stack(z=("t", "y")),
    "stack not neighbours": lambda a, b, c: a.stack(z=("t", "x")),
    "stack all": lambda a, b, c: a.stack(z=[...]),
    "coarsen and construct": lambda a, b, c: a.coarsen(x=5, y=2).construct(x=("a", "b"), y=("c", "d")),
    "where by coordinates": lambda a, b, c: a.where(a.t > 2),
    "where by two coordinates": lambda a, b, c: a.where((a.t > 2) & (a.y < 3), -1),
    "where and drop": lambda a, b, c: a.where(a.t > 2, drop=True),
    "drop_isel": lambda a, b, c: a.drop_isel(t=[1, 3]),
    "sortby": lambda a, b, c: xr.concat([b, a], "t").sortby("t", ascending=False),
    "groupby, one group": lambda a, b, c: dict(b.groupby(b.t % 3))[1],
    "swap and rename": lambda a, b, c: a.assign_coords(s=("t", list("abcde"))).swap_dims(t="s").rename(x="lon"),
    "broadcast": lambda a, b, c: xr.broadcast(a, xr.Dataset(coords={"e": [1, 2]}))[0],
    "broadcast like": lambda a, b, c: a.v.broadcast_like(xr.DataArray(np.zeros((2, 5)), dims=("e", "t"))).to_dataset(),
    "full like": lambda a, b, c: xr.full_like(a, 3),
    "zeros like": lambda a, b, c: xr.zeros_like(a, dtype="i2"),
    "unstack what is not full": lambda a, b, c: a.stack(z=("t", "y")).isel(z=[0, 7, 3]).unstack("z"),
    "unstack": lambda a, b, c: a.stack(z=("t", "x")).unstack("z"),
    "astype": lambda a, b, c: a.astype("f8"),
    "combine_first of one": lambda a, b, c: a.isel(x=slice(0, 5)).combine_first(a.isel(x=slice(0, 5))),
    "tile of slices": lambda a, b, c: xr.combine_nested(
        [[a.isel(y=slice(2), x=slice(3)), a.isel(y=slice(2), x=slice(3, 10))],
         [a.isel(y=slice(2, 6), x=slice(3)), a.isel(y=slice(2, 6), x=slice(3, 10))]], ["y", "x"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_of_xarray_is_that_on_values(name):
    """Dims, coordinates, dtype and every value; and the result is virtual."""
    operation = OPERATIONS[name]
    virtual, loaded = (operation(A[i], B[i], C[i]) for i in (0, 1))
    assert set(virtual.variables) == set(loaded.variables)
    assert virtual.sizes == loaded.sizes
    for key in loaded.coords:
        assert virtual[key].identical(loaded[key])
    for key, variable in loaded.data_vars.items():
        found = virtual[key].variable
        assert isinstance(found._data, ManifestArray)
        assert found.dims == variable.dims
        assert found.dtype == variable.dtype
        found._data.validate()
        np.testing.assert_array_equal(read_array(found._data, (), STORAGE), variable.values)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    "operation",
    [
        lambda a: a.mean("t"),
        lambda a: a + 1,
        lambda a: a.where(a.v > 3),
        lambda a: a.fillna(0),
        lambda a: a.interp(t=[0.5]),
        lambda a: a.rolling(t=2).mean(),
        lambda a: a.pad(t=1, mode="mean"),
        lambda a: a.dropna("t"),
        lambda a: a.diff("t"),
    ],
)
def test_what_needs_values_says_so(operation):
    """By the name of the variable, with the remedy."""
    with pytest.raises(
        (VirtualValuesError, CombineError), match=r"virtual.*(?:[uU]se|values with) vds\.virtual\.open\(\)"
    ):
        operation(A[0])


def test_xarray_may_call_load_where_it_compares():
    """Joining with data_vars="different" calls .load(), and needs no values if the arrays are provably equal."""
    virtual = A[0].assign_coords(t=np.arange(5))
    joined = xr.concat([virtual, virtual.copy()], "n", data_vars="different", compat="equals", coords="minimal")
    assert isinstance(joined["v"].data, ManifestArray)
    assert joined["v"].dims == ("t", "y", "x")

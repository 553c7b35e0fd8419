"""Methods and attributes of numpy's arrays on a virtual one: they work on its structure, or say what they need."""

import numpy as np
import pytest
import xarray as xr

from virtualstack.errors import CombineError, ManifestError, VirtualValuesError
from virtualstack.manifests import ManifestArray
from virtualstack.testing.strategies import model_read, store_array

VALUES = np.arange(24, dtype="f4").reshape(4, 6)
KNOWN = store_array(VALUES, (2, 3), url="memory://methods")
METHODS = sorted(x for x in dir(np.ndarray) if not x.startswith("_") and callable(getattr(np.ndarray, x)))
STRUCTURAL = {"astype", "copy", "reshape", "squeeze", "swapaxes", "take", "transpose"}


def check(array, values):
    array.validate()
    np.testing.assert_array_equal(model_read(array, KNOWN.sources), values)


@pytest.mark.parametrize("name", [x for x in METHODS if x not in STRUCTURAL])
def test_a_method_that_needs_values_says_so(name):
    """Not that there is none of that name."""
    with pytest.raises(VirtualValuesError, match=rf"variable 'v' is virtual: '\.{name}\(\)' needs its values"):
        getattr(KNOWN.array, name)(1, axis=0)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: a.real,
        lambda a: a.imag,
        lambda a: a.flat,
        lambda a: f"{a[0, 0]:.2f}",
        lambda a: float(a[0, 0]),
        lambda a: int(a[0, 0]),
        lambda a: complex(a[0, 0]),
        lambda a: bool(a[0, 0]),
        lambda a: 3 in a,
        lambda a: xr.DataArray(a)[0, 0].item(),
        lambda a: f"{xr.DataArray(a)[0, 0]:.2f}",
        lambda a: xr.DataArray(a).real,
        lambda a: xr.DataArray(a).argsort(),
        lambda a: xr.DataArray(a).searchsorted(3),
        lambda a: xr.DataArray(a).round(),
    ],
)
def test_a_value_is_not_to_be_had(operation):
    """By any way to ask for it."""
    with pytest.raises(VirtualValuesError, match=r"vds\.virtual\.open\(\)"):
        operation(KNOWN.array)


@pytest.mark.parametrize(
    "name", ["__array_namespace__", "__dask_graph__", "base", "chunks", "dask", "data", "device", "strides", "todense"]
)
def test_what_others_decide_by_is_not_there(name):
    """Libraries ask for these names to know what kind of array it is."""
    assert not hasattr(KNOWN.array, name)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: a.reshape(-1),
        lambda a: a.reshape(2, 12),
        lambda a: a.reshape((3, 8), order="C"),
        lambda a: a[:1, :1].reshape(()),
        lambda a: a[:1].squeeze(axis=0),
        lambda a: a.swapaxes(0, 1),
        lambda a: a.take([2, 0], axis=1),
        lambda a: a.copy(),
        lambda a: a.mT,
    ],
)
def test_a_method_that_needs_no_values_works(operation):
    """As it does on the values."""
    check(operation(KNOWN.array), operation(VALUES))
    assert KNOWN.array.itemsize == VALUES.itemsize


@pytest.mark.parametrize(("dtype", "casting"), [("i2", "same_kind"), ("f2", "safe"), ("f8", "equiv"), (">f4", "no")])
def test_a_cast_is_checked_as_numpy_does(dtype, casting):
    """xarray hands ``casting`` on."""
    dataset = xr.Dataset({"v": (("t", "y"), KNOWN.array)})
    with pytest.raises(CombineError, match=f"casting='{casting}' does not allow"):
        dataset.astype(dtype, casting=casting)
    with pytest.raises(TypeError, match="Cannot cast"):
        VALUES.astype(dtype, casting=casting)
    assert dataset.astype("f8", order="C", casting="safe", subok=False, copy=False).v.dtype == "f8"
    assert KNOWN.array.astype(dtype="i2").dtype == VALUES.astype("i2", "K", "unsafe").dtype


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.stack(z=("t", "y"), create_index=False),
        lambda x: x.coarsen(y=3).construct(y=("a", "b")),
        lambda x: x.coarsen(t=2).construct(t=("a", "b")),
        lambda x: x.isel(y=[1, 0]).transpose(),
        lambda x: xr.concat([x, x], "t"),
    ],
)
def test_chunks_of_dask_stay_virtual(operation):
    """Dask calls methods of the arrays in its chunks."""
    pytest.importorskip("dask")
    got, expected = (
        operation(xr.Dataset({"v": (("t", "y"), x)}).chunk(t=2)).compute().v.variable for x in (KNOWN.array, VALUES)
    )
    assert isinstance(got._data, ManifestArray)
    check(got._data, expected.values)


@pytest.mark.parametrize("dtype", ["S3", "U2", "M8[s]", "m8[s]", "?", "f4", np.dtypes.StringDType()])
def test_zeros_like_is_that_of_numpy(dtype):
    """Text is empty."""
    made = np.zeros_like(KNOWN.array, dtype, shape=(2,))
    assert made.in_memory().fill.value == np.zeros(1, dtype)[0]


@pytest.mark.parametrize("width", [1.5, -1, [(1, -1), (0, 0)], {0: -2}])
@pytest.mark.parametrize("mode", ["constant", "edge"])
def test_widths_are_integers_of_0_and_more(width, mode):
    """Nothing is cut off."""
    with pytest.raises(ValueError, match="pad_width"):
        np.pad(KNOWN.array, width, mode=mode)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: np.pad(a, 2**63 - 1),
        lambda a: np.pad(a, 2**63 - 1, mode="edge"),
        lambda a: np.concatenate([np.pad(a, 2**62 - 5)] * 3),
        lambda a: np.full_like(a, 1, shape=(2**70,)),
        lambda a: np.broadcast_to(a[0, 0], (2**63,)),
        lambda a: np.reshape(np.broadcast_to(a[:1, :1], (2**35, 2**35)), -1),
        lambda a: np.reshape(np.broadcast_to(a[:1, :1], (2**35, 2**35)), (2**36, 2**34)),
    ],
)
def test_axes_that_cannot_be_counted_are_refused(operation):
    """An axis has less than 2^63 elements."""
    with pytest.raises(ManifestError, match="long"):
        operation(KNOWN.array)

"""Methods and attributes of numpy's arrays on a virtual one: they work on its structure, or say what they need."""

import re
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import xarray as xr

from virtualstack.errors import CombineError, ManifestError, VirtualValuesError
from virtualstack.manifests import ChunkGrid, ManifestArray
from virtualstack.testing.strategies import model_read, store_array

VALUES = np.arange(24, dtype="f4").reshape(4, 6)
KNOWN = store_array(VALUES, (2, 3), url="memory://methods")
METHODS = sorted(x for x in dir(np.ndarray) if not x.startswith("_") and callable(getattr(np.ndarray, x)))
STRUCTURAL = {"astype", "copy", "reshape", "squeeze", "swapaxes", "take", "transpose"}


def check(array, values):
    array.validate()
    np.testing.assert_array_equal(model_read(array, KNOWN.sources), values)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", [x for x in METHODS if x not in STRUCTURAL])
def test_a_method_that_needs_values_says_so(name):
    """Not that there is none of that name."""
    with pytest.raises(VirtualValuesError, match=rf"variable 'v' is virtual: its values are used by '\.{name}\(\)'"):
        getattr(KNOWN.array, name)(1, axis=0)


@pytest.mark.usefixtures("large")
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


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: np.swapaxes(a, -1, 0),
        lambda a: np.moveaxis(a[:, None], [0, -1], [-1, 0]),
        lambda a: np.moveaxis(a[:, None], 1, 2),
        lambda a: np.transpose(a),
        lambda a: a.transpose(-1, 0),
        lambda a: np.squeeze(a[:1, :1]),
        lambda a: np.squeeze(a[:1, :1], (0,)),
        lambda a: np.squeeze(a[:1, :1], -1),
        lambda a: np.expand_dims(a, (0, -1)),
        lambda a: np.flip(a),
        lambda a: np.flip(a, -1),
        lambda a: np.roll(a, 2, -1),
        lambda a: np.roll(a, (1, -7), (0, 1)),
        lambda a: np.roll(a, -4, 0),
        lambda a: np.roll(a[:0], 3, 0),
        lambda a: np.roll(a, 1, (0, 1)),
        lambda a: np.take(a, 3, 1),
        lambda a: np.take(a, [[2, 0], [-1, 3]], axis=-2, mode="raise"),
        lambda a: np.broadcast_to(a[:, :1], (3, 4, 5)),
        lambda a: np.broadcast_to(a[0, 0], 3),
        lambda a: np.stack([a, a], -1),
        lambda a: np.concatenate([a, a[:0], a[2:]], -2),
        lambda a: np.reshape(a[:0], (3, 0, 2)),
        lambda a: np.reshape(a, 24),
        lambda a: np.full_like(a, 7),
        lambda a: np.full_like(a, 7, "i2", shape=5),
        lambda a: np.full_like(a, 7, ">i2", shape=(0, 3)),
        lambda a: np.full_like(a, True, bool),
        lambda a: np.full_like(a, False, bool, shape=(2,)),
        lambda a: np.ones_like(a),
        lambda a: np.ones_like(a, "i8", shape=(2, 3)),
        lambda a: np.zeros_like(a),
        lambda a: np.where(np.arange(6) > 3, a, 9),
        lambda a: np.where(np.arange(4)[:, None] > 1, a[:1], a),
        lambda a: np.pad(a, 1, constant_values=[(1, 2), (3, 4)]),
        pytest.param(
            lambda a: np.pad(a, {-1: (1, 2)}, constant_values=5),
            marks=pytest.mark.skipif(
                np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="numpy before 2.3 takes no dict"
            ),
        ),
        lambda a: np.pad(a, ((0, 1), (2, 0)), mode="reflect"),
        lambda a: np.pad(a[0, 0], 0),
    ],
)
def test_a_function_works_as_on_values(operation):
    found, expected = operation(KNOWN.array), operation(VALUES)
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype.newbyteorder("="))
    assert (np.shape(found), np.ndim(found)) == (np.shape(expected), np.ndim(expected))
    check(found, expected)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: np.swapaxes(a, 0, 2),
        lambda a: np.flip(a, -3),
        lambda a: np.expand_dims(a, (0, 0)),
        lambda a: np.squeeze(a, 0),
        lambda a: np.broadcast_to(a, (4, 5)),
        lambda a: np.broadcast_to(a, (6,)),
        lambda a: a.transpose(0, 0),
        lambda a: a[0].mT,
        lambda a: np.reshape(a, (5, 5)),
        lambda a: np.reshape(a, (-1, -1)),
        lambda a: np.reshape(a, (-4, -6)),
        lambda a: np.reshape(a, (-1, 0)),
        lambda a: np.reshape(a),
        lambda a: len(a[0, 0]),
        lambda a: a[[0, 1, 2], [0, 1]],
    ],
)
def test_what_numpy_refuses_is_refused(operation):
    with pytest.raises((ValueError, TypeError, IndexError)) as expected:
        operation(VALUES)
    with pytest.raises((ValueError, TypeError, IndexError)) as found:
        operation(KNOWN.array)
    assert issubclass(expected.type, found.type)


@pytest.mark.parametrize(
    ("cf", "value", "dtype", "fill", "kept"),
    [
        ({"_FillValue": np.int16(-9)}, np.nan, None, -9, True),
        ({"_FillValue": np.int16(-9)}, np.nan, "i2", -9, True),
        ({"_FillValue": np.int16(-9)}, np.nan, "f8", np.nan, False),
        ({"_FillValue": np.int16(-9)}, 3, None, 3, False),
        ({}, 3, None, 3, False),
    ],
)
def test_an_array_of_missing_values_is_packed_as_its_model(cf, value, dtype, fill, kept):
    """Every other value reads as itself."""
    packed = replace(KNOWN.array.astype("i2"), cf=cf)
    made = np.full_like(packed, value, dtype)
    np.testing.assert_equal(made.in_memory().fill.value, fill)
    assert made.cf == (cf if kept else {})
    assert made.dimension_names is None


def test_lengths_are_those_of_the_first_axis():
    assert (len(KNOWN.array), len(KNOWN.array[0])) == (4, 6)


@pytest.mark.parametrize(
    "operation",
    [
        lambda a: np.roll(a, 1),
        lambda a: np.take(a, [0]),
        lambda a: np.concatenate([a, a], None),
        lambda a: np.take(a, [9], 1, mode="wrap"),
        lambda a: np.take(a, [0], 1, out=np.zeros((4, 1), "f4")),
        lambda a: np.stack([a, a], dtype="f8"),
        lambda a: np.concatenate([a, a], out=np.zeros((8, 6), "f4")),
        lambda a: np.reshape(a, -1, order="F"),
    ],
)
def test_what_a_virtual_array_cannot_do_is_refused(operation):
    """With the name of the variable or of the function."""
    with pytest.raises(CombineError, match=r"virtual (variable 'v'|arrays?)|variable 'v' is virtual"):
        operation(KNOWN.array)


@pytest.mark.parametrize("order", [1, -1])
def test_arrays_without_a_common_dtype_are_both_named(order):
    """Packed numbers cannot be cast, whichever array comes first."""
    packed = replace(store_array(VALUES.astype("i2"), (2, 3), url="memory://packed").array, cf={"scale_factor": 0.5})
    with pytest.raises(CombineError, match=r"has dtype = 'int16' in 'memory://packed") as caught:
        np.concatenate([packed, KNOWN.array, packed][::order][:2])
    found = caught.value
    assert (found.left, found.right) == (np.dtype("i2"), np.dtype("f4"))
    assert found.left_url.startswith("memory://packed")
    assert found.right_url.startswith("memory://methods")


def test_values_cannot_be_assigned():
    with pytest.raises(VirtualValuesError, match="values cannot be assigned"):
        KNOWN.array[0] = 1


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


def test_a_choice_between_arrays_of_other_meaning_is_refused():
    """Their stored numbers would be decoded by one rule; the remedy names the variable in its group."""
    one = replace(KNOWN.array, name="group/v")
    other = replace(one, attributes={"scale_factor": 2.0}, cf={"scale_factor": 2.0})
    for a, b in ((one, other), (other, one)):
        with pytest.raises(
            CombineError, match=r"correct it with vds.virtual.set_encoding\({'v': {'scale_factor': \.\.\.}}\)"
        ) as caught:
            np.where(np.arange(6) > 3, a, b)
        error = caught.value
        assert (error.variable, error.property, error.left, error.right) == ("group/v", "scale_factor", 2.0, None)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("S2", "dtype = 'int16' in .* and '|S2' in .*; their common dtype is '|S6', to which no chunk can be cast"),
        ("m8[s]", "their common dtype is 'timedelta64[s]', to which no chunk can be cast"),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_dtypes_that_do_not_join_are_named(other, message, turned):
    one = store_array(np.zeros(2, "i2"), (2,), url="memory://methods/one").array
    two = store_array(np.zeros(2, other), (2,), url="memory://methods/two").array
    with pytest.raises(CombineError, match=re.escape(message).replace(r"\.\*", ".*")):
        np.concatenate([two, one] if turned else [one, two])


def test_packed_numbers_join_with_no_other_dtype():
    packed = replace(
        store_array(np.zeros(2, "i2"), (2,), url="memory://methods/packed").array, cf={"scale_factor": 0.5}
    )
    with pytest.raises(CombineError, match="'float32', and stored numbers mean nothing in another one than theirs"):
        np.concatenate([packed, KNOWN.array[0, :2]])


@pytest.mark.parametrize("chunks", [(1, 1, 1), (2, 3, 2), (1, 3, 2), (2, 1, 2), (1, 2, 2), (2, 2, 1)])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_any_order_of_axes_is_reshaped_to_any_shape(chunks, order):
    values = np.arange(12, dtype="i2").reshape(2, 3, 2)
    known = store_array(values, chunks, url=f"memory://methods/{''.join(map(str, chunks))}")
    array, values = known.array.transpose(order), values.transpose(order)
    for shape in ((12,), (2, 6), (6, 2), (3, 4), (4, 3), (2, 2, 3), (2, 3, 2), (3, 2, 2), (1, 12), (12, 1)):
        found = array.reshape(shape)
        found.validate()
        np.testing.assert_array_equal(model_read(found, known.sources), values.reshape(shape))


def test_any_axis_is_rolled():
    for axis, n in enumerate(VALUES.shape):
        for by in range(-n - 1, n + 2):
            check(np.roll(KNOWN.array, by, axis), np.roll(VALUES, by, axis))
    check(np.roll(KNOWN.array, (1, -2), (0, 1)), np.roll(VALUES, (1, -2), (0, 1)))
    assert np.roll(KNOWN.array[:0], 3, 0).shape == (0, 6)


@pytest.mark.parametrize("shape", [(0,), (1, 0), (0, 3, 1)])
def test_no_elements_are_reshaped_to_chunks_as_long_as_the_axes(shape):
    assert KNOWN.array[:0].reshape(shape).grid == ChunkGrid.regular(shape, [max(n, 1) for n in shape])

"""Comparisons of virtual arrays: provably equal, or not known; never a guess."""

import numpy as np
import pytest
import xarray as xr

from virtualstack.errors import CombineError, VirtualValuesError
from virtualstack.manifests import ManifestArray
from virtualstack.manifests.verdict import Verdict
from virtualstack.testing.strategies import store_array

pytestmark = pytest.mark.usefixtures("large")


def variable(url, values=None, cf=None, dtype="f4"):
    values = np.arange(6).reshape(2, 3).astype(dtype) if values is None else values
    array = store_array(values, (1, 3), url=f"memory://verdict/{url}").array
    array = ManifestArray(manifest=array.manifest, grid=array.grid, dtype=array.dtype, name="v", cf=cf or {})
    return xr.DataArray(array, dims=("t", "x"), name="v")


A, B = variable("a"), variable("b")


@pytest.mark.parametrize(
    "question",
    [
        lambda: (A != 3).all(),
        lambda: (A == 3).all(),
        lambda: (~(A == -999)).all(),
        lambda: (A != B).all(),
        lambda: (A == B).any(),
        lambda: 3 in A,
        lambda: bool(A.variable._data[0, 0] == 0),
        lambda: A.equals(A.copy(data=np.arange(6.0).reshape(2, 3))),
        lambda: A.copy(data=np.arange(6.0).reshape(2, 3)).equals(A),
        lambda: A.equals(B),
        lambda: A.identical(B),
        lambda: (A != 1) | np.ones((2, 3), bool),
        lambda: (A == B) & True,
        lambda: xr.where(A.isnull(), 0, A),
        lambda: xr.where(A == -999, np.nan, A),
        lambda: xr.where(A.isnull(), A, 0),
        lambda: A.isnull().isel(t=0),
        lambda: A.isnull().all(),
        lambda: (A == B).values,
        lambda: (A == B).astype("i1"),
        lambda: (A == B) ^ (A == A),
        lambda: np.all(A.variable._data == B.variable._data, axis=0),
        lambda: bool(A.variable._data == B.variable._data),
        lambda: bool(np.not_equal(A.variable._data, B.variable._data)),
        lambda: xr.concat([A.to_dataset(), B.to_dataset()], "n", data_vars="different", compat="equals"),
        lambda: xr.merge([A.to_dataset(), B.to_dataset()], compat="no_conflicts"),
    ],
)
def test_what_is_not_known_is_refused(question):
    """With the remedy; neither answer would be right."""
    with pytest.raises(VirtualValuesError, match=r"variable 'v' is virtual.*vds\.virtual\.open\(\)"):
        question()


def test_what_is_provably_equal_is():
    """Also where a missing value would equal itself alone: that is what xarray asks."""
    assert A.equals(A.copy(deep=True))
    numbers = variable("a", dtype="i2")
    array = numbers.variable._data
    assert np.equal(array, array).all()
    assert not np.not_equal(array, array)
    assert (array == array).transpose(1, 0).any()
    assert (array == array).astype(bool).all()
    assert np.all(array == array)
    assert not np.any(~(array == array))
    assert (array == array)[0].tolist() == [True] * 3
    assert np.logical_and(numbers == numbers, numbers == numbers).values.all()
    assert A.identical(variable("a"))
    assert xr.merge([A.to_dataset(), variable("a").to_dataset()], compat="no_conflicts").v.identical(A)
    kept = xr.concat([A.to_dataset(), variable("a").to_dataset()], "n", data_vars="different", compat="equals")
    assert kept.v.dims == ("t", "x")
    assert A.expand_dims("t2").isel(t2=0).equals(A)
    assert not A.equals(A.isel(x=slice(2)))  # of another shape
    assert not numbers.isnull().any()  # integers without attributes are never missing


@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_verdicts_combine_as_truth_values_that_may_be_unknown(left, right):
    """As Kleene's logic has it."""
    known = {True: 1, None: 0.5, False: 0}
    named = {value: key for key, value in known.items()}
    one, other = (Verdict(x, (2,), lambda: np.array([True, False])) for x in (left, right))
    assert (one | other).value is named[max(known[left], known[right])]
    assert (one & other).value is named[min(known[left], known[right])]
    assert (~one).value is named[1 - known[left]]


@pytest.mark.parametrize(
    "operation",
    [
        lambda v: v.where(v.t > 0, 0),
        lambda v: xr.where(v.t > 0, v, 0),
        lambda v: xr.where(v.t > 0, 0, v),
        lambda v: v.pad(t=1, constant_values=0),
        lambda v: v.shift(t=1, fill_value=0),
        lambda v: v.reindex(t=[0, 5], fill_value=0),
    ],
)
def test_no_value_is_brought_among_packed_numbers(operation):
    """It would be taken for a stored number, and read as another value."""
    coords = {"t": [0, 1]}
    packed = variable("p", cf={"scale_factor": 0.5, "add_offset": 10.0}, dtype="i2").assign_coords(coords)
    with pytest.raises(CombineError, match=r"packed by .*'add_offset', 'scale_factor'.* unpack=True") as caught:
        operation(packed)
    assert (caught.value.variable, caught.value.property, caught.value.right) == ("v", "add_offset", 0)
    missing = variable("p", cf={"_FillValue": np.int16(-9)}, dtype="i2").assign_coords(coords)
    assert isinstance(operation(missing).variable._data, ManifestArray)


def test_a_fill_without_a_place_names_the_variable():
    """And says what to do."""
    whole = variable("i", dtype="i2").assign_coords(t=[0, 1])
    for operation in (lambda: whole.pad(t=1, constant_values=4.5), lambda: xr.full_like(whole, np.nan)):
        with pytest.raises(CombineError, match="variable 'v' of dtype 'int16' cannot be filled with"):
            operation()

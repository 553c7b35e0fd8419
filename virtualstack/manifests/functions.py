"""The numpy functions that xarray calls on a virtual array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from virtualstack.errors import ChunkAlignmentError, CombineError, VirtualValuesError
from virtualstack.manifests import joining
from virtualstack.manifests.array import ManifestArray, implements
from virtualstack.manifests.cf import same_meaning
from virtualstack.manifests.indexing import insert_axis, repeat_axis
from virtualstack.manifests.verdict import Verdict

__all__ = ["broadcast_to", "concatenate", "expand_dims", "moveaxis", "result_type", "squeeze", "stack"]


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of bounds for an array of {ndim} axes")
    return axis % ndim


@implements(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Give the dtype that the operands have in common, as :func:`numpy.result_type`."""
    return np.result_type(*(x.dtype if isinstance(x, ManifestArray) else x for x in arrays_and_dtypes))


@implements(np.concatenate)
def concatenate(arrays: Sequence[Any], axis: int | None = 0, **unsupported: Any) -> ManifestArray:
    """Join arrays along an existing axis; chunk lengths, codecs, fill values and dtypes of numbers may differ.

    Raises
    ------
    CombineError
        An operand holds values, shape or a value-changing attribute differ, or dtypes have none in common that they
        can be cast to.
    """
    parts = _virtual(arrays, "concatenate", unsupported)
    if axis is None:
        raise CombineError("concatenating virtual arrays with axis=None would flatten them; name an axis")
    axis = _axis(axis, parts[0].ndim)
    parts = _of_one_dtype(parts)
    _check_joinable(parts, axis)
    used = [part for part in parts if part.shape[axis]] or parts[:1]
    if len(used) == 1 and used[0].manifest is parts[0].manifest:
        return replace(parts[0])
    first = parts[0]
    joined = first.with_chunks(joining.concatenate([part.chunks_of() for part in used], axis))
    return replace(joined, cf=_reference(parts).cf)


@implements(np.stack)
def stack(arrays: Sequence[Any], axis: int = 0, **unsupported: Any) -> ManifestArray:
    """Join arrays of one shape along a new axis.

    Raises
    ------
    CombineError
        As for :func:`concatenate`.
    """
    parts = _virtual(arrays, "stack", unsupported)
    axis = _axis(axis, parts[0].ndim + 1)
    return concatenate([expand_dims(part, axis) for part in parts], axis)


@implements(np.expand_dims)
def expand_dims(a: ManifestArray, axis: int | tuple[int, ...]) -> ManifestArray:
    """Insert axes of one element."""
    axes = (axis,) if isinstance(axis, (int, np.integer)) else tuple(axis)
    ndim = a.ndim + len(axes)
    chunks = a.chunks_of()
    for at in sorted(_axis(i, ndim) for i in axes):
        chunks = insert_axis(chunks, at)
    return a.with_chunks(chunks)


@implements(np.squeeze)
def squeeze(a: ManifestArray, axis: int | tuple[int, ...] | None = None) -> ManifestArray:
    """Remove axes of one element; all of them where none is named."""
    if axis is None:
        axes = [i for i, n in enumerate(a.shape) if n == 1]
    else:
        axes = [_axis(i, a.ndim) for i in ((axis,) if isinstance(axis, (int, np.integer)) else axis)]
    if any(a.shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return a[tuple(0 if i in axes else slice(None) for i in range(a.ndim))]


@implements(np.broadcast_to)
def broadcast_to(array: ManifestArray, shape: int | Sequence[int], subok: bool = False) -> ManifestArray:
    """Stretch axes of one element and put new axes in front."""
    wanted = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    chunks = array.chunks_of()
    for _ in range(len(wanted) - array.ndim):
        chunks = insert_axis(chunks, 0)
    present = chunks.grid.array_shape
    if len(present) != len(wanted) or any(n not in (1, m) for n, m in zip(present, wanted, strict=True)):
        raise ValueError(f"cannot broadcast a virtual array of shape {array.shape} to shape {wanted}")
    if array.ndim and array.dtype == np.dtype("S1") and present != wanted:
        raise CombineError(
            f"variable '{array.name}' holds single characters, and would be stretched from {array.shape} to {wanted}: "
            "xarray does so where text of two files has other lengths, and it would not be text any more; load it with "
            "loadable_variables=[...]",
            variable=array.name,
            property="text length",
            left=array.shape,
            right=wanted,
        )
    for axis, (n, m) in enumerate(zip(present, wanted, strict=True)):
        if n != m:
            chunks = repeat_axis(chunks, axis, m)
    return array.with_chunks(chunks)


@implements(np.transpose)
def transpose(a: ManifestArray, axes: Sequence[int] | None = None) -> ManifestArray:
    """Permute axes."""
    return a.transpose(axes)


@implements(np.moveaxis)
def moveaxis(a: ManifestArray, source: int | Sequence[int], destination: int | Sequence[int]) -> ManifestArray:
    """Move axes to new places; the others keep their order."""
    from_ = [_axis(i, a.ndim) for i in np.atleast_1d(source).tolist()]
    to = [_axis(i, a.ndim) for i in np.atleast_1d(destination).tolist()]
    order = [i for i in range(a.ndim) if i not in from_]
    for target, axis in sorted(zip(to, from_, strict=True)):
        order.insert(target, axis)
    return a.transpose(order)


@implements(np.full_like)
def full_like(a: ManifestArray, fill_value: Any, dtype: Any = None, **unsupported: Any) -> Verdict:
    """Answer xarray's question which elements are missing values: not known, taken as none by comparisons alone."""
    if dtype is not None and np.dtype(dtype) == np.bool_ and not fill_value:
        return Verdict(value=False, shape=a.shape, is_known=False)
    raise CombineError(f"np.full_like on virtual variable '{a.name}' is not supported yet", variable=a.name)


@implements(np.shape)
def shape(a: ManifestArray) -> tuple[int, ...]:
    """Give the shape in elements."""
    return a.shape


@implements(np.ndim)
def ndim(a: ManifestArray) -> int:
    """Give the number of axes."""
    return a.ndim


@implements(np.where)
def where(condition: Any, *values: Any) -> ManifestArray:
    """Give the first of two equal arrays, as ``xr.merge`` asks; filling in values is not supported yet."""
    array = next(x for x in values if isinstance(x, ManifestArray))
    if isinstance(condition, Verdict):
        if len(values) == 2 and array.equals(values[1]):
            return array
        raise VirtualValuesError(
            f"variable '{array.name}' is virtual: which of its values are missing is not known; "
            "use vds.virtual.open() for a lazy dataset with values"
        )
    raise ChunkAlignmentError(
        f"variable '{array.name}' would be filled up with missing values, as in an outer join or a reindex, which "
        "is not supported yet for virtual arrays; join datasets with equal coordinates (join='exact' or 'override')",
        variable=array.name,
    )


@implements(np.pad)
def pad(array: ManifestArray, pad_width: Any, mode: Any = "constant", **options: Any) -> ManifestArray:
    """Refuse: padding is not supported yet."""
    raise ChunkAlignmentError(
        f"padding or shifting virtual variable '{array.name}' is not supported yet; open it with .virtual.open()",
        variable=array.name,
    )


@implements(np.reshape)
def reshape(a: ManifestArray, /, shape: Any = None, order: str = "C", **unsupported: Any) -> ManifestArray:
    """Give the array itself where the shape is its own; splitting and merging axes is not supported yet."""
    wanted = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if wanted == a.shape and order == "C":
        return a
    raise ChunkAlignmentError(
        f"reshaping virtual variable '{a.name}' from {a.shape} to {wanted} is not supported yet; "
        "open it with .virtual.open()",
        variable=a.name,
    )


def _virtual(arrays: Sequence[Any], what: str, unsupported: dict[str, Any]) -> list[ManifestArray]:
    if any(value is not None for key, value in unsupported.items() if key in ("out", "dtype")):
        raise CombineError(f"np.{what} of virtual arrays takes neither 'out' nor 'dtype'")
    parts = list(arrays)
    for part in parts:
        if not isinstance(part, ManifestArray):
            name = next(x.name for x in parts if isinstance(x, ManifestArray))
            raise CombineError(
                f"variable '{name}' is virtual in one dataset and loaded in another ({type(part).__name__}); "
                "open all of them with the same loadable_variables",
                variable=name,
                property="virtual",
                left="virtual",
                right="loaded",
            )
    return parts


def _of_one_dtype(parts: list[ManifestArray]) -> list[ManifestArray]:
    """Cast to the dtype that numpy finds for all."""
    first = parts[0]
    odd = next((x for x in parts if x.dtype is not first.dtype and x.dtype != first.dtype), None)
    if odd is None:
        return parts
    try:
        dtype = np.result_type(*{x.dtype for x in parts})
    except TypeError:
        _clash("dtype", first, odd, first.dtype, odd.dtype, "they have no dtype in common")
    return [x.astype(dtype) for x in parts]


def _check_joinable(parts: Sequence[ManifestArray], axis: int) -> None:
    first = parts[0]
    shape = first.shape
    for other in parts[1:]:
        if other.shape == shape:
            continue
        left, right = (x.shape[:axis] + x.shape[axis + 1 :] for x in (first, other))
        if left != right:
            raise CombineError(
                f"variable '{first.name}' has shape {first.shape} in {first.a_url()!r} and {other.shape} in "
                f"{other.a_url()!r}; they must be equal but for axis {axis}",
                variable=first.name,
                property="shape",
                left=first.shape,
                right=other.shape,
                left_url=first.a_url(),
                right_url=other.a_url(),
            )
    reference = _reference(parts)
    for other in parts:
        if other.cf is not reference.cf:
            _check_cf(reference, other)


def _reference(parts: Sequence[ManifestArray]) -> ManifestArray:
    """Give the first operand that holds any chunk from a file."""
    return next((part for part in parts if part.cf), parts[0])


def _check_cf(left: ManifestArray, right: ManifestArray) -> None:
    for key in sorted(left.cf.keys() | right.cf.keys()):
        a, b = left.cf.get(key), right.cf.get(key)
        if not same_meaning(key, a, b):
            _clash(key, left, right, a, b, "they change what the stored numbers mean")


def _clash(key: str, left: ManifestArray, right: ManifestArray, a: object, b: object, why: str) -> NoReturn:
    raise CombineError(
        f"variable '{left.name}' has {key} = {a!r} in {left.a_url()!r} and {b!r} in {right.a_url()!r}; {why}: "
        "open the files with unpack=True, which decodes each by its own attributes, load the variable with "
        "loadable_variables=[...] if it is small, or join only files that agree",
        variable=left.name,
        property=key,
        left=a,
        right=b,
        left_url=left.a_url(),
        right_url=right.a_url(),
    )

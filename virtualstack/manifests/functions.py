"""The numpy functions that xarray calls on a virtual array."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from numpy.typing import NDArray

from virtualstack.codecs.cf import CF
from virtualstack.errors import READ_VALUES, ChunkAlignmentError, CombineError, Remedy, VirtualValuesError
from virtualstack.manifests import joining
from virtualstack.manifests.agreement import (
    AS_STORED,
    check_joinable,
    common_dtype,
    is_missing,
    is_packed,
    of_one_dtype,
    reference,
    shared_access,
    shared_attributes,
    stored_fill,
)
from virtualstack.manifests.array import ManifestArray, implements, nulls
from virtualstack.manifests.cells import replaced
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import Fill, native
from virtualstack.manifests.filling import choose, holes, pad_axis, pad_axis_by_elements
from virtualstack.manifests.grid import ChunkAxis
from virtualstack.manifests.indexing import insert_axis, repeat_axis
from virtualstack.manifests.joining import JoinedManifest, collapse
from virtualstack.manifests.reshaping import reshape as reshape_chunks
from virtualstack.manifests.verdict import Verdict


@implements(np.result_type)
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """Return the common dtype of the operands, as :func:`numpy.result_type` does."""
    return common_dtype(*arrays_and_dtypes)


@implements(np.concatenate)
def concatenate(arrays: Sequence[Any], axis: int | None = 0, **unsupported: Any) -> Any:
    """Join arrays along an existing axis; chunk lengths, codecs, fill values and dtypes of numbers may differ.

    If an operand has values, the result has values too.
    """
    if _have_values(arrays):
        return np.concatenate([np.asarray(x) for x in arrays], axis, **unsupported)
    parts = _virtual(arrays, "concatenate", unsupported)
    if axis is None:
        raise CombineError("concatenating virtual arrays with axis=None would flatten them", Remedy("name an axis"))
    axis = normalize_axis_index(axis, parts[0].ndim)
    parts = of_one_dtype(parts)
    check_joinable(parts, axis)
    used = [part for part in parts if part.shape[axis]] or parts[:1]
    if used[0] is not parts[0] and any(c.name == CF for x in parts[0].manifest.tables.encodings for c in x.codecs):
        # xarray keeps the encoding of the first variable, so its table must describe how chunks would be packed
        used = [replace(parts[0], manifest=replace(parts[0].in_memory(), locations=())), *used]
    if len(used) == 1 and used[0].manifest is parts[0].manifest:
        return replace(parts[0], dimension_names=None)
    first, axes = used[0], [part.grid.axes for part in used]
    is_aligned = all(replaced(x, axis, axes[0][axis]) == axes[0] for x in axes)
    if is_aligned and not all(isinstance(part.manifest, ChunkManifest) for part in used):
        grid = first.grid.replace(axis, joining.join_axes([x[axis] for x in axes]))
        manifest = JoinedManifest.from_parts([part.manifest for part in used], axis)
        joined = replace(parts[0], manifest=manifest, grid=grid, dimension_names=None)
    else:
        joined = parts[0].with_chunks(joining.concatenate([part.as_chunks() for part in used], axis))
    return replace(joined, cf=reference(parts).cf, attributes=shared_attributes(parts), access=shared_access(used))


@implements(np.stack)
def stack(arrays: Sequence[Any], axis: int = 0, **unsupported: Any) -> Any:
    """Join arrays of one shape along a new axis."""
    if _have_values(arrays):
        return np.stack([np.asarray(x) for x in arrays], axis, **unsupported)
    parts = _virtual(arrays, "stack", unsupported)
    axis = normalize_axis_index(axis, parts[0].ndim + 1)
    return concatenate([expand_dims(part, axis) for part in parts], axis)


@implements(np.expand_dims)
def expand_dims(a: ManifestArray, axis: int | tuple[int, ...]) -> ManifestArray:
    """Insert axes of one element."""
    ndim = a.ndim + np.size(axis)
    new = normalize_axis_tuple(axis, ndim)
    return a[tuple(None if i in new else slice(None) for i in range(ndim))]


@implements(np.squeeze)
def squeeze(a: ManifestArray, axis: int | tuple[int, ...] | None = None) -> ManifestArray:
    """Remove axes of one element; all such axes if ``axis`` is ``None``."""
    if axis is None:
        axis = tuple(i for i, n in enumerate(a.shape) if n == 1)
    axes = normalize_axis_tuple(axis, a.ndim)
    if any(a.shape[i] != 1 for i in axes):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return a[tuple(0 if i in axes else slice(None) for i in range(a.ndim))]


@implements(np.broadcast_to)
def broadcast_to(array: ManifestArray, shape: int | Sequence[int], subok: bool = False) -> ManifestArray:
    """Stretch axes of one element, and insert new axes at the beginning."""
    wanted = tuple(
        ChunkAxis.regular(n, 1).length for n in ((shape,) if isinstance(shape, (int, np.integer)) else shape)
    )
    chunks = array.as_chunks()
    for _ in range(len(wanted) - array.ndim):
        chunks = insert_axis(chunks, 0)
    present = chunks.grid.array_shape
    if len(present) != len(wanted) or any(n not in (1, m) for n, m in zip(present, wanted, strict=True)):
        raise ValueError(f"cannot broadcast a virtual array of shape {array.shape} to shape {wanted}")
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
    """Move axes to new positions; the other axes keep their order."""
    from_, to = normalize_axis_tuple(source, a.ndim), normalize_axis_tuple(destination, a.ndim)
    order = [i for i in range(a.ndim) if i not in from_]
    for target, axis in sorted(zip(to, from_, strict=True)):
        order.insert(target, axis)
    return a.transpose(order)


@implements(np.full_like)
def full_like(
    a: ManifestArray, fill_value: Any, dtype: Any = None, *unsupported: Any, shape: Any = None, **more: Any
) -> Verdict | ManifestArray:
    """Return an array of EMPTY chunks that read as a value.

    xarray calls this function with ``False`` and bool to ask which elements are missing. A virtual array does not know
    this at once, so the result is a :class:`Verdict`.
    """
    if dtype is not None and np.dtype(dtype) == np.bool_ and not fill_value and shape is None:
        return nulls(a)
    kind = a.dtype if dtype is None else native(np.dtype(dtype))
    fill = stored_fill(a, fill_value, kind)
    axes = a.grid.axes
    if shape is not None:
        axes = _one_chunk((shape,) if isinstance(shape, (int, np.integer)) else shape)
    chunks = holes(axes, fill)
    cf = a.cf if kind == a.dtype and is_packed(a) and is_missing(fill_value) else {}
    return replace(a, manifest=chunks.manifest, grid=chunks.grid, dtype=kind, dimension_names=None, cf=cf)


@implements(np.zeros_like)
def zeros_like(a: ManifestArray, dtype: Any = None, *unsupported: Any, shape: Any = None, **more: Any) -> Any:
    """Return an array of EMPTY chunks that read as 0; text is empty, and times are the zero of their unit."""
    kind = a.dtype if dtype is None else np.dtype(dtype)
    return full_like(a, Fill.zero(kind).value, kind, shape=shape)


@implements(np.ones_like)
def ones_like(a: ManifestArray, dtype: Any = None, *unsupported: Any, shape: Any = None, **more: Any) -> Any:
    """Return an array of EMPTY chunks that read as 1."""
    return full_like(a, 1, dtype, shape=shape)


@implements(np.shape)
def shape(a: ManifestArray) -> tuple[int, ...]:
    """Return the shape in elements."""
    return a.shape


@implements(np.ndim)
def ndim(a: ManifestArray) -> int:
    """Return the number of axes."""
    return a.ndim


@implements(np.flip)
def flip(m: ManifestArray, axis: int | Sequence[int] | None = None) -> ManifestArray:
    """Reverse the order of elements along axes; along all axes if ``axis`` is ``None``."""
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    return m[tuple(slice(None, None, -1) if i in axes else slice(None) for i in range(m.ndim))]


@implements(np.roll)
def roll(a: ManifestArray, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> ManifestArray:
    """Move elements along axes; elements that leave at the end come in at the beginning."""
    if axis is None:
        raise CombineError(
            f"rolling virtual variable '{a.name}' with axis=None would flatten it", Remedy("name an axis")
        )
    for by, axis_ in np.broadcast(shift, axis):
        at = normalize_axis_index(int(axis_), a.ndim)
        n = a.shape[at]
        cut = n - int(by) % n if n else 0
        if 0 < cut < n:
            before = (slice(None),) * at
            a = concatenate([a[(*before, slice(cut, None))], a[(*before, slice(None, cut))]], at)
    return a


@implements(np.take)
def take(
    a: ManifestArray, indices: Any, axis: int | None = None, out: object = None, mode: str = "raise"
) -> ManifestArray:
    """Take elements along an axis."""
    if axis is None:
        raise CombineError(
            f"taking from virtual variable '{a.name}' with axis=None would flatten it", Remedy("name an axis")
        )
    if out is not None or mode != "raise":
        raise CombineError("np.take of a virtual array takes neither 'out' nor 'mode'")
    return a[(*(slice(None),) * normalize_axis_index(axis, a.ndim), np.asarray(indices))]


@implements(np.swapaxes)
def swapaxes(a: ManifestArray, axis1: int, axis2: int) -> ManifestArray:
    """Exchange two axes."""
    order = list(range(a.ndim))
    one, two = normalize_axis_index(axis1, a.ndim), normalize_axis_index(axis2, a.ndim)
    order[one], order[two] = two, one
    return a.transpose(order)


@implements(np.where)
def where(condition: Any, *values: Any) -> Any:
    """Take elements of one array where a condition holds, else of another; one of the arrays may be a number.

    ``xr.merge`` passes a verdict on two arrays as the condition. Then the result is the first array, if both are equal.
    """
    if len(values) != 2 or isinstance(condition, ManifestArray) or _have_values(values):
        return np.where(_truth(condition), *map(np.asarray, values))
    first, other = values
    if isinstance(condition, Verdict) and isinstance(first, ManifestArray) and first.equals(other):
        return first
    wanted = _truth(condition)
    are_virtual = isinstance(first, ManifestArray) and isinstance(other, ManifestArray)
    if are_virtual and wanted.all() and first.dtype == other.dtype and wanted.shape == first.shape == other.shape:
        return first  # the other one may be packed differently
    array = next(x for x in values if isinstance(x, ManifestArray))
    dtype = result_type(*values)
    dtype = array.dtype if dtype is AS_STORED else dtype
    shape = np.broadcast_shapes(wanted.shape, *(x.shape for x in values if isinstance(x, ManifestArray)))
    parts = [_with_shape(x, array, dtype, shape) for x in values]
    if all(isinstance(x, ManifestArray) for x in values):
        check_joinable(parts, len(shape))
    chosen = array.with_chunks(choose(np.broadcast_to(wanted, shape), *(x.as_chunks() for x in parts)))
    return replace(chosen, dtype=dtype, access=shared_access([x for x in values if isinstance(x, ManifestArray)]))


def _truth(condition: Any) -> NDArray[np.bool_]:
    """Return the elements of a condition, also of one about dates: the result has dates again, and no numbers."""
    return condition.read() if isinstance(condition, Verdict) else np.asarray(condition, np.bool_)


def _with_shape(value: Any, array: ManifestArray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> ManifestArray:
    """Return an operand of `where` with a dtype and shape; a number becomes EMPTY chunks, on the grid of the array."""
    if isinstance(value, ManifestArray):
        value = value.astype(dtype)
        return value if value.shape == shape else broadcast_to(value, shape)
    axes = array.grid.axes if array.shape == shape else _one_chunk(shape)
    fill = stored_fill(array, value, dtype)
    return array.astype(dtype).with_chunks(holes(axes, fill))


@implements(np.pad)
def pad(array: ManifestArray, pad_width: Any, mode: Any = "constant", **options: Any) -> ManifestArray:
    """Add elements before and after each axis: EMPTY chunks that read as a value, or elements of the array."""
    widths = _pairs(pad_width, array.ndim)
    if any(not isinstance(n, int | np.integer) or n < 0 for width in widths for n in width):
        raise ValueError(f"pad_width {pad_width!r} is not of integers of 0 and more")
    chunks = array.as_chunks()
    if mode in ("constant", "empty"):
        constants = [(0, 0)] * array.ndim
        if mode == "constant":
            constants = _pairs(options.get("constant_values", 0), array.ndim)
        for axis, (width, values) in enumerate(zip(widths, constants, strict=True)):
            if mode == "empty" or not any(width):
                fills = [array.manifest.tables.fill] * 2
            else:
                fills = [stored_fill(array, x) for x in values]
            chunks = pad_axis(chunks, axis, int(width[0]), int(width[1]), (fills[0], fills[1]))
        return array.with_chunks(chunks)
    if mode not in ("edge", "wrap", "reflect", "symmetric") or options.get("reflect_type", "even") != "even":
        raise VirtualValuesError(
            f"variable '{array.name}' is virtual, and padding with mode={mode!r} computes with its values",
            READ_VALUES,
        )
    for axis, width in enumerate(widths):
        chunks = pad_axis_by_elements(chunks, axis, int(width[0]), int(width[1]), mode)
    return array.with_chunks(collapse(chunks))


def _pairs(values: Any, ndim: int) -> list[Any]:
    """Return a pair for each axis, from one value, a pair, a pair for each axis, or numpy's dict of axes."""
    if isinstance(values, dict):
        found: list[Any] = [(0, 0)] * ndim
        for axis, value in values.items():
            found[normalize_axis_index(int(axis), ndim)] = value
        values = [np.broadcast_to(x, (2,)) for x in found]
    pairs = np.empty((ndim, 2), object)
    pairs[...] = np.asarray(values, object) if ndim else 0
    return [tuple(pair) for pair in pairs.tolist()]


@implements(np.reshape)
def reshape(a: ManifestArray, /, shape: Any = None, order: str = "C", **unsupported: Any) -> ManifestArray:
    """Split and merge axes, in C order; chunks are cut between rows if necessary."""
    if shape is None:
        raise TypeError("np.reshape needs a shape")
    wanted = [int(n) for n in ((shape,) if isinstance(shape, (int, np.integer)) else shape)]
    if order != "C":
        raise ChunkAlignmentError(f"virtual variable '{a.name}' is reshaped in C order alone", variable=a.name)
    if wanted.count(-1) == 1:
        known = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = a.size // known if known else 0
    if math.prod(wanted) != a.size or any(n < 0 for n in wanted):
        raise ValueError(f"cannot reshape a virtual array of shape {a.shape} into shape {shape}")
    if tuple(wanted) == a.shape:
        return a
    if not a.size:
        return a.with_chunks(holes(_one_chunk(wanted), a.manifest.tables.fill))
    return a.with_chunks(collapse(reshape_chunks(a.as_chunks(), wanted)))


def _one_chunk(shape: Iterable[Any]) -> tuple[ChunkAxis, ...]:
    return tuple(ChunkAxis.regular(int(n), max(int(n), 1)) for n in shape)


def _have_values(operands: Sequence[Any]) -> bool:
    """Return whether an operand is an array with values; a number is none, nor is an array without elements."""
    return any(np.ndim(x) > 0 and np.size(x) > 0 for x in operands if not isinstance(x, ManifestArray))


def _virtual(arrays: Sequence[Any], what: str, unsupported: dict[str, Any]) -> list[ManifestArray]:
    if any(value is not None for key, value in unsupported.items() if key in ("out", "dtype")):
        raise CombineError(f"np.{what} of virtual arrays takes neither 'out' nor 'dtype'")
    parts = list(arrays)
    like = next(x for x in parts if isinstance(x, ManifestArray))
    for number, part in enumerate(parts):
        if not isinstance(part, ManifestArray):
            dtype = part.dtype.newbyteorder("=")
            parts[number] = replace(like.with_chunks(holes(_one_chunk(part.shape), Fill.zero(dtype))), dtype=dtype)
    return parts

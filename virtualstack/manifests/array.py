"""The virtual array: a duck array that xarray can wrap, and that knows where its values are stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from virtualstack.codecs.cast import cast_codec, cast_numbers
from virtualstack.errors import READ_VALUES, ChunkAlignmentError, CombineError, ManifestError, Remedy
from virtualstack.location import Access
from virtualstack.manifests.cells import CellBox, along, blocks, first_cell
from virtualstack.manifests.cf import can_cast_floats, decoding_keys, differing_key
from virtualstack.manifests.chunk_manifest import ChunkManifest
from virtualstack.manifests.encoding import ChunkEncoding, Fill, native
from virtualstack.manifests.grid import ChunkGrid
from virtualstack.manifests.index_keys import index_chunks, index_view
from virtualstack.manifests.indexing import Chunks, transpose
from virtualstack.manifests.joining import equal
from virtualstack.manifests.manifest import Manifest
from virtualstack.manifests.values import (
    NotWrittenError,
    decoded_values,
    missing_in,
    needs_values,
    numbers_of,
    values_of,
)
from virtualstack.manifests.verdict import Verdict
from virtualstack.manifests.view import ManifestView


def can_cast(old: np.dtype[Any], new: np.dtype[Any], /) -> bool:
    """Return whether chunks of one dtype can be cast to another.

    Numbers and booleans can be cast to each other, but complex numbers only to complex numbers.
    Text of fixed length can only get longer.

    >>> can_cast(np.dtype("f4"), np.dtype("f8")), can_cast(np.dtype("c8"), np.dtype("f4"))
    (True, False)
    >>> can_cast(np.dtype("S3"), np.dtype("S5")), can_cast(np.dtype("S5"), np.dtype("S3"))
    (True, False)
    """
    if old.kind in "SU":
        return new.kind == old.kind and new.itemsize >= old.itemsize
    return old.kind in "biufc" and new.kind in ("c" if old.kind == "c" else "biufc")


def cast(manifest: ChunkManifest, dtype: np.dtype[Any], /) -> ChunkManifest:
    """Put a cast in front of the codecs of all chunks, and cast the fill values; ``dtype`` is native.

    Earlier casts are kept: a cast through integers truncates, and the whole chain must do so too.
    """
    fills = []
    for row, fill in enumerate(manifest.fills):
        try:
            fills.append(Fill(dtype, cast_numbers(np.asarray(fill.value, fill.dtype), dtype).tobytes()))
        except ValueError:
            if (manifest.holes & (manifest.entries["encoding"] == row)).any():
                raise
            fills.append(Fill.zero(dtype))
    encodings = tuple(
        replace(x, dtype=dtype, codecs=(cast_codec(x.dtype, dtype), *x.codecs)) for x in manifest.encodings
    )
    return replace(manifest, fills=tuple(fills), encodings=encodings)


_FUNCTIONS: dict[Callable[..., Any], Callable[..., Any]] = {}


def implements[F: Callable[..., Any]](function: Callable[..., Any], /) -> Callable[[F], F]:
    """Register the implementation of a numpy function for :class:`ManifestArray`."""

    def register(implementation: F) -> F:
        _FUNCTIONS[function] = implementation
        return implementation

    return register


@dataclass(frozen=True, eq=False, kw_only=True)
class ManifestArray(NDArrayOperatorsMixin):
    """A virtual array: shape, dtype and chunk grid, and a manifest of where each chunk is.

    Structural operations (indexing, transposing, joining) return a new array and read no bytes.
    A request for values, as by :func:`numpy.asarray`, reads up to 16 MiB of values. It raises
    :class:`~virtualstack.errors.VirtualValuesError` if there are more, or if the stored numbers are packed.

    When to use: variables of virtual datasets hold it, and readers make it. Alternatives: ``vds.virtual.open()``
    returns arrays with values.

    Parameters
    ----------
    manifest
        Manifest of the chunks. Its shape is the shape of the grid.
    grid
        Chunk grid: the boundaries of the cells along each axis.
    dtype
        Data type of the values, in native byte order.
    name
        Path of the variable in its source, for messages; or ``None``.
    dimension_names
        Name of each axis, or ``None`` if an operation has lost the names.
    attributes
        Attributes of the source, as the format has them.
    cf
        The attributes of the source that change values: ``scale_factor``, ``add_offset``, ``_FillValue``,
        ``missing_value``, ``_Unsigned``, and ``units`` and ``calendar`` of times. Joining compares them.
    access
        How the sources are reached: credentials and other options of ``storage=``, or ``None`` for the defaults. It is
        used when values are read, and pickled with the array. No format of references stores it.

    Raises
    ------
    ManifestError
        Manifest, grid, dtype and dimension names do not fit each other.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": (("y", "x"), [[1.0, 2.0, 3.0]])}).to_netcdf("day.nc", engine="netcdf4")
    >>> array = vs.open_virtual_dataset("day.nc")["rain"].data
    >>> array.shape, array.ndim, array.size, array.itemsize, array.nbytes
    ((1, 3), 2, 3, 8, 24)
    >>> array.T.shape, array[:, ::2].shape, array.reshape(3).shape
    ((3, 1), (1, 2), (3,))
    >>> np.concatenate([array, array]).shape
    (2, 3)
    """

    manifest: Manifest
    grid: ChunkGrid
    dtype: np.dtype[Any]
    name: str | None = None
    dimension_names: tuple[str, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    cf: Mapping[str, Any] = field(default_factory=dict)
    access: Access | None = field(default=None, repr=False)

    __array_priority__ = 1000

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", np.dtype(self.dtype))
        if self.dtype != native(self.dtype):
            raise ManifestError(f"dtype '{self.dtype}' is not native; the byte order stands in the encodings")
        if self.dtype.kind in "mM" and np.datetime_data(self.dtype)[0] == "generic":
            raise ManifestError(f"times of dtype '{self.dtype}' have no unit")
        if self.manifest.shape != self.grid.shape:
            raise ManifestError(f"the manifest has shape {self.manifest.shape}, the chunk grid {self.grid.shape}")
        if self.dimension_names is not None and len(self.dimension_names) != self.ndim:
            raise ManifestError(f"{len(self.dimension_names)} dimension names for {self.ndim} axes")

    # -- description ----------------------------------------------------------------------------------------------

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape in elements."""
        return self.grid.array_shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.grid.axes)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes that the values would take in memory."""
        return self.size * self.dtype.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one value in memory."""
        return self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def in_memory(self) -> ChunkManifest:
        """Return all entries; if the references were opened lazily, read them now. No chunk is read."""
        if isinstance(self.manifest, ChunkManifest):
            return self.manifest
        return self.manifest.read(tuple(slice(0, n) for n in self.manifest.shape))

    def as_chunks(self) -> Chunks:
        """Return manifest and grid as the pair :class:`Chunks`, on which structural operations work."""
        return Chunks(self.in_memory(), self.grid)

    def with_chunks(self, chunks: Chunks, /) -> ManifestArray:
        """Return the array with another manifest and grid: ``chunks`` is the pair, as `as_chunks` returns it.

        No chunk is read or rechunked. The result has no dimension names, because its axes may be different ones.
        """
        return replace(self, manifest=chunks.manifest, grid=chunks.grid, dimension_names=None)

    def a_url(self) -> str | None:
        """Return the URL of one of the sources, for messages."""
        return self.manifest.url

    def whole(self) -> ManifestArray:
        """Return the array with its whole manifest in memory: call it before you read all entries more than once."""
        return self if isinstance(self.manifest, ChunkManifest) else replace(self, manifest=self.in_memory())

    def validate(self) -> None:
        """Check that references are consistent and that each cell lies in its decoded chunk; no chunk is read.

        Call it for arrays of your own reader.

        Raises
        ------
        ManifestError
            An entry is invalid (see :meth:`ChunkManifest.validate`), a fill has another dtype, or a cell reaches
            outside of its decoded chunk.
        """
        manifest = self.in_memory()
        manifest.validate()
        for fill in manifest.fills:
            if fill.dtype != self.dtype:
                raise ManifestError(f"a fill has dtype '{fill.dtype}', the array '{self.dtype}'")
        if not manifest.entries.size or not manifest.encodings:
            return
        largest = [axis.longest for axis in self.grid.axes]
        if manifest.starts is None and all(_fits(encoding, largest) for encoding in manifest.encodings):
            return
        for box in blocks(manifest.shape):
            lengths = [
                along(np.diff(axis.lines(cells.start, cells.stop)), i, self.ndim)
                for i, (axis, cells) in enumerate(zip(self.grid.axes, box, strict=True))
            ]
            _check_reach(manifest.read(box), box, lengths, self.name)

    # -- structural operations --------------------------------------------------------------------------------

    def __getitem__(self, key: object, /) -> ManifestArray:
        try:
            if not isinstance(self.manifest, ChunkManifest):
                return self._index_view(key)
            return self.with_chunks(index_chunks(self.as_chunks(), key))
        except ChunkAlignmentError as error:
            raise ChunkAlignmentError(f"variable '{self.name}': {error}", axis=error.axis, variable=self.name) from None

    def _index_view(self, key: object) -> ManifestArray:
        """Index a manifest that is not in memory; only cells that steps and arrays select are read."""
        manifest, grid, rest = index_view(self.manifest, self.grid, key)
        seen = replace(self, manifest=manifest, grid=grid, dimension_names=None)
        return seen if rest is None else seen[rest]

    def __setitem__(self, key: object, value: object, /) -> NoReturn:
        raise needs_values(self, "values cannot be assigned to it")

    def transpose(self, *axes: Any) -> ManifestArray:
        """Permute axes. Without arguments the axes are reversed, as in numpy."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], (int, np.integer)) else axes or None
        order = tuple(range(self.ndim))[::-1] if order is None else normalize_axis_tuple(order, self.ndim)
        if len(order) != self.ndim:
            raise ValueError(f"axes {order} do not match an array of {self.ndim} axes")
        if isinstance(self.manifest, ChunkManifest):
            return self.with_chunks(transpose(self.as_chunks(), order))
        manifest = ManifestView.from_manifest(self.manifest, self.grid).transpose(order).simplified()
        grid = ChunkGrid(tuple(self.grid.axes[i] for i in order))
        return replace(self, manifest=manifest, grid=grid, dimension_names=None)

    @property
    def T(self) -> ManifestArray:  # noqa: N802 - numpy's name
        """The array with axes reversed."""
        return self.transpose()

    @property
    def mT(self) -> ManifestArray:  # noqa: N802 - numpy's name
        """The array with its last two axes exchanged."""
        if self.ndim < 2:
            raise ValueError(f"an array of {self.ndim} axes has no last two to exchange")
        return self.transpose(*range(self.ndim - 2), -1, -2)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> ManifestArray:
        """Split and merge axes, as :func:`numpy.reshape` does. Cells are cut if chunks do not hold whole rows.

        Too many cells, or an ``order`` other than ``"C"``, raise ``ChunkAlignmentError``. ``copy`` has no effect.
        """
        reshape: Callable[..., ManifestArray] = _FUNCTIONS[np.reshape]
        return reshape(self, shape[0] if len(shape) == 1 else shape, order)

    def copy(self, order: str = "C") -> ManifestArray:
        """Return the array itself, which cannot change; ``order`` has no effect."""
        return self

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> ManifestArray:
        """Cast to another dtype: chunks are cast when they are read.

        Values are cast as in numpy: integers wrap, and fractions are cut off. Unlike in numpy, a float that no integer
        can hold (NaN, infinity) is an error when it is read. ``order``, ``subok`` and ``copy`` have no effect.

        Raises
        ------
        CombineError
            One of these holds, also with ``casting="unsafe"``:

            - ``casting`` does not allow the cast (see :func:`numpy.can_cast`).
            - The cast is not from numbers to numbers or from text to longer text, or it is from complex to real.
            - The array is packed: stored numbers have no meaning in another dtype. Floats whose attributes only mark
              missing values or name units can be cast to wider floats.
            - The fill value of an EMPTY or ABSENT cell does not fit into the dtype.
        """
        wanted = np.dtype(dtype)
        if wanted.metadata and "virtualstack" in wanted.metadata:
            return self  # see agreement.AS_STORED
        if not np.can_cast(self.dtype, wanted, casting):  # type: ignore[arg-type]
            raise self._no_cast(wanted, f"which casting={casting!r} does not allow")
        if wanted == self.dtype or (wanted.kind == self.dtype.kind and wanted.kind in "SU" and not wanted.itemsize):
            return self
        packed = decoding_keys(self.cf) - ({"_Encoding"} if self.dtype.kind == "S" else set())
        if packed and not can_cast_floats(self.cf, self.dtype, wanted):
            remedy = Remedy("open the files with {}, which decodes each by its own attributes", unpack=True)
            raise self._no_cast(wanted, f"but its numbers are packed by {sorted(self.cf)}", remedy)
        if not can_cast(self.dtype, wanted):
            raise self._no_cast(wanted, "which is not a cast between numbers, nor to longer text", READ_VALUES)
        try:
            return replace(self, manifest=cast(self.in_memory(), native(wanted)), dtype=native(wanted))
        except ValueError as error:
            raise self._no_cast(
                wanted, f"but its missing chunks read as a value that it cannot store: {error}"
            ) from error

    def _no_cast(self, wanted: np.dtype[Any], why: str, *remedies: Remedy) -> CombineError:
        return CombineError(
            f"variable '{self.name}' has dtype '{self.dtype}', and '{wanted}' is requested (joining arrays of two "
            f"dtypes asks for their common one), {why}",
            *remedies,
            variable=self.name,
            property="dtype",
            left=self.dtype,
            right=wanted,
            left_url=self.a_url(),
        )

    def with_access(self, access: Access | None, /) -> ManifestArray:
        """Return the same array with another access; nothing is checked again, as an archive has many arrays."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, access=access)
        return made

    def rename_locations(self, change: Mapping[str, str] | Callable[[str], str], /) -> ManifestArray:
        """Rename sources, as :meth:`ChunkManifest.rename` does."""
        return replace(self, manifest=self.in_memory().rename(change))

    # -- equality ---------------------------------------------------------------------------------------------

    def equals(self, other: object, /) -> bool:
        """Return whether both arrays provably have the same values, element by element; no bytes are read."""
        if self is other:
            return True
        if not isinstance(other, ManifestArray) or self.shape != other.shape or self.dtype != other.dtype:
            return False
        if self.grid == other.grid and self.manifest == other.manifest:
            return True  # the same file, although its manifest may not be in memory
        return equal(self.as_chunks(), other.as_chunks())

    def __eq__(self, other: object) -> Any:
        if self.dtype.kind == "T" and isinstance(other, str):
            return nulls(self)  # xarray's way to ask for it
        if not isinstance(other, ManifestArray):
            return self._values("compared") == other
        if self.equals(other):
            return ~nulls(self)  # a missing value equals none, not even itself
        # numbers of one meaning need not be unpacked to be compared
        read = decoded_values if differing_key(self.cf, other.cf, self.dtype) else numbers_of
        what = "it is compared, which vs.combine_datasets([...]) does at any size"
        equal_numbers = Verdict(None, self.shape, lambda: np.asarray(read(self, what) == read(other, what)))
        return equal_numbers & ~nulls(self) if self.cf else equal_numbers  # one number may mean missing in both

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    __hash__ = None  # type: ignore[assignment]

    # -- values ---------------------------------------------------------------------------------------------------

    def _values(self, use: str = "used") -> NDArray[Any]:
        """Read all values if they are few, through the access of the array."""
        return values_of(self, f"its values are {use}")

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self._values(), dtype, copy=copy)

    def __iter__(self) -> Iterator[ManifestArray]:  # what has none is a scalar for pandas
        return (self[i] for i in range(len(self)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and not kwargs:
            if ufunc is np.equal or ufunc is np.not_equal:
                left, right = inputs
                result = left == right if isinstance(left, ManifestArray) else right == left
                return result if ufunc is np.equal else ~result
            if ufunc is np.isnan or ufunc is np.isnat:
                return nulls(self)
        return getattr(ufunc, method)(*_read(inputs, ufunc.__name__), **kwargs)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        implementation = _FUNCTIONS.get(function)
        if implementation is not None:
            return implementation(*args, **kwargs)
        return function(*_read(args, function.__name__), **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute or a method of numpy's arrays; those that need values read them when they are called."""
        if name in _OF_VALUES:
            return getattr(self._values(f"used by '.{name}'"), name)
        if name == "chunks":
            raise NotWrittenError(
                f"variable '{self.name}' is virtual: xarray can neither write nor chunk it. Call vds.virtual.open() "
                "first, as in vds.virtual.open().to_netcdf('y.nc'). If it was to_zarr, delete the store that it began"
            )
        if name not in _METHODS:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        function = getattr(np, name, None)
        if function in _FUNCTIONS:
            return partial(function, self)
        return partial(self._call, name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._values(f"used by '.{name}()'"), name)(*args, **kwargs)

    @property
    def chunks(self) -> NoReturn:
        """No array of dask. xarray asks whether the class has it, and needs it before it creates a netCDF file."""
        raise AttributeError("chunks")  # and Python calls __getattr__

    def __contains__(self, value: object) -> bool:
        return value in self._values()

    def __format__(self, spec: str) -> str:
        return format(self._values()[()], spec) if spec else str(self)

    def __bool__(self) -> bool:
        return bool(self._values())

    def __int__(self) -> int:
        return int(self._values())

    def __float__(self) -> float:
        return float(self._values())

    def __complex__(self) -> complex:
        return complex(self._values())

    # -- representation -------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"ManifestArray<shape={self.shape}, dtype={self.dtype}, grid={self.grid!r}>"

    def _repr_inline_(self, max_width: int) -> str:
        from virtualstack.manifests.display import inline_text

        return inline_text(self, max_width)

    def _repr_html_(self) -> str:
        from virtualstack.manifests.display import array_html

        return array_html(self)


def _fits(encoding: ChunkEncoding, largest: Sequence[int]) -> bool:
    """Return whether cells of at most ``largest`` elements along each axis, with start 0, are in the decoded chunk."""
    reach = sum((n - 1) * step for n, step in zip(largest, encoding.strides, strict=True))
    return all(step >= 0 for step in encoding.strides) and reach < encoding.size


def _check_reach(manifest: ChunkManifest, box: CellBox, lengths: Sequence[NDArray[np.int64]], name: str | None) -> None:
    """Check that cells of a box show only elements of their decoded chunks."""
    row = manifest.encoding_rows
    low = manifest.all_starts.copy()
    high = low.copy()
    for i, n in enumerate(lengths):
        extent = (n - 1) * np.array([x.strides[i] for x in manifest.encodings], np.int64)[row]
        low += np.minimum(extent, 0)
        high += np.maximum(extent, 0)
    sizes = np.array([x.size for x in manifest.encodings], np.int64)[row]
    bad: NDArray[Any] = ((low < 0) | (high >= sizes)) & ~manifest.holes
    if bad.any():
        at = np.unravel_index(int(bad.argmax()), bad.shape)
        raise ManifestError(
            f"cell {first_cell(box, bad)} of '{name}' shows elements {int(low[at])} to {int(high[at])} of a decoded "
            f"chunk of {int(sizes[at])}"
        )


def nulls(array: ManifestArray, /) -> Verdict:
    """Return which values are missing; nothing is read if attributes and data type leave no doubt."""
    if array.dtype.kind in "iub" and not array.cf:
        return Verdict.known(False, array.shape)
    return Verdict(None, array.shape, lambda: missing_in(array, "its missing values are asked for"), array)


def _read(arguments: Iterable[Any], name: str) -> list[Any]:
    """Return arguments of a function of numpy with values in place of virtual arrays, which may be in lists."""
    return [
        values_of(x, f"'np.{name}' uses its values")
        if isinstance(x, ManifestArray)
        else _read(x, name)
        if isinstance(x, list | tuple)
        else x
        for x in arguments
    ]


_OF_VALUES = frozenset({"flat", "imag", "real"})
_METHODS = frozenset(
    name for name in dir(np.ndarray) if not name.startswith("_") and callable(getattr(np.ndarray, name))
)

"""Facts of each file as numbers, which are compared by whole columns, and eras of files that agree."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.cast import CAST
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.equivalence import decoding_part
from virtualstack.manifests import ChunkEncoding, ManifestArray, ManifestGroup
from virtualstack.manifests.encoding import stored_dtype
from virtualstack.surveying.result import shortened

type Key = tuple[str, str]
"""Path of a variable (``""`` for the file itself) and name of one of its properties."""

STRUCTURE = ("present", "dims", "dtype", "chunks", "codecs", "packing", "time units", "calendar", "fill")
"""Properties that decide how files are joined and read, in the order in which they are shown."""

_ATTRIBUTE = "attribute "
"""Prefix of a property that is an attribute; the name of the attribute follows."""

_UNKNOWN = -1
NONE = "none"
_SHUFFLE = "numcodecs.shuffle"
_FILLS = ("_FillValue", "missing_value")
_TIMES = ("units", "calendar")


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Properties of the variables of files.

    Parameters
    ----------
    keys
        Variable and property of each column.
    codes
        Numbers of the values, with shape ``(files, keys)``. The number is ``-1`` if a file does not have the property:
        the variable is absent from the file, or has no chunks there.
    values
        Values of each column by their number.
    """

    keys: tuple[Key, ...]
    codes: NDArray[np.int32]
    values: tuple[tuple[Hashable, ...], ...]


def collect_facts(groups: Sequence[ManifestGroup], dim: str | None, /) -> Facts:
    """Return the facts of groups. Lengths along ``dim``, along which files are joined, are not facts."""
    columns: dict[Key, dict[Hashable, int]] = {}
    order: dict[Key, int] = {}
    known: dict[Hashable, tuple[tuple[int, int], ...]] = {}

    def numbered(facts: Iterable[tuple[Key, Hashable]]) -> tuple[tuple[int, int], ...]:
        pairs = []
        for key, value in facts:
            numbers = columns.setdefault(key, {})
            pairs.append((order.setdefault(key, len(order)), numbers.setdefault(value, len(numbers))))
        return tuple(pairs)

    rows: list[list[tuple[int, int]]] = []
    for group in groups:
        row: list[tuple[int, int]] = []
        for path, node in group.walk():
            at = path[1:]
            row += numbered(((at, _ATTRIBUTE + name), _hashable(x)) for name, x in node.attributes.items())
            for name, array in node.arrays.items():
                signature = (at, name, _signature(array))
                if signature not in known:  # most arrays are the same in another file
                    known[signature] = numbered(_facts_of_array(f"{at}/{name}" if at else name, name, array, dim))
                row += known[signature]
        rows.append(row)
    codes = np.full((len(rows), len(order)), _UNKNOWN, np.int32)
    for line, row in zip(codes, rows, strict=True):
        pairs = np.array(row, np.int32).reshape(-1, 2)
        line[pairs[:, 0]] = pairs[:, 1]
    for key, column in order.items():
        if key[1] == "present":
            absent = columns[key].setdefault(False, len(columns[key]))
            codes[:, column] = np.where(codes[:, column] == _UNKNOWN, absent, codes[:, column])
    values = tuple(tuple(columns[key]) for key in order)
    return _whole_chunks(Facts(tuple(order), codes, values))


def _whole_chunks(facts: Facts) -> Facts:
    """Replace the length of chunks that are always as long as their file by ``"all"``; lengths of files are dropped."""
    codes, values = facts.codes.copy(), list(facts.values)
    for column, (_, name) in enumerate(facts.keys):
        if name != "chunks":
            continue
        chunks: list[Any] = list(values[column])  # pairs of chunk shape and (axis, length) along the dimension
        lengths: dict[Any, set[int]] = {}
        for shape, along in chunks:
            if along is not None:
                lengths.setdefault((shape, along[0]), set()).add(along[1])
        known: dict[Hashable, int] = {}
        new = []
        for shape, along in chunks:
            if along is not None and shape[along[0]] > 1 and lengths[shape, along[0]] == {shape[along[0]]}:
                shape = (*shape[: along[0]], "all", *shape[along[0] + 1 :])
            new.append(known.setdefault(shape, len(known)))
        codes[:, column] = np.where(
            codes[:, column] == _UNKNOWN, _UNKNOWN, np.array([*new, _UNKNOWN])[codes[:, column]]
        )
        values[column] = tuple(known)
    return Facts(facts.keys, codes, tuple(values))


def _signature(array: ManifestArray) -> Hashable:
    """Return everything that the facts of an array depend on."""
    tables = array.manifest.tables
    attributes = array.attributes
    return (
        array.dimension_names,
        array.shape,
        array.dtype,
        tables.fill,
        tables.encodings,
        tuple(attributes),
        tuple([x if type(x) is str else _hashable(x) for x in attributes.values()]),
        () if not array.cf else tuple([(k, _hashable(x)) for k, x in array.cf.items()]),
    )


def _facts_of_array(variable: str, name: str, array: ManifestArray, dim: str | None) -> Iterator[tuple[Key, Hashable]]:
    dims = array.dimension_names or ()
    yield (variable, "present"), True
    yield (variable, "dims"), tuple((x, None if x == dim else n) for x, n in zip(dims, array.shape, strict=True))
    cf = array.cf
    for key, value in array.attributes.items():
        if key not in cf:
            yield (variable, _ATTRIBUTE + key), _hashable(value)
    yield (variable, "calendar"), _hashable(cf.get("calendar", "standard")) if "units" in cf else NONE
    manifest = array.manifest.tables
    encodings = manifest.encodings
    if dims == (name,):  # coordinates are decoded file by file, so that their storage does not matter
        yield (variable, "dtype"), (array.dtype.str,)
        return
    units = cf.get("units", NONE)  # of times, not their epoch: joining decodes them
    yield (variable, "time units"), _hashable(units.partition(" since ")[0] if isinstance(units, str) else units)
    yield (variable, "packing"), tuple((k, _hashable(cf[k])) for k in sorted(cf) if k not in _FILLS + _TIMES)
    fills = [(key, cf[key]) for key in _FILLS if key in cf]
    yield (variable, "fill"), tuple((key, _number(x)) for key, x in (*fills, ("unwritten", manifest.fill.value)))
    if encodings:
        yield (variable, "dtype"), stored_dtypes(encodings)
        yield (variable, "codecs"), codec_names(encodings)
        yield (variable, "chunks"), _chunks(array, encodings[0], dim)


def stored_dtypes(encodings: Iterable[ChunkEncoding], /) -> Hashable:
    """Return the value of the property "dtype" of chunks with these encodings."""
    return tuple(sorted({stored_dtype(x).str for x in encodings}))


def codec_names(encodings: Iterable[ChunkEncoding], /) -> Hashable:
    """Return the value of the property "codecs" of chunks with these encodings."""
    return tuple(sorted({_codecs(x.codecs, stored_dtype(x).itemsize) for x in encodings}, key=str))


def _chunks(array: ManifestArray, encoding: ChunkEncoding, dim: str | None) -> Hashable:
    dims = array.dimension_names or ()
    shape = encoding.shape
    if len(shape) != len(dims):
        shape = tuple(axis.chunk or int(axis.lengths().max()) for axis in array.grid.axes)
    axis = dims.index(dim) if dim in dims else None
    return shape, None if axis is None else (axis, array.shape[axis])


@lru_cache(maxsize=4096)
def _codecs(codecs: tuple[Codec, ...], itemsize: int) -> tuple[Codec, ...]:
    """Return the codecs that affect decoding, without casts and repeated sizes of elements."""
    usual = Codec.from_config(_SHUFFLE, elementsize=itemsize)
    return tuple(Codec(_SHUFFLE) if codec == usual else codec for codec in decoding_part(codecs) if codec.name != CAST)


def _number(value: Any) -> str:
    """Return a fill value as text that is the same for the same number in two dtypes."""
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)


def _hashable(value: Any) -> Hashable:
    """Return a key that is equal for equal values of the same dtype and shape."""
    if isinstance(value, str):
        return value
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return value.dtype.str, None, value.tobytes()
    return repr(value)


# -- as text --------------------------------------------------------------------------------------------------


def describe_fact(name: str, value: Any, /) -> str:
    """Return the value of a property as text for people."""
    match name:
        case "present":
            return "there" if value else "absent"
        case "dims":
            return ", ".join(dim if n is None else f"{dim}={n}" for dim, n in value) or "scalar"
        case "dtype":
            return "; ".join(map(_dtype, value))
        case "chunks":
            return " x ".join(map(str, value)) or "1"
        case "codecs":
            return "; ".join(" + ".join(map(_codec, chain)) or "none" for chain in value)
        case "packing" | "fill":
            return ", ".join(f"{key}={_plain(x)}" for key, x in value) or "none"
    return _plain(value)


def _dtype(text: str) -> str:
    dtype = np.dtype(text) if "T" not in text else np.dtypes.StringDType()
    return f"{dtype.newbyteorder('=')} big-endian" if text.startswith(">") else str(dtype)


def _codec(codec: Codec) -> str:
    options = codec.options()
    name = codec.name.removeprefix("numcodecs.")
    return f"{name}({', '.join(f'{k}={v}' for k, v in options.items())})" if options else name


def _plain(value: Any) -> str:
    if isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], bytes):  # made by _hashable
        dtype = np.dtype(value[0])
        numbers = np.frombuffer(value[2], dtype) if dtype.itemsize else np.zeros(1, dtype)
        if value[1] is None:
            value = f"{numbers[0]!s}" + (f" ({dtype})" if dtype.kind == "f" and dtype.itemsize < 8 else "")
        else:
            value = numbers.tolist()
    return _shortened(str(value))


def _shortened(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def describe_changes(
    facts: Facts, changed: NDArray[np.bool_], old: NDArray[np.int32], new: NDArray[np.int32], /
) -> str:
    """Return text that describes changed properties; variables with the same change are listed together."""
    said: dict[tuple[str, str], list[str]] = {}
    for column in np.flatnonzero(changed).tolist():
        variable, name = facts.keys[column]
        texts = (_text(facts, column, int(x[column])) for x in (old, new))
        said.setdefault((name, " -> ".join(texts)), []).append(variable)
    rank = {name: i for i, name in enumerate(STRUCTURE)}
    lines = sorted(said.items(), key=lambda item: (rank[item[0][0]], item[1]))
    told = (
        (shortened(names) if name == "present" else f"{name} of {shortened(names)}", x) for (name, x), names in lines
    )
    return "; ".join(f"{what}: {change}" for what, change in told)


def _text(facts: Facts, column: int, code: int) -> str:
    return "unknown" if code < 0 else describe_fact(facts.keys[column][1], facts.values[column][code])


_MAX_OUTLIERS = 2
"""Largest number of files between two parts of an era that do not form a separate era."""


@dataclass(frozen=True, slots=True, eq=False)
class Periods:
    """Eras of a sequence of files."""

    era: NDArray[np.intp]
    is_outlier: NDArray[np.bool_]
    varies: NDArray[np.bool_]
    n_changes: NDArray[np.intp]
    codes: NDArray[np.int32]
    typical: NDArray[np.int32]


def find_periods(
    codes: NDArray[np.int32], is_structure: NDArray[np.bool_], is_packing: NDArray[np.bool_] | None = None, /
) -> Periods:
    """Divide files into eras."""
    codes = _filled(codes)
    n = len(codes)
    n_changes = np.count_nonzero(codes[1:] != codes[:-1], axis=0)
    varies = n_changes > max(8, n // 5)
    if is_packing is not None:
        varies |= is_packing & (n_changes == n - 1) & (n > 2)
    used = codes[:, is_structure & ~varies]
    kinds: dict[bytes, int] = {}  # by whole rows, which may have 10^4 columns and more
    kind = np.array([kinds.setdefault(row.tobytes(), len(kinds)) for row in used], np.intp)
    smooth = _without_outliers(kind)
    era = np.concatenate([[0], np.cumsum(smooth[1:] != smooth[:-1])])
    typical = np.stack([_most_frequent(codes[(era == i) & (kind == smooth)]) for i in range(int(era[-1]) + 1)])
    return Periods(era, kind != smooth, varies, n_changes, codes, typical)


def _filled(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    """Replace unknown values by the value of the file before, or at the beginning by the first known value."""
    for turn in (1, -1):
        rows = np.where(codes[::turn] != _UNKNOWN, np.arange(len(codes))[:, None], -1)
        last = np.maximum.accumulate(rows, axis=0)
        codes = np.take_along_axis(codes[::turn], np.maximum(last, 0), axis=0)[::turn]
    return codes


def _without_outliers(kind: NDArray[np.intp]) -> NDArray[np.intp]:
    """Replace the kind of up to two files by the kind around them, if on both sides at least as many have it."""
    smooth = kind.tolist()
    n, i, n_before = len(smooth), 1, 1
    while i < n:
        around = smooth[i - 1]
        if smooth[i] == around:
            i, n_before = i + 1, n_before + 1
            continue
        for width in range(1, _MAX_OUTLIERS + 1):
            after = smooth[i + width : i + 2 * width]
            if n_before >= width and after == [around] * width:
                smooth[i : i + width] = [around] * width
                i, n_before = i + width, n_before + width
                break
        else:
            i, n_before = i + 1, 1
    return np.array(smooth, np.intp)


def _most_frequent(codes: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.array([np.bincount(column - _UNKNOWN).argmax() + _UNKNOWN for column in codes.T], np.int32)

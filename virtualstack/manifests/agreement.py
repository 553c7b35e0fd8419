"""Rules for joining arrays: which properties must agree, which stored numbers read as equal, and the errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray import conventions

from virtualstack.codecs.cf_times import CODING_ERRORS, quiet
from virtualstack.errors import Code, CombineError, ManifestError, Remedy
from virtualstack.location import Access
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.cells import replaced
from virtualstack.manifests.cf import differing_key, is_nan
from virtualstack.manifests.encoding import Fill
from virtualstack.manifests.values import plain_name

_INT64_NAT = np.iinfo(np.int64).min


def stored_number(dtype: np.dtype[Any], cf: Mapping[str, Any], value: Any = None, /) -> Fill | None:
    """Return a number of a dtype that attributes decode to a value, or ``None`` if no matching number is known.

    >>> stored_number(np.dtype("i2"), {"_FillValue": np.int16(-9), "scale_factor": 0.5}).value
    np.int16(-9)
    >>> stored_number(np.dtype("i2"), {"scale_factor": 0.5}, 2.0).value
    np.int16(4)
    """
    key = tuple((k, _frozen(v)) for k, v in sorted(cf.items()))
    return _stored(dtype, key, _Attributes(cf), None if value is None else _plain(value))


def reads_as(number: Any, cf: Mapping[str, Any], value: Any = None, /) -> bool:
    """Return whether xarray decodes a stored number to a value, or to a missing value if ``value`` is ``None``.

    A number that xarray cannot decode reads as nothing: the result is ``False``.
    """
    try:
        with quiet():
            packed = xr.Variable((), np.asarray(number), dict(cf), fastpath=True)
            decoded = conventions.decode_cf_variable("v", packed, concat_characters=False).values
    except (ValueError, TypeError, OverflowError, KeyError):
        return False
    return bool(pd.isnull(decoded)) if value is None else bool(decoded == value)


def _plain(fill_value: Any) -> Any:
    """Return a value as decoded values are compared: a Python number, or a date of numpy or cftime."""
    if isinstance(fill_value, date) and getattr(fill_value, "tzinfo", None) is None:  # a datetime is a date, too
        return pd.Timestamp(fill_value).asm8
    if isinstance(fill_value, timedelta):
        return np.timedelta64(fill_value)
    value = np.asarray(fill_value)
    return value[()] if value.dtype.kind in "mM" else value.item()


class _Attributes(dict[str, Any]):
    """Attributes that a cache does not compare: the key of the cache holds them in another form."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attributes)

    def __hash__(self) -> int:  # type: ignore[override]
        return 0


def _frozen(value: object) -> object:
    array = np.asarray(value)
    return array.dtype.str, array.shape, array.tobytes() if array.dtype.kind != "O" else repr(value)


@lru_cache(maxsize=1024)
def _stored(dtype: np.dtype[Any], key: object, attributes: _Attributes, wanted: Any) -> Fill | None:
    """Return the first candidate that xarray decodes to the wanted value, or to a missing value."""
    for candidate in _candidates(dtype, attributes, wanted):
        if reads_as(candidate, attributes, wanted):
            return Fill(dtype, np.asarray(candidate, dtype).tobytes())
    return None


def _candidates(dtype: np.dtype[Any], attributes: Mapping[str, Any], wanted: Any) -> list[Any]:
    numbers: list[Any] = []
    if wanted is None:
        numbers = [x for key in ("_FillValue", "missing_value") for x in np.ravel(attributes.get(key, ()))]
        numbers += [np.nan] if dtype.kind == "f" else [_INT64_NAT] if dtype == np.int64 else []
    elif np.asarray(wanted).dtype.kind in "iufb":
        scale, offset = (float(np.ravel(attributes.get(k, d))[0]) for k, d in (("scale_factor", 1), ("add_offset", 0)))
        if scale:
            number = (float(wanted) - offset) / scale
            numbers = [int(np.rint(number)) if dtype.kind in "iu" and np.isfinite(number) else number]
    else:
        numbers = _encoded(dtype, attributes, wanted)
    found = []
    for number in numbers:
        value = np.asarray(number)
        if value.dtype.kind in "iu" and dtype.kind in "iu":  # as stored: 255 of an unsigned byte is -1, or -1 is 255
            size = 1 << (8 * dtype.itemsize)
            limits = np.iinfo(dtype)
            same = (int(value) + n for n in (0, -size, size))
            value = np.asarray(next((x for x in same if limits.min <= x <= limits.max), 0))
        elif value.dtype.kind not in "iuf":
            continue
        with np.errstate(all="ignore"):
            found.append(value.astype(dtype)[()])
    return found


def _encoded(dtype: np.dtype[Any], attributes: Mapping[str, Any], wanted: Any) -> list[Any]:
    """Return the number that xarray writes for a date or a duration; an empty list if xarray cannot encode it."""
    encoding = {key: value for key, value in attributes.items() if key != "dtype"}
    try:
        with quiet():
            variable = xr.Variable((), np.asarray(wanted), encoding={**encoding, "dtype": dtype})
            return [conventions.encode_cf_variable(variable, name="v").values[()]]
    except CODING_ERRORS:
        return []


AS_STORED = np.dtype(object, metadata={"virtualstack": "as stored"})
"""Common dtype of packed integers and a missing value: the integers stay unchanged.

xarray asks for the common dtype of the array and the fill value, and casts both to it before it fills in. So only this
dtype can prevent a cast of the array. xarray treats it as the dtype of objects, in which NaN stays NaN.
"""

_MISSING = ("_FillValue", "missing_value")
_NO_PACKING = frozenset({*_MISSING, "_Encoding"})
_USUAL = (None, "standard", "gregorian", "proleptic_gregorian")


def common_dtype(*operands: Any) -> np.dtype[Any]:
    """Return the common dtype of operands, as :func:`numpy.result_type` does.

    Packed integers and missing values alone have the common dtype :data:`AS_STORED`.
    """
    arrays = [x for x in operands if isinstance(x, ManifestArray)]
    if len(arrays) == 1 and is_packed(arrays[0]) and all(x is arrays[0] or is_missing(x) for x in operands):
        return AS_STORED
    dtypes = [x.dtype if isinstance(x, ManifestArray) else _operand(x) for x in operands]
    try:
        return np.result_type(*dtypes)
    except (np.exceptions.DTypePromotionError, TypeError):
        at = next(i for i, x in enumerate(operands) if isinstance(x, ManifestArray))
        first, dtype = operands[at], dtypes[at]
        others = [(x, getattr(d, "dtype", d)) for x, d in zip(operands, dtypes, strict=True)]
        odd, other = next(((x, d) for x, d in others if d != dtype), others[-1])
        if is_missing(odd):
            raise _no_fill(first, f"dtype '{dtype}' has no missing value") from None
        raise _clash("dtype", first, odd, dtype, other, "they have no dtype in common") from None


def _operand(value: Any) -> Any:
    """Return a value for :func:`numpy.result_type`, which would read text as a name: text becomes its dtype."""
    return np.asarray(value).dtype if isinstance(value, str | bytes) else value


def make_fill(array: ManifestArray, value: Any, dtype: np.dtype[Any] | None = None, /) -> Fill:
    """Return a value as a fill of an array, by default in the dtype of the array."""
    dtype = array.dtype if dtype is None else dtype
    number = value.item() if isinstance(value, np.ndarray | np.generic) and np.ndim(value) == 0 else value
    try:
        return Fill.from_value(value if dtype.kind in "mMSUTV" else number, dtype)
    except ManifestError as error:
        raise CombineError(
            f"variable '{array.name}' of dtype '{dtype}' cannot be filled with {value!r}: {error}. Give a value of "
            "that dtype, or cast the variable with astype first",
            variable=array.name,
            property="fill_value",
            left=dtype,
            right=value,
        ) from error


def is_packed(array: ManifestArray, /) -> bool:
    """Return whether an array holds integers whose meaning depends on attributes."""
    return array.dtype.kind in "iu" and bool(array.cf)


def is_missing(value: Any, /) -> bool:
    """Return whether a value is a missing value: NaN or NaT."""
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fcmMO" and bool(value != value)


def stored_fill(array: ManifestArray, value: Any, dtype: np.dtype[Any] | None = None, /) -> Fill:
    """Return a value as a fill of an array; among packed integers, NaN becomes the stored number that means it."""
    is_cast = dtype is not None and dtype != array.dtype  # a dtype of float64 equals None
    if is_cast or not (is_packed(array) and is_missing(value)):
        check_unpacked(array, value)
        return make_fill(array, value, dtype)
    found = stored_number(array.dtype, array.cf)
    if found is None:
        raise _no_fill(array, f"no stored '{array.dtype}' with {dict(array.cf)} reads as missing")
    return found


def _no_fill(array: ManifestArray, why: str) -> CombineError:
    name = (array.name or "").rsplit("/", 1)[-1]
    first = (
        Remedy("say which one does with", f"vds.virtual.set_encoding({{{name!r}: {{'_FillValue': ...}}}})")
        if array.dtype.kind in "iu"
        else Remedy("join the files with", "open_virtual_mfdataset", join="outer")
    )
    return CombineError(
        f"variable '{array.name}' in {_place(array)} has elements to be filled in, and {why}",
        first,
        Remedy("fill in a value with", "vds.virtual.reindex", fill_value={name: Code("...")}),
        variable=array.name,
        property="fill_value",
        left=array.dtype,
        left_url=array.a_url(),
    )


def check_unpacked(array: ManifestArray, value: object, /) -> None:
    """Refuse to add a value to packed numbers, among which the value would be read as a stored number.

    Attributes that only mark missing values do not pack: every other number reads as itself.
    NaN among floats is missing, however the floats are packed.
    """
    if array.dtype.kind == "f" and is_nan(value):
        return
    changing = sorted(array.cf.keys() - _NO_PACKING) or [
        key for key in _MISSING if key in array.cf and _is_among(value, array.cf[key])
    ]
    if changing:
        raise CombineError(
            f"variable '{array.name}' is packed by {sorted(array.cf)}, and {value!r} would be taken for a stored "
            "number",
            Remedy("open the files with {}, which decodes each by its own attributes", unpack=True),
            Remedy("find the stored number that reads as a value with", "vds.virtual.reindex"),
            variable=array.name,
            property=changing[0],
            right=value,
            left_url=array.a_url(),
        )


def of_one_dtype(parts: list[ManifestArray], /) -> list[ManifestArray]:
    """Cast arrays to their common dtype in numpy."""
    first = parts[0].dtype
    if all(x.dtype is first or x.dtype == first for x in parts):
        return parts
    dtype = common_dtype(*parts)
    cast = []
    for part in parts:
        try:
            cast.append(part.astype(dtype))
        except CombineError as error:
            other = next(x for x in parts if x.dtype != part.dtype)
            why = f"their common dtype is '{dtype}', and stored numbers mean nothing in another one than theirs"
            if not part.cf:
                why = f"their common dtype is '{dtype}', to which no chunk can be cast"
            raise _clash("dtype", part, other, part.dtype, other.dtype, why) from error
    return cast


def check_joinable(parts: Sequence[ManifestArray], axis: int, /) -> None:
    """Check that the shapes agree except along an axis, and that stored numbers have the same meaning."""
    first = parts[0]
    shape = replaced(first.shape, axis, 0)
    for other in parts[1:]:
        if replaced(other.shape, axis, 0) != shape:
            raise CombineError(
                f"variable '{first.name}' has shape {first.shape} in {_place(first)} and {other.shape} in "
                f"{_place(other)}; they must be equal but for axis {axis}",
                variable=first.name,
                property="shape",
                left=first.shape,
                right=other.shape,
                left_url=first.a_url(),
                right_url=other.a_url(),
            )
    like = reference(parts)
    for other in parts:
        key = other_meaning(like, other)
        if key is not None:
            values = like.cf.get(key), other.cf.get(key)
            raise _clash(key, like, other, *values, "they change what the stored numbers mean")


def reference(parts: Sequence[ManifestArray], /) -> ManifestArray:
    """Return the first packed operand, or else the first operand; the result of a join gets its packing attributes."""
    return next((part for part in parts if part.cf), parts[0])


def shared_attributes(parts: Sequence[ManifestArray], /) -> Mapping[str, Any]:
    """Return the attributes of the first operand, without packing attributes that others write in another way.

    xarray may drop attributes that differ. Then their absence does not mean that a user removed them.
    """
    like = reference(parts)
    others = [part.cf for part in parts if part.cf is not like.cf]
    odd = {key for cf in others for key in like.cf if not _is_spelled_alike(cf.get(key), like.cf[key])}
    first = parts[0].attributes
    return {key: value for key, value in first.items() if key not in odd} if odd else first


def _is_spelled_alike(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and bool(a == b)


def other_meaning(left: ManifestArray, right: ManifestArray, /) -> str | None:
    """Return the name of an attribute by which equal stored numbers mean different values in two arrays.

    Return ``None`` if equal numbers mean the same in both. Meanings are compared, not spellings: ``units`` that lead to
    the same dates are the same. See :func:`differing_key`.
    """
    if left.cf.keys() == right.cf.keys() and all(right.cf[key] is value for key, value in left.cf.items()):
        return None
    keys = left.cf.keys() | right.cf.keys()
    # a reader may know that a key changes values; in a store the key is an ordinary attribute
    a, b = ({key: array.cf.get(key, array.attributes.get(key)) for key in keys} for array in (left, right))
    return differing_key(a, b, left.dtype)


def _is_among(value: object, missing: object) -> bool:
    try:
        return bool(np.isin(np.asarray(value), np.asarray(missing)).any())
    except TypeError:
        return False


def _place(array: object) -> str:
    if not isinstance(array, ManifestArray):
        return "another one, where it is loaded"
    url = array.a_url()
    return "a file that has no chunk of it" if url is None else repr(url)


def _clash(key: str, left: ManifestArray, right: object, a: object, b: object, why: str) -> CombineError:
    calendars = [x.cf.get("calendar") for x in (left, right) if isinstance(x, ManifestArray)]
    remedies = [
        Remedy("open the files with", unpack=True),
        Remedy(
            "join them with {}, which decodes each by its own attributes", "open_virtual_mfdataset", unpack="differing"
        ),
    ]
    if any(calendar not in _USUAL for calendar in calendars):
        remedies = []  # dates of such calendars are objects, which no chunk decodes to
    first, *others = ({"calendar": calendar} for calendar in calendars)
    if any(differing_key(first, other, left.dtype) is not None for other in others):
        remedies.append(Remedy("leave the variable out with", drop_variables=...))
    else:
        remedies.append(Remedy("load the variable with {} if it is small", loadable_variables=[plain_name(left)]))
    remedies.append(Remedy("join only files that agree"))
    if key != "dtype":
        encoding = f"{{{plain_name(left)!r}: {{{key!r}: ...}}}}"
        remedies.append(Remedy("if one of them is wrong, correct it with", f"vds.virtual.set_encoding({encoding})"))
    return CombineError(
        f"variable '{left.name}' has {key} = {value_text(a)} in {_place(left)} and {value_text(b)} in {_place(right)}; "
        f"{why}",
        *remedies,
        variable=left.name,
        property=key,
        left=a,
        right=b,
        left_url=left.a_url(),
        right_url=right.a_url() if isinstance(right, ManifestArray) else None,
    )


def value_text(value: object, /) -> str:
    """Return the value of an attribute as text for messages: numbers of numpy as plain numbers.

    >>> value_text(np.float32(1e20)), value_text("K"), value_text(np.dtype("<i2"))
    ('1e+20', "'K'", "'int16'")
    """
    if isinstance(value, np.dtype):
        return f"'{value}'"
    return str(value) if isinstance(value, np.number) else repr(value)


def shared_access(arrays: Sequence[ManifestArray], /) -> Access | None:
    """Return one access that reaches the sources of all arrays in the same way as the access of each array."""
    different: list[Access | None] = []
    for array in arrays:
        if not any(array.access is x for x in different) and array.access not in different:
            different.append(array.access)
    if len(different) == 1:
        return different[0]
    first, *rest = (access for access in different if access is not None)
    joined: Access = first.joined(rest)
    # An array that has the joined options reaches no source in another way; its manifest may be too large to read.
    others = [
        x
        for x in arrays
        if x.access is None or x.access.given != joined.given or (_names_all(x.access) and not _names_all(joined))
    ]
    urls = [{location.url for location in array.in_memory().locations} for array in others]
    for array, own in zip(others, urls, strict=True):
        joined = joined.with_named(url for url in own if array.access is None or array.access.is_named(url))
    for array, url in ((array, url) for array, own in zip(others, urls, strict=True) for url in own):
        before, now = None if array.access is None else array.access.given_for(url), joined.given_for(url)
        is_default = before is None or (array.access is not None and not array.access.is_named(url))
        if before != now and not (is_default and isinstance(now, Mapping | None)):
            prefix = joined.find(url)[0] or "every URL"
            raise CombineError(
                f"variable '{array.name}': '{url}' was opened without the storage= that another dataset has for "
                f"'{prefix}'. One dataset reaches each place in one way. Open both with one storage=, with a "
                "longer prefix for what is reached in another way",
                variable=array.name,
                property="storage",
                left=url,
                right=joined.find(url)[0],
            )
    return joined


def _names_all(access: Access) -> bool:
    """Return whether all URLs are read with the credentials of this account."""
    return access.named is None or "" in access.named

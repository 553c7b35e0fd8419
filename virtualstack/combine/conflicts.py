"""Variables and attributes that differ between files: the rules, and the errors that name the difference."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
import xarray as xr

from virtualstack.combine.part import Attribute, Part
from virtualstack.dataset import loaded_variable, virtual_array
from virtualstack.errors import CombineError, Remedy, check_word
from virtualstack.manifests import (
    ManifestArray,
    Refusal,
    Unpacked,
    can_cast_floats,
    decoding_keys,
    is_nan,
    other_meaning,
    same_dates_in,
    same_value,
    stored_number,
    unpack,
    value_changing,
)
from virtualstack.options import Join
from virtualstack.storage import Storage

type _Compat = Literal["equals", "identical", "broadcast_equals", "no_conflicts", "override"]
_ATTRS = ("drop", "drop_conflicts", "identical", "no_conflicts", "override")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Rules for differences between files, with the words of :func:`xarray.concat`.

    Parameters
    ----------
    join
        Treatment of labels along dimensions that files are not joined along: ``"exact"`` raises if they differ.
    tolerance
        Largest difference of labels, and of values of variables that must be the same. Up to this difference, the first
        file's labels and values are used.
    data_vars, coords
        Variables and coordinates without the joined dimension that get it: none (``"minimal"``), those that differ
        between files (``"different"``), ``"all"``, or a set of names. With ``data_vars=None``, all data variables get
        a dimension that no file has. Coordinates without any dimension, and dates along one, get it if they differ,
        also if ``coords`` does not name them; ``coords="minimal"``, ``compat="no_conflicts"`` and
        ``compat="override"`` prevent it.
    compat
        Whether variables without the joined dimension are the same, as in xarray: ``"equals"``, ``"identical"`` with
        their attributes, ``"broadcast_equals"``, ``"no_conflicts"`` where both have values, or ``"override"`` to use
        the first file's.
    combine_attrs
        As in xarray. ``None`` drops attributes that differ, but raises for ``units``, ``positive``, ``calendar`` and
        coordinate reference systems.
    fill_value
        Decoded value of new elements: one for all variables, or a map by variable; ``None`` means a missing value.
    remedies
        Remedy for labels that differ, in the message of an error; by default the message names ``join`` and
        ``tolerance``.
    """

    join: Join = "exact"
    tolerance: int | float | pd.Timedelta | None = None
    data_vars: Literal["minimal", "different", "all"] | frozenset[str] | None = None
    coords: Literal["minimal", "different", "all"] | frozenset[str] = frozenset()
    compat: _Compat = "equals"
    combine_attrs: str | Callable[..., Any] | None = None
    fill_value: Any = None
    remedies: tuple[Remedy, ...] = ()

    @classmethod
    def from_options(
        cls, *, join: Join = "exact", tolerance: Any = None, options: Mapping[str, Any] | None = None
    ) -> Rules:
        """Check the options of a user."""
        options = dict(options or {})
        known = ("data_vars", "coords", "compat", "combine_attrs", "fill_value")
        unknown = sorted(options.keys() - set(known))
        if unknown:
            raise ValueError(f"combine_options has {unknown}; the known ones are {list(known)}")
        check_word("join", join, Join)
        for key in ("data_vars", "coords"):
            if key in options and not (key == "data_vars" and options[key] is None):
                options[key] = _names(key, options[key])
        check_word("compat", options.get("compat", "equals"), _Compat)
        attrs = options.get("combine_attrs")
        if attrs is not None and not callable(attrs):
            check_word("combine_attrs", attrs, _ATTRS)
        return cls(join=join, tolerance=_tolerance(tolerance), **options)

    @property
    def named(self) -> frozenset[str]:
        """Names of the variables that ``coords`` and ``data_vars`` list."""
        return frozenset().union(*(x for x in (self.coords, self.data_vars) if isinstance(x, frozenset)))

    @property
    def scalars_follow(self) -> bool:
        """Whether scalars, and dates along another dimension, get the joined dimension if they differ."""
        return self.coords != "minimal" and self.compat not in ("no_conflicts", "override")

    def expands_coordinate(self, name: str) -> bool:
        """Return whether a coordinate without the joined dimension gets it."""
        return self.coords == "all" or name in self.named

    def fill(self, name: str) -> Any:
        """Return the fill value of a variable; ``None`` means a missing value."""
        return self.fill_value.get(name) if isinstance(self.fill_value, Mapping) else self.fill_value


def _tolerance(tolerance: Any) -> int | float | pd.Timedelta | None:
    """Return a tolerance as a number or a duration."""
    number = tolerance.item() if isinstance(tolerance, np.integer | np.floating) else tolerance
    if isinstance(tolerance, timedelta | np.timedelta64):
        number = pd.Timedelta(tolerance)
    is_distance = isinstance(number, int | float | pd.Timedelta) and not isinstance(number, bool)
    if tolerance is not None and not (is_distance and number >= type(number)(0)):
        raise CombineError(
            f"tolerance={tolerance!r} is not a distance between labels. Give a number such as 1e-6, or for "
            "dates a timedelta such as pd.Timedelta('1min')",
            property="tolerance",
            left=tolerance,
        )
    return cast("int | float | pd.Timedelta | None", number)


def _names(option: str, value: object) -> Any:
    if isinstance(value, str):
        check_word(option, value, ("minimal", "different", "all"))
        return value
    if not isinstance(value, Iterable):
        raise ValueError(f"{option}={value!r}; it must be 'minimal', 'different', 'all' or names of variables")
    return frozenset(map(str, value))


_MISSING = frozenset({"_FillValue", "missing_value"})
_NUMBERS = "biufc"


def joined(arrays: Sequence[ManifestArray], axis: int, /) -> ManifestArray:
    """Join arrays along an axis.

    Floats that mark missing values by different attributes are decoded to NaN by their chunks. Their dtype stays the
    same, so the user need not request this with ``unpack="differing"``.
    """
    try:
        found: Any = np.concatenate(cast(Any, arrays), axis=axis)
    except CombineError:
        if not any(array.cf for array in arrays) or not all(_is_masked_alone(array) for array in arrays if array.cf):
            raise
        found = np.concatenate(cast(Any, [unpack(array).array for array in arrays]), axis=axis)
    return cast(ManifestArray, found)


def numbers_like(array: ManifestArray, like: ManifestArray, /) -> ManifestArray:
    """Return numbers in the dtype of another array if xarray joins both in it, and floats with its missing values."""
    if not array.cf and not like.cf and {array.dtype.kind, like.dtype.kind} <= set(_NUMBERS):
        return array.astype(like.dtype) if np.result_type(array.dtype, like.dtype) == like.dtype else array
    if array.dtype.kind != "f" or not np.can_cast(array.dtype, like.dtype) or not _is_masked_alone(like):
        return array
    if _is_masked_alone(array) and all(map(is_nan, like.cf.values())) and other_meaning(array, like) is not None:
        array = unpack(array).array
    return array.astype(like.dtype) if can_cast_floats(array.cf, array.dtype, like.dtype) else array


def is_packed(array: ManifestArray, /) -> bool:
    """Return whether stored numbers become values by attributes, except that NaN means missing in floats."""
    return bool(array.cf.keys() - _MISSING) or not all(map(is_nan, array.cf.values()))


def unpacked_like(variable: xr.Variable, array: ManifestArray, like: ManifestArray, /) -> xr.Variable:
    """Return the variable of a packed array unpacked, if another array is unpacked to values of the same dtype."""
    if is_packed(like) or not is_packed(array):
        return variable
    unpacked = unpack(array, decode_times=like.dtype.kind in "mM")
    if unpacked.obstacle is not None or numbers_like(unpacked.array, like).dtype != like.dtype:
        return variable
    return _with_unpacked(variable, array, unpacked)


def _is_masked_alone(array: ManifestArray) -> bool:
    """Return whether an array has floats whose attributes at most mark missing values."""
    return array.dtype.kind == "f" and not array.cf.keys() - _MISSING


_MAX_LOADED_BYTES = 1 << 20
"""Bytes of a variable of a file that are loaded where its dates have no dtype of a fixed size."""


def unpack_differing(
    parts: Sequence[Part], storage: Storage, /, *, decode_times: bool = True, incomplete: Collection[str] = ()
) -> list[Part]:
    """Return parts in which variables whose decoding attributes differ are decoded by their chunks; others stay packed.

    Variables in ``incomplete`` will have missing elements: they are decoded too if none of their numbers means that.
    Small variables with dates of cftime, which have no fixed size, are loaded. The packing of a variable without
    elements does not count: it becomes that of the others.
    """
    names = dict.fromkeys(name for part in parts for name in part.variables)
    made = list(parts)
    if any(0 in part.sizes.values() for part in parts):
        for name in names:
            _pack_empty(name, made)
        parts = [*made]
    for name in names:
        having = [i for i, part in enumerate(parts) if name in part.variables]
        members = [parts[i].variables[name] for i in having]
        reason = "is packed differently in some files, and is unpacked"
        if not pack_differently(members):
            if name not in incomplete or not any(has_no_missing_number(x, may_unpack=True) for x in members):
                continue
            reason = "is incomplete and packed without a missing value, and is unpacked"
        variables = _unpacked_variables(name, [parts[i] for i in having], storage, decode_times)
        for i, variable in zip(having, variables, strict=True):
            note = Refusal(path=name, reason=reason, kind="noted")
            made[i] = replace(
                made[i], variables={**made[i].variables, name: variable}, refusals=(*made[i].refusals, note)
            )
    return made


def of_one_dtype(parts: Sequence[Part], /) -> list[Part]:
    """Return parts in which each variable has one dtype in all of them."""
    made = list(parts)
    for name in dict.fromkeys(name for part in parts for name in part.variables):
        having = [i for i, part in enumerate(made) if name in part.variables and name not in part.indexes]
        before = [made[i].variables[name] for i in having]
        for i, old, new in zip(having, before, variables_of_one_dtype(before), strict=True):
            if new is not old:
                made[i] = replace(made[i], variables={**made[i].variables, name: new})
    return made


def variables_of_one_dtype(variables: Sequence[xr.Variable], /) -> list[xr.Variable]:
    """Return variables in the dtype that xarray joins their numbers or bytes in."""
    dtypes = {variable.dtype for variable in variables}
    kinds = {dtype.kind for dtype in dtypes}
    if len(dtypes) < 2 or not (kinds <= set(_NUMBERS) or kinds == {"S"}):
        return list(variables)
    dtype = np.result_type(*dtypes)
    return [x if x.dtype == dtype else _cast(x, dtype) for x in variables]


def _cast(variable: xr.Variable, dtype: np.dtype[Any]) -> xr.Variable:
    array = virtual_array(variable)
    data: Any = variable.values.astype(dtype) if array is None else array.astype(dtype)
    encoding = {key: value for key, value in variable.encoding.items() if key != "dtype"}
    return xr.Variable(variable.dims, data, variable.attrs, encoding)


def _pack_empty(name: str, parts: list[Part]) -> None:
    """Replace a variable that has no elements in some parts by none of the elements that it has in another one."""
    like = next((x for part in parts if (x := part.variables.get(name)) is not None and x.size), None)
    for i, part in enumerate(parts):
        own = part.variables.get(name)
        if like is None or own is None or own.size or not pack_differently([like, own]):
            continue
        none = like.isel({dim: slice(0) for dim, n in own.sizes.items() if not n and dim in like.dims})
        if none.sizes == own.sizes:
            parts[i] = part.with_variables({name: none})


def pack_differently(members: Sequence[xr.Variable], /) -> bool:
    """Return whether the virtual ones of some variables are decoded differently."""
    arrays = [x for x in map(virtual_array, members) if x is not None]
    return any(_is_other(arrays[0], other) for other in arrays[1:])


def has_no_missing_number(variable: xr.Variable, /, *, may_unpack: bool) -> bool:
    """Return whether a variable has packed numbers of which none reads as missing, and whether its chunks can decode.

    Those of dates of a model's calendar cannot.
    """
    array = virtual_array(variable)
    if array is None or array.dtype.kind not in "iuf" or not decoding_keys(array.cf):
        return False
    return stored_number(array.dtype, array.cf) is None and (unpack(array).obstacle is None) == may_unpack


def in_some(parts: Sequence[Part], /) -> set[str]:
    """Return the names of the variables that some of the parts lack."""
    names = [part.variables.keys() for part in parts]
    return set().union(*names).difference(set(names[0]).intersection(*names[1:]))


def _is_other(a: ManifestArray, b: ManifestArray) -> bool:
    return bool(a.cf or b.cf) and (a.dtype != b.dtype or other_meaning(a, b) is not None)


def _unpacked_variables(name: str, parts: Sequence[Part], storage: Storage, decode_times: bool) -> list[xr.Variable]:
    """Return a variable of each part unpacked, or loaded in all of them."""
    variables = [part.variables[name] for part in parts]
    arrays = [virtual_array(variable) for variable in variables]
    unpacked = [None if array is None else unpack(array, decode_times=decode_times) for array in arrays]
    obstacles = [(part, x.obstacle) for part, x in zip(parts, unpacked, strict=True) if x and x.obstacle is not None]
    if not obstacles:
        return [
            variable if array is None or x is None else _with_unpacked(variable, array, x)
            for variable, array, x in zip(variables, arrays, unpacked, strict=True)
        ]
    if all(variable.nbytes <= _MAX_LOADED_BYTES for variable in variables):
        return [
            variable
            if array is None
            else loaded_variable(
                name,
                replace(array, dimension_names=tuple(map(str, variable.dims))),  # which a new dimension took away
                storage,
                url=part.source,
                decode_times=decode_times,
            ).load()
            for variable, array, part in zip(variables, arrays, parts, strict=True)
        ]
    odd, obstacle = obstacles[0]
    raise CombineError(
        f"variable '{name}' is packed differently in some files, and it cannot be unpacked in {odd.called}: {obstacle}",
        Remedy("leave it out with", drop_variables=[name]),
        Remedy("if the calendar is the same in all files, load it with", loadable_variables=[name]),
        variable=name,
        property="packing",
        left_url=odd.source,
    )


def _with_unpacked(variable: xr.Variable, array: ManifestArray, unpacked: Unpacked) -> xr.Variable:
    """Return the variable of an array with its unpacked array; the variable itself if nothing was packed."""
    if unpacked.array is array:
        return variable
    gone = {**array.attributes, **array.cf}.keys() - unpacked.array.attributes.keys()
    attributes = {key: value for key, value in variable.attrs.items() if key not in gone}
    return xr.Variable(variable.dims, unpacked.array, attributes, {**variable.encoding, **unpacked.encoding})


_MEANING = ("units", "positive", "calendar")
"""Attributes that change the quantity: if they differ, files cannot be joined, although their numbers could."""
_TIMES = ("units", "calendar")
_MAPPING = ("grid_mapping_name", "crs_wkt", "spatial_ref")
"""Attributes that define a coordinate reference system; the others have no meaning without these."""


def merge_attributes(
    attributes: Sequence[Mapping[str, Any]], rules: Rules, /, *, name: str | None, sources: Sequence[Part]
) -> tuple[dict[str, Any], frozenset[Attribute]]:
    """Return the attributes that hold for all, and the attributes that were left out.

    Attributes that some files lack are kept, as with xarray's ``"drop_conflicts"``.
    """
    how = rules.combine_attrs
    first = attributes[0]
    if how == "drop":
        return {}, frozenset()
    if how == "override":
        return dict(first), frozenset()
    if callable(how):
        return dict(how([dict(x) for x in attributes], None)), frozenset()
    left_out = {x.key for part in sources for x in part.left_out if x.name == name}
    merged = {key: value for key, value in first.items() if key not in left_out}
    for other, source in zip(attributes, sources, strict=True):
        if other is first or _is_equal(other, first):
            continue
        if how == "identical" and other.keys() != first.keys():
            key = sorted(other.keys() ^ first.keys())[0]
            _refuse(key, name, first.get(key), other.get(key), sources[0], source)
        for key, value in other.items():
            if key in left_out:
                continue
            if key not in merged:
                merged[key] = value
            elif not (_same(merged[key], value) or (key in _TIMES and same_dates_in({**first, **merged}, other))):
                is_other = how is None and name is not None and _changes_meaning(key, value, merged)
                if is_other or how in ("identical", "no_conflicts"):
                    _refuse(key, name, merged[key], value, sources[0], source)
                del merged[key]
                left_out.add(key)
    return merged, frozenset(Attribute(name, key) for key in left_out)


def with_attributes(variable: xr.Variable, attributes: Mapping[str, Any], /) -> xr.Variable:
    """Return the variable with other attributes; it keeps its own attributes that decode values, and gets no others.

    An array knows how its numbers are packed. The arrays joined with it have the same meaning.
    """
    array = virtual_array(variable)
    own = value_changing(variable.attrs) if array is None else array.cf
    if array is not None:
        kept = {key: value for key, value in own.items() if key in variable.attrs or key in attributes}
        attributes = {**attributes, **kept}
    added = value_changing(attributes).keys() - own.keys()
    changed: xr.Variable = variable.copy(deep=False)
    changed.attrs = {key: value for key, value in attributes.items() if key not in added}
    return changed


def _changes_meaning(key: str, value: object, attributes: Mapping[str, Any]) -> bool:
    """Return whether an attribute changes the meaning of values; in grid mappings, every number does."""
    is_mapping = any(name in attributes for name in _MAPPING)
    return key in _MEANING or (is_mapping and (key in _MAPPING or not isinstance(value, str)))


def _is_equal(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    try:
        return bool(a == b)
    except ValueError:  # the comparison of arrays has no single truth value
        return False


def _same(a: object, b: object) -> bool:
    try:
        return same_value(a, b)
    except (ValueError, TypeError):
        return False


def _refuse(key: str, name: str | None, left: object, right: object, a: Part, b: Part) -> None:
    whose = "the dataset" if name is None else f"variable '{name}'"
    raise CombineError(
        f"attribute '{key}' of {whose} is {left!r} in {a.called} and {right!r} in {b.called}",
        Remedy("convert one of them with", preprocess=...),
        Remedy("take the first file's with", combine_options={"combine_attrs": "override"}),
        Remedy("leave it out with", combine_options={"combine_attrs": "drop_conflicts"}),
        variable=name,
        property=key,
        left=left,
        right=right,
        left_url=a.source,
        right_url=b.source,
    )

"""Group to xarray and back: virtual variables stay virtual, loaded ones are decoded and encoded as xarray does."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray import conventions
from xarray.indexes import PandasIndex

from virtualstack.errors import ReaderError, UnsupportedFeatureError, WriterError
from virtualstack.manifests import (
    ManifestArray,
    ManifestGroup,
    Refusal,
    inline_array,
    join_characters,
    packed_encoding,
    same_value,
    text_arrays,
    value_changing,
)
from virtualstack.manifests import unpack as unpack_array
from virtualstack.reading import read_array
from virtualstack.storage import Storage

__all__ = [
    "default_loadable",
    "groups_of",
    "refusals_of",
    "text_coordinates",
    "to_dataset",
    "to_group",
    "virtual_array",
    "with_refusals",
]

_REFUSALS = "virtualstack_refusals"
_GROUPS = "virtualstack_groups"
_UNLIMITED = "unlimited_dims"


# -- group to dataset -----------------------------------------------------------------------------------------


_MAX_LOADED = 1 << 28
"""Bytes of values up to which a dimension coordinate is loaded unasked: a tiny file may promise any number."""


def default_loadable(group: ManifestGroup, /) -> set[str]:
    """Name the variables that are loaded unless told otherwise: the dimension coordinates, but for huge ones."""
    return {
        name for name, array in group.arrays.items() if array.dimension_names == (name,) and array.nbytes <= _MAX_LOADED
    }


def to_dataset(
    group: ManifestGroup,
    /,
    *,
    storage: Storage,
    loadable_variables: str | Iterable[str] | None = None,
    decode_times: bool | None = None,
    unpack: bool = False,
    inline_limit: int = 1 << 20,
    skips: bool = False,
) -> xr.Dataset:
    """Make the virtual dataset of one group; reads the bytes of loadable variables alone.

    Characters become text here, by xarray's rule: later the dataset may have other variables and dimensions.

    Parameters
    ----------
    group
        Its children are not looked at.
    storage
        How its sources are reached.
    loadable_variables
        Names to load and decode; by default those of :func:`default_loadable`.
    decode_times
        Whether loaded and unpacked times become dates; by default they do.
    unpack
        Whether virtual variables are decoded as loaded ones are.
    inline_limit
        Bytes of a variable of text that is read and kept, where chunks do not hold whole texts.
    skips
        Whether a longer one is left out, with a warning.

    Raises
    ------
    KeyError
        A loadable variable is not there.
    ReaderError
        A loadable variable cannot be decoded.
    UnsupportedFeatureError
        Chunks do not hold whole texts, and there are more bytes of them than ``inline_limit``.
    StorageError
        Values of a loadable variable, or such texts, cannot be read.
    """
    if isinstance(loadable_variables, str):
        loadable_variables = [loadable_variables]
    wanted = default_loadable(group) if loadable_variables is None else set(loadable_variables)
    unknown = wanted - group.arrays.keys()
    if unknown:
        raise KeyError(f"loadable_variables names {sorted(unknown)}; '{group.url}' has {sorted(group.arrays)}")
    arrays = _with_bounds_units(group.arrays)
    variables: dict[str, xr.Variable] = {}
    coordinates = set(group.coordinates)
    refusals = list(group.refusals)
    decodes = decode_times is not False
    texts = text_arrays(group)
    for name, array in arrays.items():
        if name in wanted:
            stack = name in texts
            variable = loaded_variable(name, array, storage, url=group.url, decode_times=decodes, stack=stack)
            variables[name] = variable
            coordinates |= _take_coordinates(variable)
            continue
        if name in texts:
            try:
                array, inlined = _text_array(array, storage, url=group.url, limit=inline_limit)
            except UnsupportedFeatureError as error:
                if not skips:
                    raise
                warnings.warn(f"left out: {error}", UserWarning, stacklevel=3)
                refusals.append(Refusal(path=array.name or "", reason=error.feature or str(error)))
                continue
            refusals += inlined
        if unpack:
            variable, refused = _unpacked_variable(array, decode_times=decodes)
            refusals += refused
        else:
            variable = _virtual_variable(array)
        coordinates |= _take_coordinates(variable)
        variables[name] = variable
    attributes = dict(group.attributes)
    if isinstance(attributes.get("coordinates"), str) and set(attributes["coordinates"].split()) <= variables.keys():
        coordinates |= set(attributes.pop("coordinates").split())
    return _assemble(variables, coordinates, attributes, _encoding(replace(group, refusals=tuple(refusals))))


def _text_array(
    array: ManifestArray, storage: Storage, *, url: str | None, limit: int
) -> tuple[ManifestArray, list[Refusal]]:
    """Join characters to text; where chunks do not hold whole texts, read them."""
    joined = join_characters(array)
    if joined is not None:
        return joined, []
    reason = "characters of one text lie in several chunks, or in longer ones"
    if array.nbytes > limit:
        name = (array.name or "").rsplit("/", 1)[-1]
        raise UnsupportedFeatureError(
            f"variable '{array.name}' of '{url}' cannot be referenced as text: {reason}. It has {array.nbytes} bytes: "
            f"load it with loadable_variables=[..., '{name}'], raise inline_limit, or leave it out with drop_variables",
            url=url,
            variable=array.name,
            feature=reason,
        )
    values = read_array(array, (), storage)
    dtype = f"S{max(array.shape[-1], 1)}"
    values = values.view(dtype)[..., 0] if array.size else np.zeros(values.shape[:-1], dtype)
    *dims, _ = array.dimension_names or ()
    text = inline_array(values, name=array.name or "", dims=dims, attributes=array.attributes, cf=array.cf)
    return text, [Refusal(path=array.name or "", reason=reason, kind="inlined")]


def _virtual_variable(array: ManifestArray, encoding: Mapping[str, Any] | None = None) -> xr.Variable:
    return xr.Variable(array.dimension_names or (), array, text_coordinates(array.attributes), encoding)


def _unpacked_variable(array: ManifestArray, *, decode_times: bool) -> tuple[xr.Variable, list[Refusal]]:
    unpacked = unpack_array(array, decode_times=decode_times)
    refused = (
        [] if unpacked.obstacle is None else [Refusal(path=array.name or "", reason=unpacked.obstacle, kind="packed")]
    )
    return _virtual_variable(unpacked.array, unpacked.encoding), refused


def _assemble(
    variables: Mapping[str, xr.Variable], coordinates: set[str], attributes: dict[str, Any], encoding: dict[str, Any]
) -> xr.Dataset:
    """Build a dataset with an index for each loaded dimension coordinate and for no virtual one."""
    is_coordinate = {name: name in coordinates or variable.dims == (name,) for name, variable in variables.items()}
    coordinate_variables = {name: variable for name, variable in variables.items() if is_coordinate[name]}
    indexes: dict[str, PandasIndex] = {}
    for name, variable in coordinate_variables.items():
        if variable.dims == (name,) and virtual_array(variable) is None:
            indexes[name] = _index(name, variable, encoding.get("source"))
            coordinate_variables[name] = indexes[name].create_variables({name: variable})[name]
    coords = xr.Coordinates(coordinate_variables, indexes=indexes)
    data = {name: variable for name, variable in variables.items() if not is_coordinate[name]}
    try:
        dataset = xr.Dataset(data, coords=coords, attrs=attributes)
    except ValueError as error:  # two dimensions of one name, or a variable that bears the name of one
        url = encoding.get("source")
        raise ReaderError(
            f"the variables of '{url}' do not form one dataset: {error}; leave one of them out with drop_variables=",
            url=url,
        ) from error
    dataset.encoding = encoding
    return dataset


def _index(name: str, variable: xr.Variable, url: str | None) -> PandasIndex:
    try:
        return PandasIndex.from_variables({name: variable}, options={})
    except (ValueError, TypeError, OverflowError) as error:  # times are decoded here, not before
        raise _undecodable(name, name, url, error) from error


def _encoding(group: ManifestGroup) -> dict[str, Any]:
    encoding: dict[str, Any] = {_UNLIMITED: set(group.unlimited)}
    if group.url is not None:
        encoding["source"] = group.url
    if group.refusals:
        encoding[_REFUSALS] = group.refusals
    if group.groups:
        encoding[_GROUPS] = tuple(group.groups)
    return encoding


def groups_of(dataset: xr.Dataset, /) -> tuple[str, ...]:
    """Name the child groups that the source of a dataset has beside it, where the dataset still knows."""
    return tuple(dataset.encoding.get(_GROUPS, ()))


def refusals_of(dataset: xr.Dataset, /) -> tuple[Refusal, ...]:
    """Give what the reader could not take over, where the dataset still knows."""
    return tuple(dataset.encoding.get(_REFUSALS, ()))


def with_refusals(dataset: xr.Dataset, refusals: Iterable[Refusal], /) -> xr.Dataset:
    """Give the dataset with other ones."""
    changed = dataset.copy()
    changed.encoding = {**dataset.encoding, _REFUSALS: tuple(refusals)}
    if not changed.encoding[_REFUSALS]:
        del changed.encoding[_REFUSALS]
    return changed


def _with_bounds_units(arrays: Mapping[str, ManifestArray]) -> dict[str, ManifestArray]:
    """Let bounds know units and calendar of their times: CF lets bounds go without, and joining must compare them.

    CF conventions 7.1: attributes of a boundary variable that are absent are those of its parent, one by one.
    """
    changed = dict(arrays)
    for array in arrays.values():
        bounds = array.attributes.get("bounds")
        times = {key: array.cf[key] for key in ("units", "calendar") if key in array.cf}
        # Of times alone, as xarray has it: bounds of durations stay numbers.
        if isinstance(bounds, str) and bounds in changed and " since " in str(times.get("units")):
            own = changed[bounds]
            if "units" not in own.attributes or " since " in str(own.attributes["units"]):
                inherited = {key: value for key, value in times.items() if key not in own.attributes}
                changed[bounds] = replace(own, cf={**inherited, **own.cf})
    return changed


def loaded_variable(
    name: str,
    array: ManifestArray,
    storage: Storage,
    /,
    *,
    url: str | None,
    decode_times: bool = True,
    stack: bool = False,
) -> xr.Variable:
    """Read all values of an array and decode them by the CF conventions, as ``xr.open_dataset`` does.

    Parameters
    ----------
    name
        Of the variable in its dataset.
    array, storage
        What is read, and how its sources are reached.
    url
        Where the dataset is from, for messages.
    decode_times
        Whether times become dates.
    stack
        Whether characters along the last axis are joined to text.

    Raises
    ------
    ReaderError
        The values cannot be decoded.
    """
    raw = _raw_variable(array, storage)
    try:
        return conventions.decode_cf_variable(name, raw, decode_times=decode_times, stack_char_dim=stack)
    except (ValueError, TypeError, OverflowError, KeyError) as error:
        raise _undecodable(array.name, name, url, error) from error


def _undecodable(path: str | None, name: str, url: str | None, error: Exception) -> ReaderError:
    return ReaderError(
        f"variable '{path}' of '{url}' cannot be decoded: {error}; open with decode_times=False, or name "
        f"other loadable_variables than '{name}'",
        url=url,
    )


def _raw_variable(array: ManifestArray, storage: Storage) -> xr.Variable:
    values = read_array(array, (), storage)
    encoding = dict(packed_encoding(array))
    if values.dtype.kind == "T":
        values = values.astype(object)
        encoding["dtype"] = str  # as xarray's netCDF backends say it
    times = {key: value for key, value in array.cf.items() if key in ("units", "calendar")}
    attributes = text_coordinates({**array.attributes, **times})
    return xr.Variable(array.dimension_names or (), values, attributes, encoding)


def text_coordinates(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Give attributes with ``coordinates`` as CF has it, one text, where a file has something else, such as a list.

    >>> text_coordinates({"coordinates": ["lat", "lon"]})
    {'coordinates': 'lat lon'}
    """
    names = attributes.get("coordinates", "")
    if isinstance(names, str):
        return dict(attributes)
    return {**attributes, "coordinates": " ".join(map(str, np.atleast_1d(np.asarray(names, object))))}


def _take_coordinates(variable: xr.Variable) -> set[str]:
    """Move the CF attribute ``coordinates`` into the encoding, as xarray does, and give its names."""
    names = variable.attrs.pop("coordinates", None)
    if names is None:
        return set()
    variable.encoding["coordinates"] = names
    return set(names.split())


# -- dataset to group -----------------------------------------------------------------------------------------


def virtual_array(variable: xr.Variable, /) -> ManifestArray | None:
    """Give the virtual array behind a variable, or ``None`` where it holds values."""
    data = variable._data  # `.data` is the same for duck arrays, but loads what is lazy
    return data if isinstance(data, ManifestArray) else None


def to_group(dataset: xr.Dataset, /) -> ManifestGroup:
    """Make the group of a dataset: virtual arrays as they are, loaded variables encoded as inline chunks.

    Raises
    ------
    WriterError
        An attribute set by the user contradicts what joining has checked, or a loaded variable cannot be encoded.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xr.SerializationWarning)
        variables, attributes = conventions.encode_dataset_coordinates(_with_present_coordinates(dataset))
    arrays = {}
    for name, variable in variables.items():
        if not isinstance(name, str) or "/" in name or not name:
            raise WriterError(
                f"variable {name!r} has a name that no format can hold: no text, empty, or with a '/'; rename it",
                variable=str(name),
                feature="name",
            )
        array = virtual_array(variable)
        arrays[name] = _inline_array(name, variable) if array is None else _restored(name, variable, array)
    return ManifestGroup(
        arrays=arrays,
        attributes=attributes,
        dimensions={str(dim): int(n) for dim, n in dataset.sizes.items()},
        unlimited=frozenset(map(str, set(dataset.encoding.get(_UNLIMITED, ())) & set(dataset.dims))),
        refusals=refusals_of(dataset),
        url=dataset.encoding.get("source"),
    )


def _with_present_coordinates(dataset: xr.Dataset) -> xr.Dataset:
    """Take out of the encoded ``coordinates`` what is a coordinate no more, so that it is not made one again."""
    changed = dataset.copy()
    for variable in changed.variables.values():
        names = variable.encoding.get("coordinates")
        if isinstance(names, str):
            kept = [name for name in names.split() if name not in dataset.data_vars]
            variable.encoding = {**variable.encoding, "coordinates": " ".join(kept)}
            if not kept:
                del variable.encoding["coordinates"]
    return changed


def _restored(name: str, variable: xr.Variable, array: ManifestArray) -> ManifestArray:
    """Put dims and attributes of the variable on its array; value-changing ones are those that joining compared."""
    attributes = dict(variable.attrs)
    for key, value in array.cf.items():
        if key in attributes and not same_value(attributes[key], value):
            raise WriterError(
                f"variable '{name}' has {key} = {attributes[key]!r}, but its chunks were written with {value!r}; "
                "restore the attribute, or change the values of vds.virtual.open()",
                variable=name,
                feature=key,
            )
        attributes[key] = value
    changing = value_changing(attributes)
    for key, value in changing.items():
        is_known = key in array.cf or (key in array.attributes and same_value(array.attributes[key], value))
        is_duration = key in ("units", "calendar") and " since " not in attributes["units"]
        if not is_known and not (is_duration and "dtype" not in attributes):
            raise WriterError(
                f"variable '{name}' has got {key} = {value!r}, by which its chunks would be decoded to other values: "
                "remove it (merging attributes of several files may have added it: combine_attrs='override' keeps "
                "those of the first), or give it to vds.virtual.open()",
                variable=name,
                feature=key,
            )
    cf = {**changing, **array.cf}
    return replace(array, name=name, dimension_names=tuple(map(str, variable.dims)), attributes=attributes, cf=cf)


def _inline_array(name: str, variable: xr.Variable) -> ManifestArray:
    encoded = _encoded_variable(name, variable)
    values = np.asarray(encoded.values)
    if values.dtype.kind in "OU":
        values = _text(name, values)
    return inline_array(values, name=name, dims=encoded.dims, attributes=encoded.attrs)


def _text(name: str, values: NDArray[Any]) -> NDArray[Any]:
    flat = values.reshape(-1).tolist()
    odd = next((x for x in flat if not isinstance(x, str)), None)
    if odd is not None:
        raise WriterError(
            f"loaded variable '{name}' holds objects such as {odd!r}; only numbers, dates and strings can be written",
            variable=name,
            feature="object dtype",
        )
    return np.array(flat, np.dtypes.StringDType()).reshape(values.shape)


_CF_ENCODING = ("_FillValue", "missing_value", "scale_factor", "add_offset", "units", "calendar", "dtype", "_Unsigned")
_PACKING = ("scale_factor", "add_offset", "units", "dtype", "_Unsigned", "_FillValue", "missing_value")


def _encoded_variable(name: str, variable: xr.Variable) -> xr.Variable:
    """Encode a loaded variable by its own encoding, or without it where that would not give the values back.

    The encoding of a file need not hold for what was joined to it: whole days do not hold hours.
    """
    encoding = {key: value for key, value in variable.encoding.items() if key in _CF_ENCODING}
    loaded = xr.Variable(variable.dims, np.asarray(variable.values), variable.attrs)
    _check_unpacked(name, loaded)
    for drop in ((), _PACKING):
        kept = {key: value for key, value in encoding.items() if key not in drop}
        # xarray adds a _FillValue of NaN to floats where the encoding says nothing; None says "none".
        loaded.encoding = {"_FillValue": None, **kept} if loaded.dtype.kind in "fcmM" else kept
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                encoded = conventions.encode_cf_variable(loaded, name=name)
                if encoded.attrs.keys() == loaded.attrs.keys() and encoded.dtype == loaded.dtype:
                    return encoded  # as stored: there was nothing to encode
                decoded = conventions.decode_cf_variable(name, encoded, stack_char_dim=False)
            except (ValueError, TypeError, OverflowError, NotImplementedError):
                continue
        if _same_values(decoded, loaded):
            return encoded
    raise WriterError(
        f"loaded variable '{name}' of dtype '{variable.dtype}' cannot be encoded so that it reads back as it is; "
        "drop it, or give it a dtype that CF conventions can express",
        variable=name,
        feature=str(variable.dtype),
    )


def _check_unpacked(name: str, loaded: xr.Variable) -> None:
    """Refuse a loaded variable whose attributes say that its values are packed, so that readers would unpack them.

    xarray leaves such attributes where it makes values of a virtual variable that has no elements.
    """
    packing = {key: value for key, value in loaded.attrs.items() if key in _PACKING and key != "units"}
    if str(packing.get("dtype", "")).startswith("timedelta64"):
        del packing["dtype"]  # a duration that was opened with decode_times=False
    if not packing:
        return
    try:
        decoded = conventions.decode_cf_variable(name, xr.Variable(loaded.dims, loaded.values, packing))
        if _same_values(decoded, loaded):
            return
    except (ValueError, TypeError, OverflowError, NotImplementedError):
        pass
    raise WriterError(
        f"loaded variable '{name}' has the attributes {packing}, by which readers would unpack its values; remove them "
        "where the values are what they should be, or join files with vs.open_virtual_mfdataset(..., join='outer')",
        variable=name,
        feature=", ".join(packing),
    )


def _same_values(a: xr.Variable, b: xr.Variable) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind in "mM" or b.dtype.kind in "mM":
        return a.dtype.kind == b.dtype.kind and bool(a.equals(b))  # type: ignore[no-untyped-call]
    if a.dtype.kind in "SU" or b.dtype.kind in "SU":
        return bool((a.values.astype(object) == b.values.astype(object)).all())
    if a.dtype != b.dtype and not {a.dtype.kind, b.dtype.kind} & set("OT"):
        return False
    return bool(a.equals(b))  # type: ignore[no-untyped-call]

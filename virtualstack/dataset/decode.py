"""Conversion of a group to a dataset: virtual variables stay virtual, loaded ones are decoded as in xarray.

The encoding of the dataset holds other facts about its source, such as unlimited dimensions and refused variables.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from xarray.indexes import PandasIndex

from virtualstack.dataset.hdfeos import groups_with_variables
from virtualstack.dataset.variables import (
    DecodeTimes,
    loaded_variable,
    make_index,
    take_coordinates,
    text_coordinates,
    undecodable,
    unpacked_variable,
    virtual_array,
    virtual_variable,
)
from virtualstack.errors import ChunkDecodeError, ReaderError, Remedy, UnsupportedFeatureError
from virtualstack.manifests import (
    ABSENT,
    FIRST,
    ManifestArray,
    ManifestGroup,
    Refusal,
    inline_array,
    join_characters,
    text_arrays,
)
from virtualstack.printable import counted, first_names
from virtualstack.reading import fetched, read_array
from virtualstack.storage import Storage
from virtualstack.warning import warn

_REFUSALS = "virtualstack_refusals"
_GROUPS = "virtualstack_groups"
INHERITED = "virtualstack_inherited"
"""Key in the encoding of a dataset, with the attributes of the groups above its group."""
_UNLIMITED = "unlimited_dims"
_VERSION = "virtualstack_version"


def notes_on(group: ManifestGroup, refusals: Sequence[Refusal], /) -> dict[str, Any]:
    """Return the encoding of the dataset of a group, with the refusals of its reader and of opening."""
    encoding: dict[str, Any] = {_UNLIMITED: set(group.unlimited)}
    if group.url is not None:
        encoding["source"] = group.url
    if refusals:
        encoding[_REFUSALS] = tuple(refusals)
    if group.version is not None:
        encoding[_VERSION] = group.version
    if group.groups:
        encoding[_GROUPS] = tuple(groups_with_variables(group))
    if group.inherited:
        encoding[INHERITED] = dict(group.inherited)
    return encoding


def get_groups_below(encoding: Mapping[Any, Any], /) -> tuple[str, ...]:
    """Return the paths of the groups below a dataset's group that have variables, if its encoding still has them."""
    return tuple(encoding.get(_GROUPS, ()))


def get_refusals(dataset: xr.Dataset, /) -> tuple[Refusal, ...]:
    """Return the refusals of the reader, if the encoding of the dataset still has them."""
    return tuple(dataset.encoding.get(_REFUSALS, ()))


def with_refusals(dataset: xr.Dataset, refusals: Iterable[Refusal], /) -> xr.Dataset:
    """Return a copy of the dataset with other refusals."""
    changed = dataset.copy()
    changed.encoding = {**dataset.encoding, _REFUSALS: tuple(refusals)}
    if not changed.encoding[_REFUSALS]:
        del changed.encoding[_REFUSALS]
    return changed


def get_unlimited_dims(dataset: xr.Dataset, /) -> frozenset[str]:
    """Return the dimensions of the dataset that are unlimited in the source."""
    return frozenset(map(str, set(dataset.encoding.get(_UNLIMITED, ())) & set(dataset.dims)))


def get_version(dataset: xr.Dataset, /) -> tuple[int, float] | None:
    """Return the vstack snapshot of the dataset, if it was the newest when opened and the encoding still has it."""
    version: tuple[int, float] | None = dataset.encoding.get(_VERSION)
    return version


def text_array(
    array: ManifestArray, storage: Storage, /, *, url: str | None, limit: int
) -> tuple[ManifestArray, list[Refusal]]:
    """Join the characters of an array to text; if chunks do not hold whole texts, read all values."""
    joined = join_characters(array)
    if joined is not None:
        return joined, []
    reason = "the characters of one text are in several chunks, or in chunks that also contain others"
    if array.nbytes > limit:
        name = (array.name or "").rsplit("/", 1)[-1]
        inline = {} if limit else {"unsupported": "inline"}  # unsupported="raise" sets the limit to 0
        raise UnsupportedFeatureError(
            f"variable '{array.name}' of '{url}' cannot be referenced as text: {reason}. "
            f"It has {counted(array.nbytes, 'byte')}",
            Remedy("load it with", loadable_variables=[name]),
            Remedy("put it into the references with", **inline, inline_limit=array.nbytes),
            Remedy("leave it out with", drop_variables=[name]),
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


_MAX_LOADED_BYTES = 1 << 28
"""Bytes of values up to which a dimension coordinate is loaded by default: a tiny file may declare a huge one."""

_MAX_SMALL_BYTES = 1 << 14
"""Bytes of values up to which another coordinate is loaded by default."""


def default_loaded(group: ManifestGroup, texts: Container[str] | None = None, /) -> dict[str, bool]:
    """Return the names of the variables that are loaded by default, and whether opening fails if that is impossible.

    These are dimension coordinates, except huge ones, and variables that were loaded when the group was made from a
    dataset. Scalar and small coordinates are loaded if the source itself holds their values, and nothing is joined
    along their dimensions: the values of an unlimited one would fill the references of many files.
    """
    texts = text_arrays(group) if texts is None else texts
    named = group.coordinates | _names(group.attributes)
    named = named.union(*(_names(array.attributes) for array in group.arrays.values()))
    found = {}
    for name, array in group.arrays.items():
        dims = (array.dimension_names or ())[: array.ndim - (name in texts)]
        if (dims == (name,) or name in group.loaded) and array.nbytes <= _MAX_LOADED_BYTES:
            found[name] = True
        elif (
            array.nbytes <= _MAX_SMALL_BYTES
            and array.dtype.kind in "biufmM"
            and name in named
            and group.unlimited.isdisjoint(dims)
            and _is_within(array, group.url)
        ):
            found[name] = False
    return found


def _names(attributes: Mapping[str, Any]) -> set[str]:
    return set(str(text_coordinates(attributes).get("coordinates", "")).split())


def _is_within(array: ManifestArray, url: str | None) -> bool:
    """Return whether all chunks of an array are INLINE, or in the source of the group or a folder below it."""
    manifest = array.in_memory()
    codes = manifest.entries["location"]
    urls = [manifest.locations[code - FIRST].url for code in np.unique(codes[codes >= FIRST]).tolist()]
    return not (codes == ABSENT).any() and all(
        url is not None and (x == url or x.startswith(url.rstrip("/") + "/")) for x in urls
    )


def to_dataset(
    group: ManifestGroup,
    /,
    *,
    storage: Storage,
    loaded: Mapping[str, bool] | None = None,
    decode_times: DecodeTimes = None,
    unpack: bool = False,
    inline_limit: int = 1 << 20,
    skips: bool = False,
) -> xr.Dataset:
    """Make the virtual dataset of one group; only loaded variables, and texts that must be read, are read.

    ``loaded`` has the names of variables to load, and whether opening fails if that is impossible; by default
    `default_loaded` names them. Characters become text here, as xarray decides it from all variables of the source.
    Later the dataset may have other variables and dimensions.
    """
    texts = text_arrays(group)
    wanted = default_loaded(group, texts) if loaded is None else loaded
    unknown = wanted.keys() - group.arrays.keys()
    if unknown:
        raise KeyError(
            f"loadable_variables names {sorted(unknown)}, but '{group.url}' has {first_names(sorted(group.arrays))}"
        )
    arrays = _with_bounds_units(group.arrays)
    in_memory = dict(zip(wanted, fetched([arrays[name] for name in wanted], storage), strict=True))
    variables: dict[str, xr.Variable] = {}
    coordinates = set(group.coordinates)
    refusals = list(group.refusals)
    for name, array in arrays.items():
        variable = None
        how = decode_times.get(name) if isinstance(decode_times, Mapping) else decode_times
        how = True if how is None else how
        if name in wanted:
            is_text = name in texts
            try:
                variable = loaded_variable(
                    name, in_memory[name], storage, url=group.url, decode_times=how, stack=is_text
                )
            except (ReaderError, ChunkDecodeError):
                if wanted[name]:
                    raise  # a smaller one stays virtual: it can be opened without its values
        if variable is None:
            if name in texts:
                try:
                    array, inlined = text_array(array, storage, url=group.url, limit=inline_limit)
                except UnsupportedFeatureError as error:
                    if not skips:
                        raise
                    warn(f"left out: {error}")
                    refusals.append(Refusal(path=array.name or "", reason=error.feature or str(error)))
                    continue
                refusals += inlined
            variable, packed = (
                unpacked_variable(array, decode_times=how is not False) if unpack else (virtual_variable(array), [])
            )
            refusals += packed
        coordinates |= take_coordinates(variable)
        variables[name] = variable
    attributes = dict(group.attributes)
    if isinstance(attributes.get("coordinates"), str) and set(attributes["coordinates"].split()) <= variables.keys():
        coordinates |= set(attributes.pop("coordinates").split())
    return _assemble(variables, coordinates, attributes, notes_on(group, refusals))


def loaded_dataset(group: ManifestGroup, storage: Storage, names: Collection[str] | None, /) -> xr.Dataset:
    """Return the dataset of a store or of an addition to it, with some variables loaded: by default usual ones.

    Times that cannot be decoded, such as months since a date, are numbers.
    """
    loaded = None if names is None else dict.fromkeys(sorted(group.arrays.keys() & names), True)
    try:
        return to_dataset(group, storage=storage, loaded=loaded)
    except ReaderError:
        return to_dataset(group, storage=storage, loaded=loaded, decode_times=False)


def _assemble(
    variables: Mapping[str, xr.Variable], coordinates: set[str], attributes: dict[str, Any], encoding: dict[str, Any]
) -> xr.Dataset:
    """Build a dataset with an index for each loaded dimension coordinate and for no virtual one."""
    is_coordinate = {name: name in coordinates or variable.dims == (name,) for name, variable in variables.items()}
    coordinate_variables = {name: variable for name, variable in variables.items() if is_coordinate[name]}
    indexes: dict[str, PandasIndex] = {}
    for name, variable in coordinate_variables.items():
        if variable.dims == (name,) and virtual_array(variable) is None:
            try:
                indexes[name], coordinate_variables[name] = make_index(name, variable)
            except (ValueError, TypeError, OverflowError) as error:  # times are decoded here, not before
                raise undecodable(name, name, encoding.get("source"), error) from error
    coords = xr.Coordinates(coordinate_variables, indexes=indexes)
    data = {name: variable for name, variable in variables.items() if not is_coordinate[name]}
    try:
        dataset = xr.Dataset(data, coords=coords, attrs=attributes)
    except ValueError as error:  # a dimension occurs twice, or a variable has the name of a dimension that it lacks
        url = encoding.get("source")
        raise ReaderError(
            f"the variables of '{url}' do not form one dataset: {error}",
            Remedy("leave one of them out with", drop_variables=...),
            url=url,
        ) from error
    dataset.encoding = encoding
    return dataset


def _with_bounds_units(arrays: Mapping[str, ManifestArray]) -> dict[str, ManifestArray]:
    """Return arrays whose time bounds have the units and calendar of their times, so that joining compares them.

    CF conventions 7.1: each attribute that a boundary variable lacks is inherited from its parent variable.
    """
    changed = dict(arrays)
    for array in arrays.values():
        bounds = array.attributes.get("bounds")
        times = {key: array.cf[key] for key in ("units", "calendar") if key in array.cf}
        # As in xarray, only bounds of times inherit units and calendar: bounds of durations stay numbers.
        if isinstance(bounds, str) and bounds in changed and " since " in str(times.get("units")):
            own = changed[bounds]
            if own.dtype.kind != "M" and ("units" not in own.attributes or " since " in str(own.attributes["units"])):
                inherited = {key: value for key, value in times.items() if key not in own.attributes}
                changed[bounds] = replace(own, cf={**inherited, **own.cf})
    return changed

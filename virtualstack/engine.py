"""Open references, stores and virtual datasets in xarray as ordinary lazy datasets with values."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import xarray as xr
from xarray import conventions
from xarray.backends import AbstractDataStore, BackendEntrypoint
from xarray.backends.store import StoreBackendEntrypoint

from virtualstack.dataset import text_coordinates
from virtualstack.dataset.opening import Opening, Unsupported, account_for
from virtualstack.errors import ReaderError
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.lazy import lazy_variable
from virtualstack.loading import pyproj_before_eccodes
from virtualstack.manifests import ManifestGroup, text_arrays, unnamed_coordinates
from virtualstack.scanning import scan
from virtualstack.storage import Allow, Stale, Storage, StorageLike
from virtualstack.vstack.reader import At, VStack

__all__ = ["OpenedGroupEntrypoint", "VirtualStackBackendEntrypoint"]

# xarray loads all installed engines in the order of their names, before the first that it uses. This one has a second
# name that sorts before "cfgrib", whose engine loads eccodes.
pyproj_before_eccodes()

_NO_NAME = "__values__"
"""Name in a file of the variable that xarray shows without a name, under the key ``None``."""


class _GroupDataStore(AbstractDataStore):
    """A data store of one group for xarray's decoding, with raw lazy variables; arrays in ``letters`` are strings."""

    def __init__(
        self, group: ManifestGroup, storage: Storage, absent: Literal["fill", "raise"], letters: frozenset[str]
    ) -> None:
        self._group = group
        self._letters = letters
        self._storage = storage
        self._absent = absent

    def get_variables(self) -> dict[str, xr.Variable]:
        variables = {}
        for name, array in self._group.arrays.items():
            variables[name] = lazy_variable(array, self._storage, absent=self._absent)
            variables[name].attrs = text_coordinates(variables[name].attrs)
            if name in self._letters:
                variables[name] = _as_strings(name, variables[name])
        return variables

    def get_attrs(self) -> dict[str, Any]:
        attributes = dict(self._group.attributes)
        if extra := unnamed_coordinates(self._group):  # which readers may have taken out of the attributes
            present = str(attributes.get("coordinates", "")).split()
            attributes["coordinates"] = " ".join([*present, *(name for name in extra if name not in present)])
        return attributes

    def get_encoding(self) -> dict[str, Any]:
        encoding: dict[str, Any] = {"unlimited_dims": set(self._group.unlimited)}
        if self._group.url is not None:
            encoding["source"] = self._group.url
        return encoding

    def close(self) -> None:
        """Nothing is held open."""


def _as_strings(name: str, variable: xr.Variable) -> xr.Variable:
    """Decode bytes by their ``_Encoding`` alone: xarray has one option for this decoding and for joining characters."""
    decoded: xr.Variable = conventions.decode_cf_variable(
        name,
        variable,
        mask_and_scale=False,
        decode_times=False,
        decode_timedelta=False,
        decode_endianness=False,
        stack_char_dim=False,
    )
    return decoded


class VirtualStackBackendEntrypoint(BackendEntrypoint):
    """The backend ``engine="virtualstack"``, which opens kerchunk references, files that a reader knows, and groups.

    Values are read on demand and equal what the format's own library reads from the source.
    """

    description = "Open virtual references and archive files with virtualstack"
    joins_characters: ClassVar[bool] = True
    """If true, characters are joined to text where ``concat_characters`` asks for it."""

    open_dataset_parameters = (
        "filename_or_obj",
        "drop_variables",
        "group",
        "reader",
        "storage",
        "absent",
        "unsupported",
        "inline_limit",
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "at",
        "allow",
        "stale",
        "use_cftime",
        "decode_timedelta",
    )

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: str | Iterable[str] | None = None,
        group: str | None = None,
        reader: str | Reader | None = None,
        storage: StorageLike = None,
        absent: Literal["fill", "raise"] = "fill",
        unsupported: Unsupported = "inline",
        inline_limit: int | str = "1 MiB",
        at: At | None = None,
        allow: Allow = (),
        stale: Stale | None = None,
        mask_and_scale: bool = True,
        decode_times: Any = True,
        concat_characters: bool | Mapping[str, bool] = True,
        decode_coords: Any = True,
        use_cftime: bool | None = None,
        decode_timedelta: Any = None,
    ) -> xr.Dataset:
        """Open references as a lazy dataset; no chunk is read unless a variable has to be inlined (``unsupported``).

        Parameters
        ----------
        filename_or_obj
            URL or path of references or of a file, a dict of kerchunk references, or a :class:`ManifestGroup`.
        group
            Path of a group; the root by default.
        reader
            Name of a reader, or a reader; detected by default.
        storage
            Access to the references and to their sources; see :func:`virtualstack.open_virtual_dataset`.
        absent
            If ``"raise"``, reading an ABSENT chunk is an error; otherwise it reads as the fill value.
        unsupported
            What to do with a variable that has no byte-range form. ``"inline"`` reads its values at once up to
            ``inline_limit``, and raises an error for more. ``"raise"`` raises an error. ``"skip"`` leaves the variable
            out and names it in a warning.
        inline_limit
            Maximum bytes of inlined values of each variable, as a number or text such as ``"1 MiB"``.
        at
            Snapshot of a vstack: its number, ``-1`` for the newest, or a time at which it was the newest (ISO
            8601, UTC if it has no time zone). The newest by default.
        allow
            URLs of further folders and files that a store or references may refer to; see
            :func:`virtualstack.open_virtual_dataset`.
        stale
            Reaction if size or etag of a source changed since indexing: an error, a warning (``"warn"``)
            or nothing (``"ignore"``).
        drop_variables
            Names of variables to leave out of all groups, or paths of variables, such as ``"/science/winds"``.
        mask_and_scale, decode_times, concat_characters, decode_coords, use_cftime, decode_timedelta
            Decoding options, as in :func:`xarray.open_dataset`.

        Raises
        ------
        ReaderError
            No reader knows the input, or a variable was refused.
        StorageError
            The references cannot be read.
        """
        opening = Opening.from_options(
            group=group,
            storage=_with_stale(storage, stale),
            drop_variables=drop_variables,
            unsupported=unsupported,
            inline_limit=inline_limit,
            allow=allow,
        )
        node = opening.node(_read_group(filename_or_obj, _choose_reader(reader, at), opening))
        account_for(node, unsupported, with_children=False, options=opening.options)
        dropped = _dropped(node, group or "", opening.options)
        _check_sizes(node, dropped)
        letters = _letters(node, self.joins_characters, concat_characters)
        store = _GroupDataStore(node, opening.storage, absent, letters)
        if letters:
            others = concat_characters if isinstance(concat_characters, Mapping) else {}
            concat_characters = {**others, **dict.fromkeys(map(_key, letters), False)}
        dataset = StoreBackendEntrypoint().open_dataset(
            store,
            mask_and_scale=mask_and_scale,
            decode_times=decode_times,
            concat_characters=concat_characters,
            decode_coords=decode_coords,
            drop_variables=set(map(_key, dropped)),
            use_cftime=use_cftime,
            decode_timedelta=decode_timedelta,
        )
        _take_units(dataset, node)
        return dataset

    supports_groups: ClassVar[bool] = True

    def open_groups_as_dict(
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        reader: str | Reader | None = None,
        storage: StorageLike = None,
        unsupported: Unsupported = "inline",
        at: At | None = None,
        allow: Allow = (),
        stale: Stale | None = None,
        drop_variables: str | Iterable[str] | None = None,
        inline_limit: int | str = "1 MiB",
        **decoding: Any,
    ) -> dict[str, xr.Dataset]:
        """Open every group as a lazy dataset; keys are paths from the root or from ``group``.

        The parameters are the same as in :meth:`open_dataset`.
        """
        opening = Opening.from_options(
            group=group,
            storage=_with_stale(storage, stale),
            drop_variables=drop_variables,
            unsupported=unsupported,
            inline_limit=inline_limit,
            allow=allow,
            is_tree=True,
        )
        node = opening.node(_read_group(filename_or_obj, _choose_reader(reader, at), opening))
        account_for(node, unsupported, with_children=True, options=opening.options)
        return {
            path or "/": self.open_dataset(
                replace(child, groups={}, refusals=()),
                storage=opening.storage,
                drop_variables=_dropped(child, f"{group or ''}{path}", opening.options),
                **decoding,
            )
            for path, child in node.walk()
        }

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xr.DataTree:
        """Open references or a file with groups as a tree of lazy datasets; see :meth:`open_groups_as_dict`."""
        return xr.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return true only for groups in memory: other engines also open files, and the user can name this one."""
        return isinstance(filename_or_obj, ManifestGroup)


class OpenedGroupEntrypoint(VirtualStackBackendEntrypoint):
    """A backend for the group of a virtual dataset, whose characters were joined to text when it was opened.

    Variables that still have characters keep them as single letters.
    """

    joins_characters: ClassVar[bool] = False


def _check_sizes(group: ManifestGroup, dropped: frozenset[str]) -> None:
    """Check that dimensions have one size each; xarray checks it too, but its error does not name the file."""
    first: dict[str, tuple[int, str]] = {}
    for name in sorted(group.arrays.keys() - dropped):
        array = group.arrays[name]
        for dim, n in zip(array.dimension_names or (), array.shape, strict=False):
            size, other = first.setdefault(dim, (n, name))
            if n != size:
                raise ReaderError(
                    f"dimension '{dim}' of '{group.url}' has {size} elements in variable '{other}' and {n} in "
                    f"'{name}', which form no dataset: leave one of them out with drop_variables=",
                    url=group.url,
                )


def _key(name: str) -> Any:
    """Return the name in xarray of a variable of a file."""
    return None if name == _NO_NAME else name


def _take_units(dataset: xr.Dataset, group: ManifestGroup) -> None:
    """Move units that xarray has added to bounds into their encoding, if the bounds are dates already.

    xarray adds units and calendar to decode bounds, and removes them only from bounds that it has decoded.
    """
    for name, variable in dataset.variables.items():
        array = group.arrays[_NO_NAME if name is None else str(name)]
        if array.dtype.kind == "M":
            for key in ("units", "calendar"):
                if key in variable.attrs and key not in array.attributes:
                    variable.encoding.setdefault(key, variable.attrs.pop(key))


def _letters(
    group: ManifestGroup, join_characters: bool, concat_characters: bool | Mapping[str, bool]
) -> frozenset[str]:
    """Return the names of character arrays that xarray might join to text although they are not text."""
    texts = text_arrays(group) if join_characters else frozenset()
    if not isinstance(concat_characters, Mapping):
        concat_characters = dict.fromkeys(group.arrays, concat_characters)
    return frozenset(
        name
        for name, array in group.arrays.items()
        if array.dtype == "S1" and array.ndim and name not in texts and concat_characters.get(name, True)
    )


def _choose_reader(reader: str | Reader | None, at: At | None) -> str | Reader | None:
    """Return the reader of vstacks if ``at`` names a snapshot, else the reader that the user chose."""
    if at is None:
        return reader
    if reader not in (None, "vstack"):
        raise ValueError(f"at= is an option of vstacks, not of reader={reader!r}")
    return VStack(at=at)


def _with_stale(storage: StorageLike, stale: Stale | None) -> Storage:
    reached = Storage.from_option(storage)
    return reached if stale is None else reached.with_stale(stale)


def _dropped(node: ManifestGroup, path: str, options: ReadOptions) -> frozenset[str]:
    """Return the names of arrays to drop from a group at a path; no reader has dropped arrays of groups in memory."""
    return frozenset(name for name in node.arrays if options.drops(f"{path.strip('/')}/{name}"))


def _read_group(obj: Any, reader: str | Reader | None, opening: Opening) -> ManifestGroup:
    if isinstance(obj, ManifestGroup):
        return obj
    if isinstance(obj, Mapping):
        kerchunk = importlib.import_module("virtualstack.kerchunk.reader")
        read: ManifestGroup = kerchunk.read_references(obj)
        return read
    if not isinstance(obj, str | os.PathLike):
        raise ReaderError(f"engine='virtualstack' opens paths, URLs, references and groups, not {type(obj).__name__}")
    (root,) = scan([obj], reader=reader, storage=opening.storage, options=opening.options)
    return root

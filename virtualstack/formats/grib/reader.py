"""The reader of GRIB files.

The steps from a file to a group:

1. `walk` goes from message to message, or reads the offsets of messages from an index beside the file. `messages` finds
   the sections of a message, and its fields.
   With a template (`template`), the lines of the index say what the fields are, and steps 1 and 2 are left out.
2. `headers` describes fields without their times. `keys` asks eccodes once for all fields with equal headers.
3. `records` holds the fields of a file in columns, and makes one table of the fields of many files.
4. `cube` forms variables from fields by cfgrib's rules, and places each field in a cell. `grids` reads the horizontal
   grid.
5. `groups` makes virtual arrays and groups: one dataset, or a tree. `duplicates` separates fields of one cell.

`virtualstack.codecs.grib` decodes the values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.library import import_cfgrib
from virtualstack.errors import MalformedFileError, ReaderError, Remedy, UnsupportedFeatureError
from virtualstack.formats.base import ReadOptions
from virtualstack.formats.grib.cube import GroupLayout, listed
from virtualstack.formats.grib.groups import dataset_group, tree_group
from virtualstack.formats.grib.keys import OF_VALUES, QUALIFIER, TRIPLET
from virtualstack.formats.grib.records import COMPUTED, FieldTable, Records, describe_fields
from virtualstack.formats.grib.sidecars import Sidecar, SidecarError, find_sidecar, open_sidecar
from virtualstack.formats.grib.template import GRIBTemplate, describe_by, find_lines
from virtualstack.formats.grib.walk import SMALL_FILE_BYTES, Walk
from virtualstack.formats.unpack import find_packing, unpack
from virtualstack.location import absolute_url, is_remote
from virtualstack.manifests import ManifestGroup, Refusal
from virtualstack.storage import Source, Storage
from virtualstack.storage.memory import MemorySource

_TIMES = ("time", "step")


@dataclass(frozen=True, slots=True, kw_only=True)
class GRIB:
    """Reader of GRIB files, editions 1 and 2. It reads headers, and no data.

    A file that is compressed with gzip or bzip2 (``.gz``, ``.bz2``) is read and unpacked. It may have one field, since
    the whole file is unpacked again for each chunk.

    Names, dimensions, coordinates and attributes are the same as in cfgrib.

    When to use: the reader is chosen by the first bytes of a file. Name it to choose fields, as with cfgrib.
    Alternatives: without options, :func:`virtualstack.open_virtual_datatree` opens fields of all kinds as a tree.

    Parameters
    ----------
    filter_by_keys
        Values of keys, or tuples of several values. Fields with other values are left out.
    time_dims
        Keys of times that become dimensions: two of ``time``, ``step``, ``valid_time`` and other time keys of eccodes.
    extra_dims
        Further keys that become dimensions, such as ``expver`` or ``constituentType``. Fields that differ only in these
        keys then form one variable.
    squeeze
        If true, coordinates of one value are scalars, not dimensions.
    read_keys
        Further keys that become attributes of variables. Keys that eccodes computes from values are not allowed.
    by_kind
        If true, each group of a tree has a group for each type of data, grid and number of dimensions, even for a
        single one. The path of a field then does not depend on the other fields.
    index
        The index of a file, which lists where its messages begin, as NOAA (``.idx``) and ECMWF (``.index``) publish it.
        With an index, many headers are read at once. The fields that are found do not depend on it. ``"auto"``: the
        index beside a remote file of more than 1 MiB, if it exists; ``None``: no index; else the URL of the index.
    template
        A :class:`GRIBTemplate`, or the path of its file. Fields are then described by the index of each file, and few
        headers are read. Each file needs an index. A file that is not as the template says raises a
        :class:`~virtualstack.errors.TemplateError`.
    check_every
        With a template: one of so many messages of a file, and its last one, are compared with their headers. 0: none.

    Raises
    ------
    ValueError
        A key depends on values.
    ReaderError, StorageError
        The template cannot be read.

    Examples
    --------
    >>> import virtualstack as vs
    >>> keys = {"typeOfLevel": "surface", "stepType": "instant"}
    >>> reader = vs.readers.GRIB(filter_by_keys=keys, extra_dims=("expver",))
    >>> vds = vs.open_virtual_dataset("era5.grib", reader=reader)  # doctest: +SKIP
    >>> reader.extra_dims
    ('expver',)
    """

    name: ClassVar[str] = "grib"

    filter_by_keys: Mapping[str, Any] = field(default_factory=dict)
    time_dims: tuple[str, ...] = _TIMES
    extra_dims: tuple[str, ...] = ()
    squeeze: bool = True
    read_keys: tuple[str, ...] = ()
    by_kind: bool = False
    index: str | os.PathLike[str] | None = "auto"
    template: GRIBTemplate | str | os.PathLike[str] | None = None
    check_every: int = 100

    @property
    def places(self) -> tuple[str, ...]:
        """The URL of ``index``, if it names an index. It may be read, because the user has named it."""
        return () if self.index is None or self.index == "auto" else (absolute_url(self.index),)

    def __post_init__(self) -> None:
        if isinstance(self.template, str | os.PathLike):
            object.__setattr__(self, "template", GRIBTemplate.read(self.template))
        for name in (*self.filter_by_keys, *self.time_dims, *self.extra_dims, *self.read_keys):
            if name.partition(":")[0] in OF_VALUES:
                raise ValueError(f"the key '{name}' needs the values of fields, and only their headers are read")

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return the fields of a file as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The file has no message, or a damaged message, or cannot be unpacked.
        ReaderError
            No field matches the filter.
        UnsupportedFeatureError
            The fields do not form one dataset, or the file is compressed and has several fields or is too large.
        StorageError
            The file could not be read.
        """
        part = self._scan(url, storage).to_group()
        return part if options.is_part else self.assemble([part], options)

    def _scan(self, url: str, storage: Storage) -> Records:
        source = storage.source(url)
        if isinstance(self.template, GRIBTemplate):
            return self._by_index(self.template, source, storage)
        is_packed = source.location.url.partition("?")[0].lower().endswith((".gz", ".bz2"))
        packing = find_packing(source) if is_packed else None  # a request that plain files do not need
        if packing is None:
            return self._describe(source, *self._sidecar(source.location.url, source.size, storage))
        data = unpack(source, packing)
        records = self._describe(MemorySource(data, source.location.url), None, [])
        if len(records.fields) > 1 or records.n_junk or int(records.fields["length"][0]) != len(data):
            raise UnsupportedFeatureError(
                f"'{source.location.url}' is compressed, so it may hold one message of one field and nothing else. "
                f"It holds {len(records.fields)} field(s) in {len(data)} bytes, of which {records.n_junk} belong to "
                "no message: unpack it first",
                url=source.location.url,
                feature="compressed file",
            )
        fields = records.fields.copy()
        fields["length"] = fields["described"] = source.size
        return replace(records, location=source.location, fields=fields, packing=packing.name)

    def _by_index(self, template: GRIBTemplate, source: Source, storage: Storage) -> Records:
        url = source.location.url
        if named := sorted(self._asked_for() - _timeless() - COMPUTED):
            raise UnsupportedFeatureError(
                f"a template does not tell {listed(named)}; the times of its fields are {', '.join(sorted(COMPUTED))}",
                url=url,
                feature="template",
            )
        index, lines = find_lines(url, storage, template.suffix(), next(iter(self.places), None))
        return describe_by(template, source, index, lines, self._names(), every=self.check_every)

    def _describe(self, source: Source, sidecar: Sidecar | None, notes: list[str]) -> Records:
        location = source.location
        walk = Walk(source, sidecar)
        names = self._names()
        records = describe_fields(walk, location, names, with_times=self._with_times())
        if not len(records.fields):
            raise MalformedFileError(
                f"'{location.url}' has no GRIB message in its {source.size} bytes: it is damaged, or another kind of "
                "file",
                Remedy("fetch it again"),
                url=location.url,
                offset=0,
            )
        contradiction = walk.contradiction()
        return replace(records, n_junk=walk.n_junk, notes=(*notes, *([contradiction] if contradiction else [])))

    def _sidecar(self, url: str, size: int, storage: Storage) -> tuple[Sidecar | None, list[str]]:
        if self.index is None:
            return None, []
        if self.index == "auto":
            return find_sidecar(url, size, storage) if is_remote(url) and size > SMALL_FILE_BYTES else (None, [])
        try:
            return open_sidecar(absolute_url(self.index), size, storage), []
        except SidecarError as error:
            return None, [f"{error}; it is not used"]

    def assemble(self, parts: Sequence[ManifestGroup], options: ReadOptions) -> ManifestGroup:
        """Form one group from the fields of several files, as if one file had all fields.

        Raises
        ------
        ReaderError
            No field matches the filter.
        UnsupportedFeatureError
            The fields do not form one dataset.
        """
        records = [Records.from_group(part) for part in parts]
        table = FieldTable.from_records(records, self._names())
        rows = table.selected(self.filter_by_keys)
        if not len(rows):
            raise ReaderError(_nothing(table, self.filter_by_keys), url=table.url)
        layout = GroupLayout(
            time_dims=tuple(self.time_dims),
            extra_dims=tuple(self.extra_dims),
            squeeze=self.squeeze,
            by_kind=self.by_kind,
            read_keys=tuple(self.read_keys),
            dropped=options.drop_variables,
            inline_limit=options.inline_limit,
        )
        group = _group(table, rows, layout, options.is_tree)
        return replace(group, refusals=(*group.refusals, *_notes(records)))

    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(_timeless() | {*self._asked_for(), *_TIMES, QUALIFIER, TRIPLET}))

    def _with_times(self) -> bool:
        return bool(self._asked_for() - _timeless() - set(_TIMES))

    def _asked_for(self) -> set[str]:
        return {*self.filter_by_keys, *self.time_dims, *self.extra_dims}


@cache
def _timeless() -> frozenset[str]:
    """Return the keys of cfgrib's index except for the keys of times."""
    return frozenset(import_cfgrib("dataset").INDEX_KEYS) - {"dataDate", "dataTime", "endStep"}


def _group(table: FieldTable, rows: NDArray[np.int64], layout: GroupLayout, is_tree: bool | None) -> ManifestGroup:
    if is_tree:
        return tree_group(table, rows, layout)
    try:
        group = dataset_group(table, rows, layout)
    except UnsupportedFeatureError:
        if is_tree is not None:
            raise
        return tree_group(table, rows, layout)
    if is_tree is None and any(refusal.kind == "refused" for refusal in group.refusals):
        return tree_group(table, rows, layout)
    return group


def _nothing(table: FieldTable, wanted: Mapping[str, Any]) -> str:
    """Describe which keys of a filter match no field."""
    every = np.arange(len(table.fields))
    unmatched = [key for key, value in wanted.items() if not len(table.selected({key: value}))]
    if unmatched:
        found = "; ".join(f"'{key}' is {listed(table.column(key).distinct(every))}" for key in unmatched)
    else:
        found = "each value occurs, but no field has all of them"
    return (
        f"none of the {len(every)} fields of {table.files} matches filter_by_keys={dict(wanted)!r}. "
        f"In these fields, {found}. Choose values that occur"
    )


def _notes(parts: Sequence[Records]) -> list[Refusal]:
    notes = [note for part in parts for note in part.notes]
    if n_junk := sum(part.n_junk for part in parts):
        n = sum(len(part.fields) for part in parts)
        notes.append(f"{n_junk} bytes belong to none of the {n} fields")
    return [Refusal(path="/", reason=note, kind="noted") for note in notes]

"""The reader of GRIB files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.codec import GRIB as CODEC
from virtualstack.codecs.grib.library import cfgrib_of
from virtualstack.codecs.metadata import Codec
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError
from virtualstack.manifests import (
    FIRST,
    MISSING,
    ENTRY,
    ChunkEncoding,
    ChunkGrid,
    ChunkManifest,
    Fill,
    ManifestArray,
    ManifestGroup,
    Refusal,
)
from virtualstack.manifests import value_changing as cf_of
from virtualstack.manifests.inline import inline_array
from virtualstack.readers.base import ReadOptions
from virtualstack.readers.grib.cube import Mixture, Variable, coordinates_of, variables_of
from virtualstack.readers.grib.grids import Coordinate
from virtualstack.readers.grib.keys import TRIPLET
from virtualstack.readers.grib.records import Records, records_of
from virtualstack.readers.grib.table import Table
from virtualstack.readers.grib.walk import Walk
from virtualstack.storage import Storage

__all__ = ["GRIB"]

_FLOAT = np.dtype(np.float32)
_NAN = Fill.of(np.nan, _FLOAT)
_TIMES = ("time", "step")
MAX_CELLS = 1 << 26
"""Cells of all variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GRIB:
    """Reads GRIB files of editions 1 and 2: headers alone, no data.

    Names, dimensions, coordinates and attributes are those of cfgrib.

    Parameters
    ----------
    filter_by_keys
        Values of keys, or tuples of several, that fields must have; all others are left out.
    time_dims
        Keys of times that are dimensions: two of ``time``, ``step``, ``valid_time`` and others that eccodes has.
    squeeze
        Whether coordinates of one value are scalars, not dimensions.
    read_keys
        Further keys that become attributes of variables.
    """

    name: ClassVar[str] = "grib"

    filter_by_keys: Mapping[str, Any] = field(default_factory=dict)
    time_dims: tuple[str, ...] = _TIMES
    squeeze: bool = True
    read_keys: tuple[str, ...] = ()

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Describe a file.

        Raises
        ------
        MalformedFileError
            It has no message, or a damaged one.
        UnsupportedFeatureError
            Its fields form no one dataset.
        StorageError
            The bytes could not be had.
        """
        return self.assemble([self.scan(url, storage)], options)

    def scan(self, url: str, storage: Storage) -> Records:
        """Find the fields of a file, and their keys."""
        source = storage.source(url)
        location = source.location
        walk = Walk(source)
        names = self._names()
        records = records_of(walk, location, names, with_times=self._with_times())
        if walk.damages:
            damage = walk.damages[0]
            raise MalformedFileError(
                f"'{location.url}' has a damaged message at byte {damage.offset}: {damage.reason}. Fetch it again",
                url=location.url,
                offset=damage.offset,
            )
        if not len(records.fields):
            raise MalformedFileError(
                f"'{location.url}' has no GRIB message in its {source.size} bytes: it is damaged, or another kind of "
                "file; fetch it again",
                url=location.url,
                offset=0,
            )
        return replace(records, n_junk=walk.n_junk)

    def assemble(self, parts: Sequence[Records], options: ReadOptions) -> ManifestGroup:
        """Make one group of the fields of files.

        Raises
        ------
        UnsupportedFeatureError
            They form no one dataset.
        """
        table = Table.of(parts, self._names())
        rows = table.selected(self.filter_by_keys)
        url = parts[0].location.url if len(parts) == 1 else None
        refusals: list[Refusal] = []
        arrays: dict[str, ManifestArray] = {}
        coordinates: dict[str, Coordinate] = {}
        for variable in variables_of(table, rows, time_dims=self.time_dims, read_keys=self.read_keys):
            if isinstance(variable, Mixture):
                raise UnsupportedFeatureError(
                    f"'{url}': '{variable.name}' is no one variable: {variable}. Open it as a tree with "
                    f"open_virtual_datatree, or choose with reader=vs.readers.GRIB(filter_by_keys={{'{variable.key}': "
                    f"{variable.values[0]!r}}})",
                    url=url,
                    variable=variable.name,
                    feature=variable.key,
                )
            if variable.name in options.drop_variables:
                continue
            own = coordinates_of(variable, squeeze=self.squeeze)
            differs = next((x for x in own if x in coordinates and not own[x].same(coordinates[x])), None)
            if differs is not None or variable.name in arrays:
                refusals.append(Refusal(path=f"/{variable.name}", reason=f"differs in {differs}"))
                continue
            coordinates |= own
            array, others = _array(table, variable, own, squeeze=self.squeeze)
            arrays[variable.name] = array
            if len(others):
                refusals.append(Refusal(path=f"/{variable.name}", reason=f"{len(others)} duplicates", kind="noted"))
        made = {
            name: inline_array(x.values, name=f"/{name}", dims=x.dims, attributes=x.attributes)
            for name, x in coordinates.items()
            if name not in options.drop_variables
        }
        return ManifestGroup(
            arrays={**made, **arrays},
            attributes=_attributes(table, rows),
            coordinates=frozenset(made),
            loaded=frozenset(made),
            refusals=tuple(refusals),
            url=url,
        )

    def _names(self) -> tuple[str, ...]:
        keys = set(cfgrib_of("dataset").INDEX_KEYS) - {"dataDate", "dataTime", "endStep"}
        return tuple(sorted(keys | {*self.filter_by_keys, *self.time_dims, *_TIMES, TRIPLET}))

    def _with_times(self) -> bool:
        keys = set(cfgrib_of("dataset").INDEX_KEYS) - {"dataDate", "dataTime", "endStep"}
        return bool({*self.filter_by_keys, *self.time_dims} - keys - set(_TIMES))


def _attributes(table: Table, rows: NDArray[np.int64]) -> dict[str, Any]:
    cfgrib = cfgrib_of("dataset")
    found: dict[str, Any] = {}
    for key in cfgrib.GLOBAL_ATTRIBUTES_KEYS:
        values = table.column(key).distinct(rows)
        if len(values) == 1 and values[0] not in ("undef", "unknown"):
            found[f"GRIB_{key}"] = values[0]
    found["Conventions"] = "CF-1.7"
    if "GRIB_centreDescription" in found:
        found["institution"] = found["GRIB_centreDescription"]
    return found


def _array(
    table: Table, variable: Variable, coordinates: Iterable[str], *, squeeze: bool
) -> tuple[ManifestArray, NDArray[np.int64]]:
    cells, others = variable.cells()
    kept = [axis for axis in variable.axes if not squeeze or len(axis.values) > 1]
    shape = tuple(len(axis.values) for axis in kept)
    grid = variable.grid
    entries = np.zeros(math.prod(shape), ENTRY)
    cells = cells.reshape(-1)
    is_there = cells >= 0
    fields = table.fields[cells[is_there]]
    sources = table.sources[cells[is_there]]
    used, codes = np.unique(sources, return_inverse=True)
    entries["location"] = MISSING
    entries["location"][is_there] = FIRST + codes
    entries["offset"][is_there] = fields["offset"]
    entries["length"][is_there] = fields["length"]
    ones = (1,) * len(shape)
    stored = grid.shape[::-1] if grid.by_columns else grid.shape
    codec = Codec.of(CODEC, row=stored[1]) if len(stored) == 2 else Codec.of(CODEC)
    encoding = ChunkEncoding.of(_FLOAT, (*ones, *stored), (codec,))
    if grid.by_columns:
        encoding = encoding.with_strides((*encoding.strides[:-2], 1, stored[1]))
    manifest = ChunkManifest(
        entries=entries.reshape(*shape, *(1,) * len(stored)),
        fills=(_NAN,),
        encodings=(encoding,),
        locations=tuple(table.locations[i] for i in used),
    )
    attributes = {**variable.attributes, "coordinates": " ".join(coordinates)}
    array = ManifestArray(
        manifest=manifest,
        grid=ChunkGrid.regular((*shape, *grid.shape), (*ones, *grid.shape)),
        dtype=_FLOAT,
        name=f"/{variable.name}",
        dimension_names=(*(axis.name for axis in kept), *grid.dims),
        attributes=attributes,
        cf=cf_of(attributes),
    )
    return array, others

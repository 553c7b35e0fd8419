"""Find fields with the same coordinates in one variable, and the keys that distinguish them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.grib.library import import_eccodes
from virtualstack.formats.grib.cube import GribVariable
from virtualstack.formats.grib.keys import OF_VALUES, UNDEFINED, ask, cfgrib_field, name_text
from virtualstack.formats.grib.records import FieldTable
from virtualstack.manifests.cells import distinct_rows

# Keys that users know, in the order in which they are tried.
_KNOWN = (
    *("percentileValue", "derivedForecast", "probabilityType", "lowerLimit", "upperLimit"),
    *("expver", "aerosolType", "constituentType", "scaledValueOfFirstSize", "scaledValueOfSecondSize"),
    *("scaledValueOfFirstWavelength", "scaledValueOfSecondWavelength", "lengthOfTimeRange", "startStep"),
    *("topLevel", "bottomLevel", "stream", "class", "model", "hdate", "method", "typeOfGeneratingProcess"),
)
_NAMED = {"constituentType": "constituentTypeName", "aerosolType": "aerosolTypeName"}
"""Keys whose values are numbers of a code table, and the key that has the name of the value."""

# Keys that describe how a time or a value is written, not its value.
_SPELLING = OF_VALUES | {
    *("indicatorOfUnitForForecastTime", "indicatorOfUnitOfTimeRange", "unitOfTimeRange", "stepUnits", "forecastTime"),
    *(
        "P1",
        "P2",
        "startStep",
        "endStep",
        "stepRange",
        "dataRepresentationTemplateNumber",
        "typeOfOriginalFieldValues",
        "optimizeScaleFactor",
    ),
    *("changeDecimalPrecision", "decimalPrecision", "setBitsPerValue", "bitsPerValueAndRepack", "setPackingType"),
    *("unpackedError", "lengthOfHeaders"),
}

_LISTS = frozenset(
    {"codedValues", "values", "latLonValues", "latitudes", "longitudes", "distinctLatitudes", "distinctLongitudes"}
)


class Values:
    """Values of any key of the fields of a table; each header is opened once.

    Parameters
    ----------
    table
        The fields.
    """

    def __init__(self, table: FieldTable) -> None:
        self._table = table
        self._open: dict[int, Any] = {}
        self._known: dict[tuple[int, str], Any] = {}

    def __call__(self, row: int, key: str, /) -> Any:
        """Return the value of a key of the field in a row; `UNDEFINED` if the field does not have the key."""
        if key in ("time", "step"):
            column = self._table.column(key)
            return column.values[column.codes[row]]
        header = int(self._table.fields["header"][row])
        if (header, key) not in self._known:
            value = ask(self._field(header), key)
            is_none = key == "startStep" and str(value)[:-1] == "0"  # eccodes returns the text of minutes or months
            self._known[header, key] = 0 if is_none else value
        return self._known[header, key]

    def names(self, row: int, /) -> Iterator[str]:
        """Yield the names of all keys of the field in a row."""
        eccodes = import_eccodes()
        iterator = eccodes.codes_keys_iterator_new(self._field(int(self._table.fields["header"][row])).codes_id)
        try:
            while eccodes.codes_keys_iterator_next(iterator):
                yield eccodes.codes_keys_iterator_get_name(iterator)
        finally:
            eccodes.codes_keys_iterator_delete(iterator)

    def _field(self, header: int) -> Any:
        if header not in self._open:
            self._open[header] = cfgrib_field(self._table.stubs[header])
        return self._open[header]


def sharing_a_place(table: FieldTable, variable: GribVariable, /, *, with_times: bool) -> list[tuple[int, ...]]:
    """Find different fields of a variable that have the same coordinates."""
    time, step = table.column("time"), table.column("step")
    times = time.codes[variable.rows] * len(step.values) + step.codes[variable.rows]
    _, place = np.unique(variable.flat(), return_inverse=True)
    field = table.fields["header"][variable.rows].astype(np.int64) * len(time.values) * len(step.values) + times
    if not with_times:
        place = place * len(time.values) * len(step.values) + times
    kept, _ = distinct_rows([place, field])
    begins = np.flatnonzero(np.diff(place[kept])) + 1
    if len(begins) + 1 == len(kept):
        return []
    sets = np.split(kept, begins)
    distinct = {tuple(field[some]): tuple(variable.rows[some].tolist()) for some in sets if len(some) > 1}
    return list(distinct.values())


def keys_apart(values: Values, sets: Sequence[Sequence[int]], /) -> tuple[str, ...]:
    """Choose keys that distinguish fields; keys that users know are tried first."""
    candidates: tuple[str, ...] = ("step", "time", *_KNOWN)
    total = sum(map(len, sets))
    if not total:
        return ()
    for key in candidates:
        if _n_parts(values, sets, (key,)) == total:
            return (key,)
    chosen: tuple[str, ...] = ()
    while True:
        for key in candidates:
            if _n_parts(values, sets, (*chosen, key)) > _n_parts(values, sets, chosen):
                chosen = (*chosen, key)
        candidates = tuple(_others(values, sets, chosen))
        if not candidates:
            break
    n = _n_parts(values, sets, chosen)
    for key in reversed(chosen):
        fewer = tuple(x for x in chosen if x != key)
        if _n_parts(values, sets, fewer) == n:
            chosen = fewer
    return chosen


def _n_parts(values: Values, sets: Iterable[Sequence[int]], keys: tuple[str, ...]) -> int:
    return sum(len({tuple(values(row, key) for key in keys) for row in rows}) for rows in sets)


def _others(values: Values, sets: Iterable[Sequence[int]], chosen: tuple[str, ...]) -> list[str]:
    """List the keys that differ between two fields that the chosen keys do not distinguish."""
    for rows in sets:
        seen: dict[tuple[Any, ...], int] = {}
        for row in rows:
            other = seen.setdefault(tuple(values(row, key) for key in chosen), row)
            if other != row and (found := _differing(values, other, row)):
                return found
    return []


def _differing(values: Values, a: int, b: int) -> list[str]:
    names = dict.fromkeys([*values.names(a), *values.names(b)])
    differing = [x for x in names if x not in _LISTS and values(a, x) != values(b, x)]
    plain = [x for x in differing if not x.startswith(("md5", "validity")) and not x.endswith("Length")]
    if plain:
        return [x for x in plain if x not in _SPELLING]
    # sections of a kind that eccodes does not know
    return [x for x in differing if x.startswith("md5Section")][:1]


def parts_apart(values: Values, rows: NDArray[np.int64], keys: tuple[str, ...], /) -> Mapping[str, NDArray[np.int64]]:
    """Split fields by the values of some keys, and return the rows of each part by a name formed from these values."""
    parts: dict[tuple[Any, ...], list[int]] = {}
    for row in rows.tolist():
        parts.setdefault(tuple(values(row, key) for key in keys), []).append(row)
    names = [_name(values, part[0], keys) for part in parts.values()]
    if len(set(names)) < len(parts):
        names = [_name(values, part[0], keys, by_number=True) for part in parts.values()]
    return {name: np.array(part, np.int64) for name, part in zip(names, parts.values(), strict=True)}


def _name(values: Values, row: int, keys: tuple[str, ...], *, by_number: bool = False) -> str:
    words = []
    for key in keys:
        value = values(row, key)
        name = UNDEFINED if by_number or key not in _NAMED else values(row, _NAMED[key])
        if value == UNDEFINED:
            continue
        if key == "time":
            words.append(f"time_{np.datetime64(value, 's').astype(object):%Y%m%dT%H%M%S}")
        elif name == UNDEFINED or name.isdecimal():
            words.append(f"{key}_{name_text(value)}")
        else:
            words.append("_".join("".join(x if x.isalnum() else " " for x in name.lower()).split()))
    return "_".join(words) or f"no_{keys[0]}"

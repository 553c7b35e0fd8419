"""Colours of values, by the rules of the page of the server (``serve/page/src/colours.ts``)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

MAPS: Mapping[str, str] = {
    "sequential": "440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6dcd59 b4de2c fde725",
    "diverging": "2166ac 4393c3 92c5de d1e5f0 f7f7f7 fddbc7 f4a582 d6604d b2182b",
}
"""Colours from low to high of each kind of values."""

KINDS = ("4477aa", "ddaa33", "228833", "aa3377", "66ccee", "cc6677", "88aa55", "999933", "44aa99", "bb8866")
"""Colours of classes."""

_SHADES = ((0, 0.0), (255, 0.55), (0, 0.45), (255, 0.3), (0, 0.7))
_ELSE = (128, 128, 128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """How the values of a variable become colours: numbers from low to high, or classes."""

    kind: Literal["sequential", "diverging", "classes"]
    low: float
    high: float
    classes: tuple[tuple[float, str], ...] = ()

    def table(self, n: int, /) -> NDArray[np.uint8]:
        """Return the colours: ``n`` from low to high, or those of the classes and of any other value."""
        if self.kind == "classes":
            return np.array([*map(class_colour, range(len(self.classes))), _ELSE], np.uint8)
        stops = np.array([list(bytes.fromhex(x)) for x in MAPS[self.kind].split()], float)
        at, known = np.linspace(0, 1, n), np.linspace(0, 1, len(stops))
        return np.stack([np.interp(at, known, column) for column in stops.T], 1).astype(np.uint8)

    def rows(self, values: NDArray[Any], n: int, /) -> NDArray[np.intp]:
        """Return the row of the table that each value has, of which none is missing."""
        if self.kind == "classes":
            rows = np.full(values.shape, len(self.classes))
            for i, (value, _) in enumerate(self.classes):
                rows[values == value] = i
            return rows
        if not self.high > self.low:  # one value has the colour of the middle
            return np.full(values.shape, n // 2)
        share = (np.clip(values, self.low, self.high) - self.low) / (self.high - self.low)
        return np.asarray(np.rint(share * (n - 1)), np.intp)


def class_colour(number: int, /) -> tuple[int, ...]:
    """Return the colour of a class: each ten are lighter or darker than those before."""
    towards, part = _SHADES[number // len(KINDS) % len(_SHADES)]
    return tuple(round(x * (1 - part) + towards * part) for x in bytes.fromhex(KINDS[number % len(KINDS)]))


def choose_palette(attributes: Mapping[str, Any], values: NDArray[Any], /) -> Palette:
    """Return the palette of a variable, by its attributes and its finite values, of which there is one at least."""
    classes = _classes(attributes)
    values = np.sort(values, axis=None).astype(float)
    low, high = values[0], values[-1]
    if classes:
        return Palette(kind="classes", low=low, high=high, classes=classes)
    near, far = values[int(0.005 * (len(values) - 1))], values[int(np.ceil(0.995 * (len(values) - 1)))]
    units = str(attributes.get("units", "")).replace("°", "")
    is_temperature = re.fullmatch(r"\s*(deg(ree)?s?_?\s?)?c(elsius)?\s*", units, re.IGNORECASE)
    is_balanced = low < 0 < high and min(-low, high) > 0.1 * max(-low, high) and not is_temperature
    names = f"{attributes.get('standard_name', '')} {attributes.get('long_name', '')}"
    is_diverging = is_balanced or (re.search("anomal", names, re.IGNORECASE) and low < high)
    if high - low > 4 * (far - near) and far > near:  # a few values are far out
        low, high = near, far
    if is_diverging:
        low, high = -max(-low, high), max(-low, high)
    return Palette(kind="diverging" if is_diverging else "sequential", low=low, high=high)


def _classes(attributes: Mapping[str, Any]) -> tuple[tuple[float, str], ...]:
    """Return values and names of classes; flags of single bits are none."""
    if "flag_masks" in attributes:
        return ()
    if attributes.get("dtype") == "bool":
        return (0, "false"), (1, "true")
    flags = attributes.get("flag_values", ())
    if isinstance(flags, str):
        return ()
    names = str(attributes.get("flag_meanings", "")).split()
    found = [float(x) for x in np.ravel(flags).tolist()]
    return tuple((x, names[i].replace("_", " ") if i < len(names) else f"{x:g}") for i, x in enumerate(found))

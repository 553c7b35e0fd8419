"""Fields that look like weather: sums of waves, without random numbers, so that they are the same every time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

type Floats = NDArray[np.floating]
"""Numbers of any precision."""

_GOLDEN = (5**0.5 - 1) / 2


def texture(x: Any, y: Any, z: Any = 0.0, /, *, time: Any = 0.0, seed: int = 0, waves: int = 24) -> Floats:
    """Return smooth irregular numbers around 0, mostly within -1 and 1, that change with the time.

    Parameters
    ----------
    x, y, z
        Coordinates, in the length of the largest pattern; their shapes, and that of ``time``, are broadcast.
    time
        Time, in the time in which the patterns change much.
    seed
        Another number gives another pattern.
    waves
        Number of waves; more waves show more detail.
    """
    x, y, z, time = (np.asarray(a, "f4") for a in (x, y, z, time))
    total = np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape, time.shape), "f4")
    for i in range(waves):
        # directions that are spread evenly over the sphere
        angle, up = 2 * math.pi * ((i + 1) * _GOLDEN + 0.37 * seed), 1 - 2 * ((i + 0.5) * 0.7548776 % 1)
        level = (1 - up**2) ** 0.5
        wave_number = math.pi * 1.17**i
        phase = 2 * math.pi * ((i + 1) ** 2 * _GOLDEN + 0.71 * seed) + (1 + 0.2 * i) * time
        place = level * math.cos(angle) * x + level * math.sin(angle) * y + up * z
        total += 1.17 ** (-1.1 * i) * np.cos(wave_number * place + phase)
    return total / 2.2


def air_temperature(latitude: Any, longitude: Any, days: Any, /, *, pressure: Any = 1000.0, seed: int = 0) -> Floats:
    """Return the temperature of the air in K: zones, seasons, a daily cycle, highs and lows that move eastwards.

    Parameters
    ----------
    latitude, longitude
        Degrees; their shapes, and those of ``days`` and ``pressure``, are broadcast.
    days
        Days since the beginning of a year.
    pressure
        Pressure in hPa.
    seed
        Another number gives other highs and lows, such as those of another member of an ensemble.
    """
    phi, lam, days = np.radians(latitude), np.radians(longitude), np.asarray(days, float)
    season = -np.cos(2 * np.pi * (days - 20) / 365.25)
    zones = 300 - 45 * np.sin(phi) ** 2 + 14 * season * np.sin(phi)
    land = 1 + np.tanh(3 * texture(*_on_the_sphere(phi, lam), waves=12))
    daily = 3 * land * np.cos(phi) * np.cos(2 * np.pi * (days - 0.6) + lam)
    height = 7.5 * np.log(1013 / np.asarray(pressure, float))  # km
    mean = zones + daily * np.exp(-height) - 6.2 * height
    return np.asarray(mean + 7 * np.cos(phi) * _weather(phi, lam, days, height, seed))


def zonal_wind(latitude: Any, longitude: Any, days: Any, /, *, pressure: Any) -> Floats:
    """Return the eastward wind in m s-1: trade winds, westerlies that grow with the height, and what moves with them.

    The parameters are those of :func:`air_temperature`.
    """
    phi, lam, days = np.radians(latitude), np.radians(longitude), np.asarray(days, float)
    height = 7.5 * np.log(1013 / np.asarray(pressure, float))
    zones = -6 * np.cos(3 * phi) * np.cos(phi) + 2.8 * height * np.sin(2 * phi) ** 2
    return np.asarray(zones + (4 + height) * np.cos(phi) * _weather(phi, lam, days, height, 1))


def _weather(phi: Floats, lam: Floats, days: Floats, height: Floats, seed: int) -> Floats:
    """Return highs and lows: waves that drift eastwards by 8 degrees a day and change within a week."""
    x, y, z = _on_the_sphere(phi, lam - np.radians(8) * days - 0.1 * height)
    return texture(1.4 * x, 1.4 * y, 1.4 * z, time=0.5 * days, seed=seed, waves=12)


def _on_the_sphere(phi: Floats, lam: Floats) -> tuple[Floats, Floats, Floats]:
    return np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)

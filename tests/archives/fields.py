"""Smooth fields of any size that cost little to make."""

import math

import numpy as np
from numpy.typing import NDArray


def field(*shape: int, seed: float = 0.0) -> NDArray[np.float32]:
    """Return numbers within -1 and 1: waves along each axis; another seed gives another field."""
    total = np.zeros(shape, "f4")
    for i in range(1, 4):
        wave = np.ones((), "f4")
        for axis, n in enumerate(shape):
            along = np.cos((i + 0.7 * axis) * np.linspace(0, 3, n) + 0.9 * i * seed + axis).astype("f4")
            wave = np.multiply.outer(wave, along)
        total += wave / math.pow(2, i)
    return total

"""Decode images in a child process; `virtualstack.codecs.limits` starts it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def decode(decoder: Callable[[bytes], Any], data: bytes, most: int, /) -> NDArray[Any]:
    """Decode an image of at most ``most`` bytes; more bytes are not sent to the parent, whose memory has no limit."""
    image = np.asarray(decoder(data))
    if image.nbytes > most:
        raise ValueError(f"the image has {image.nbytes} bytes; at most {most} are expected")
    return image

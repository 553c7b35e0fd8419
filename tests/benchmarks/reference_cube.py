"""One variable of three dimensions, whose references lie in a file for each step of time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.data.arrays import referenced_array
from virtualstack.codecs.codec import Codec
from virtualstack.manifests import ManifestGroup

CHUNKS = (1, 10, 10)


def group_of(
    urls: Sequence[str], offsets: NDArray[Any], lengths: NDArray[Any], codecs: Sequence[Codec] = ()
) -> ManifestGroup:
    """Give a group with the variable ``v``; columns have the shape of the grid."""
    shape = tuple(n * chunk for n, chunk in zip(offsets.shape, CHUNKS, strict=True))
    places = {"urls": urls, "offsets": offsets, "lengths": lengths}
    array = referenced_array(shape, CHUNKS, **places, codecs=codecs, fill=np.nan, dimension_names=("t", "y", "x"))
    return ManifestGroup(arrays={"v": array})

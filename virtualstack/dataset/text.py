"""Characters along the last dimension as text."""

from __future__ import annotations

import numpy as np

from virtualstack.errors import UnsupportedFeatureError
from virtualstack.manifests import ManifestArray, Refusal, inline_array, join_characters
from virtualstack.reading import read_array
from virtualstack.storage import Storage

__all__ = ["text_array"]


def text_array(
    array: ManifestArray, storage: Storage, /, *, url: str | None, limit: int
) -> tuple[ManifestArray, list[Refusal]]:
    """Join characters to text; where chunks do not hold whole texts, read them, which is noted.

    Raises
    ------
    UnsupportedFeatureError
        They must be read, and have more bytes than ``limit``.
    StorageError
        They cannot be read.
    """
    joined = join_characters(array)
    if joined is not None:
        return joined, []
    reason = "characters of one text lie in several chunks, or in longer ones"
    if array.nbytes > limit:
        name = (array.name or "").rsplit("/", 1)[-1]
        inline = "" if limit else "unsupported='inline' and "  # with unsupported="raise", the limit is 0
        raise UnsupportedFeatureError(
            f"variable '{array.name}' of '{url}' cannot be referenced as text: {reason}. It has {array.nbytes} bytes: "
            f"load it with loadable_variables=['{name}'], put it into the references with "
            f"{inline}inline_limit={array.nbytes}, or leave it out with drop_variables=['{name}']",
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

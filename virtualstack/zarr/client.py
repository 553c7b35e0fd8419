"""What a program that reads zarr can do, as data, and why it cannot have the stored chunks of an array."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from virtualstack.errors import WriterError
from virtualstack.manifests import ChunkEncoding, ManifestArray
from virtualstack.manifests.plain import PlainArray
from virtualstack.options import OnAbsent
from virtualstack.printable import first_names
from virtualstack.zarr.documents import codec_documents
from virtualstack.zarr.metadata.version2 import encoding_to_zarr2, takes_holes

type ZarrFormat = Literal[2, 3, "cells"]
"""Version of the zarr specification, or the cells of arrays as they are stored, each with how it is decoded."""


def _decodes_all(codec: str) -> bool:
    return True


def _takes_no_grid(array: ManifestArray) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """What a program that reads zarr can do.

    Parameters
    ----------
    zarr_format
        Version of zarr.
    decodes
        Function that returns whether it decodes the codec of a name.
    needs_all
        If true, it must get every chunk: those that a slice cuts are encoded again. So codecs need an encoder.
    chunks
        Length of decoded chunks by dimension.
    absent
        ``"raise"`` if it gets an error for ABSENT chunks.
    name
        What messages call the references that it reads, such as ``"kerchunk references"``.
    takes_grid
        Function that returns whether it reads references to an array that is not plain.
    streams
        If true, references to an array are written one part at a time.
    """

    zarr_format: ZarrFormat = 3
    decodes: Callable[[str], bool] = _decodes_all
    needs_all: bool = True
    chunks: Mapping[str, int] = field(default_factory=dict)
    absent: OnAbsent = "fill"
    name: str = "references"
    takes_grid: Callable[[ManifestArray], bool] = _takes_no_grid
    streams: bool = False

    def why_not(
        self, encoding: ChunkEncoding, chunks: tuple[int, ...], order: tuple[int, ...] | None, variable: str = ""
    ) -> str | None:
        """Return why it cannot decode chunks of an encoding, as half a sentence, or ``None`` if it can.

        ``chunks`` is the shape of decoded chunks along the axes of the array, and ``order`` the order in which their
        axes are stored (``None``: that of the array). ``variable`` is the name in reasons.
        """
        if self.zarr_format == 3:
            documents = codec_documents(encoding, chunks, order)
            if documents is None:
                names = " + ".join(codec.name for codec in encoding.codecs) or "no codec"
                return f"zarr would not decode chunks of dtype '{encoding.dtype}' with {names} to the same values"
            used = [document["name"] for document in documents]
        else:
            try:
                members = encoding_to_zarr2(encoding, chunks, order, variable=variable)
            except WriterError as error:
                return error.what
            used = [codec["id"] for codec in (*(members["filters"] or ()), members["compressor"]) if codec]
        unknown = [codec for codec in used if not self.decodes(codec)]
        return f"{first_names(unknown)} would not be decoded" if unknown else None

    def why_not_plain(self, array: ManifestArray, /) -> str | None:
        """Return why references cannot hold an array as a plain one, as half a sentence, or ``None`` if they can."""
        plain = PlainArray.from_array(array)
        if isinstance(plain, str):
            return plain
        if plain.encoding is not None:
            reason = self.why_not(plain.encoding, plain.chunks, plain.order, array.name or "")
            if reason is not None:
                return reason
        if self.takes_holes(array, plain):
            return None
        return (
            "its chunks without bytes must be written out, but no chunk in the encoding of the others decodes to "
            "their fill value"
        )

    def takes_holes(self, array: ManifestArray, plain: PlainArray, /) -> bool:
        """Return whether references can hold EMPTY and ABSENT chunks: in zarr v3 the fill value masks nothing."""
        return self.zarr_format == 3 or takes_holes(array, plain)

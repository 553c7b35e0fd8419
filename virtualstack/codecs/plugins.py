"""Codecs as zarr and numcodecs load them, by entry point; they only decode.

A format registers its codecs as entry points of ``zarr.codecs``. The pipeline finds them there as well, so no module of
this folder names a format. In its ``__init__.py``, the folder of a format lists codecs of other packages whose bytes it
decodes (``FOREIGN_CODECS``).
"""

from __future__ import annotations

import asyncio
import importlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self

import numcodecs.abc
import numcodecs.registry
import numpy as np
from numpy.typing import NDArray
from zarr.abc.codec import ArrayBytesCodec, BytesBytesCodec
from zarr.core.array_spec import ArraySpec
from zarr.core.buffer import Buffer, NDBuffer
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from virtualstack.codecs.codec import BytesDecoder, BytesLike, Codec, CodecError, raw_bytes

__all__ = [
    "NumcodecsPlugin",
    "ZarrFilterPlugin",
    "ZarrMetadata",
    "ZarrPlugin",
    "find_foreign_plugin",
    "find_plugin",
]

_OURS = "virtualstack."


def find_plugin(name: str, /) -> type[ZarrMetadata] | None:
    """Return the codec that a format of virtualstack registered with zarr under a name; ``None`` if there is none."""
    if not name.startswith(_OURS):
        return None
    try:
        kind = get_codec_class(name)
    except UnknownCodecError:
        return None
    return kind if issubclass(kind, ZarrMetadata) else None


def find_foreign_plugin(name: str, /) -> type[ZarrMetadata] | None:
    """Return the codec that decodes the bytes of another package's codec, by its id in numcodecs' registry."""
    return find_plugin(_foreign_codecs().get(name, ""))


@cache
def _foreign_codecs() -> Mapping[str, str]:
    """Return ``FOREIGN_CODECS`` of all folders whose codecs are registered; no codec is imported."""
    modules = {entry.module for name, entry in numcodecs.registry.entries.items() if name.startswith(_OURS)}
    folders = [importlib.import_module(module.rpartition(".")[0]) for module in sorted(modules)]
    return {id_: ours for folder in folders for id_, ours in vars(folder).get("FOREIGN_CODECS", {}).items()}


@dataclass(frozen=True)
class ZarrMetadata:
    """Base of all codecs of virtualstack in zarr version 3: they have metadata and decode in a thread.

    Parameters
    ----------
    codec
        The metadata.
    """

    is_fixed_size: ClassVar[bool] = False
    promises: ClassVar[frozenset[str]] = frozenset()
    """Settings that state a property of chunks and do not change decoding. They hold of chunks that all have them."""
    naming_setting: ClassVar[str | None] = None
    """Setting that names the decoded values, whatever bytes are decoded."""

    codec: Codec

    @classmethod
    def from_dict(cls, data: Any) -> Self:
        """Read the codec's metadata."""
        return cls(Codec.from_json(data))

    def to_dict(self) -> Any:
        """Write the codec's metadata."""
        return self.codec.to_json()

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: ArraySpec) -> int:
        """Refuse: the size depends on the values.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError

    @classmethod
    def to_numcodecs(cls, codec: Codec, /) -> list[dict[str, Any]]:
        """Return configurations of numcodecs, in encoding order, that decode the same; raise if there are none."""
        return [{"id": codec.name, **codec.options()}]

    @classmethod
    def from_numcodecs(cls, config: Mapping[str, Any], chunks: tuple[int, ...], /) -> Codec | None:
        """Return the codec that decodes the same as a configuration of another package.

        Parameters
        ----------
        config
            The configuration, with the ``id`` by which :func:`find_foreign_plugin` found this class.
        chunks
            Shape of the chunks; empty if it is not known.

        Returns
        -------
        Codec or None
            ``None`` if no codec of virtualstack decodes the same.
        """
        return None

    @classmethod
    def foreign_decoder(cls, config: Mapping[str, Any], /) -> BytesDecoder | None:
        """Return the decoder for a configuration of another package, or ``None`` to use the decoder of that package."""
        return None

    @abstractmethod
    def _decode_sync(self, chunk: Any, spec: ArraySpec) -> Any:
        """Decode a chunk."""

    async def _decode_single(self, chunk: Any, spec: ArraySpec) -> Any:
        return await asyncio.to_thread(self._decode_sync, chunk, spec)


@dataclass(frozen=True)
class ZarrPlugin(ZarrMetadata, ArrayBytesCodec):
    """A codec that decodes a chunk to an array, in zarr version 3 metadata."""

    @abstractmethod
    def decoder(self, options: Mapping[str, Any], shape: tuple[int, ...], /) -> Callable[[BytesLike], NDArray[Any]]:
        """Make the decoder of chunks of a shape."""

    def _decode_sync(self, chunk: Buffer, spec: ArraySpec) -> NDBuffer:
        decode = self.decoder(self.codec.options(), spec.shape)
        return spec.prototype.nd_buffer.from_numpy_array(decode(chunk.to_bytes()))


@dataclass(frozen=True)
class ZarrFilterPlugin(ZarrMetadata, BytesBytesCodec):
    """A codec that decodes bytes to bytes, in zarr version 3 metadata."""

    @classmethod
    def foreign_decoder(cls, config: Mapping[str, Any], /) -> BytesDecoder | None:
        """Return the decoder of the codec that decodes the same."""
        codec = cls.from_numcodecs(config, ())
        return None if codec is None else cls(codec).decoder(codec.options())

    @abstractmethod
    def decoder(self, options: Mapping[str, Any], /) -> BytesDecoder:
        """Make the decoder."""

    def encoded_size(self, options: Mapping[str, Any], size: int, /) -> int | None:
        """Return the number of stored bytes for ``size`` decoded bytes; ``None`` if it depends on their values."""
        return None


class NumcodecsPlugin(numcodecs.abc.Codec):  # type: ignore[misc]
    """A codec in zarr version 2 metadata; its settings are the configuration of the codec."""

    codec_id: str

    def __init__(self, **options: Any) -> None:
        self.codec = Codec.from_config(self.codec_id, **options)  # the decoder is not kept, since it need not pickle
        self.decoder(options)  # raises an error if the options are not valid

    @abstractmethod
    def decoder(self, options: Mapping[str, Any], /) -> Callable[[Any], Any]:
        """Make the decoder of bytes to an array."""

    def get_config(self) -> dict[str, Any]:
        """Return the settings, with the ``id``."""
        return {"id": self.codec_id, **self.codec.options()}

    def encode(self, buf: Any) -> Any:
        """Refuse.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError(f"'{self.codec_id}' only decodes")

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Return the values, written into ``out`` if it is given."""
        values = self.decoder(self.codec.options())(raw_bytes(buf))
        if out is None:
            return values
        decoded, target = raw_bytes(values), np.asarray(memoryview(out).cast("B"))
        if target.size != decoded.size:
            raise CodecError(f"the chunk decodes to {decoded.size} bytes; there is room for {target.size}")
        target[:] = decoded
        return out

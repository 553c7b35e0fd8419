"""Codecs of the formats, found by name without an import of zarr; they only decode.

A format registers its codecs as entry points of ``numcodecs.codecs``, and the pipeline finds them there as well, so no
module of this folder names a format. :mod:`virtualstack.codecs.zarr_plugins` shows the same codecs to zarr. In its
``__init__.py``, the folder of a format lists codecs of other packages whose bytes it decodes (``FOREIGN_CODECS``).
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ClassVar

import numcodecs.abc
import numcodecs.registry
import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import BytesDecoder, BytesLike, Codec, CodecError, raw_bytes

_OURS = "virtualstack."


def find_plugin(name: str, /) -> type[Plugin] | None:
    """Return the codec that a format of virtualstack registered under a name; ``None`` if there is none."""
    return _load(name) if name.startswith(_OURS) and name in numcodecs.registry.entries else None


@cache
def _load(name: str) -> type[Plugin]:
    kind: type[Plugin] = numcodecs.registry.entries[name].load()
    return kind


def find_foreign_plugin(name: str, /) -> type[Plugin] | None:
    """Return the codec that decodes the bytes of another package's codec, by its id in numcodecs' registry."""
    return find_plugin(_foreign_codecs().get(name, ""))


@cache
def _foreign_codecs() -> Mapping[str, str]:
    """Return ``FOREIGN_CODECS`` of all folders whose codecs are registered; no codec is imported."""
    modules = {entry.module for name, entry in numcodecs.registry.entries.items() if name.startswith(_OURS)}
    folders = [importlib.import_module(module.rpartition(".")[0]) for module in sorted(modules)]
    return {id_: ours for folder in folders for id_, ours in vars(folder).get("FOREIGN_CODECS", {}).items()}


class Plugin(numcodecs.abc.Codec):  # type: ignore[misc]
    """A codec of a format, as numcodecs has it; in zarr version 2 metadata, its settings are the configuration."""

    codec_id: str
    promises: ClassVar[frozenset[str]] = frozenset()
    """Settings that state a property of chunks and do not change decoding. They hold of chunks that all have them."""
    naming_setting: ClassVar[str | None] = None
    """Setting that names the decoded values, whatever bytes are decoded."""

    def __init__(self, **options: Any) -> None:
        self.codec = Codec.from_config(self.codec_id, **options)  # the decoder is not kept, since it need not pickle

    @classmethod
    def to_numcodecs(cls, codec: Codec, /) -> list[dict[str, Any]]:
        """Return configurations of numcodecs, in encoding order, that decode the same; raise if there are none."""
        return [{"id": codec.name, **codec.options()}]

    @classmethod
    def from_numcodecs(cls, config: Mapping[str, Any], chunks: tuple[int, ...], /) -> Codec | None:
        """Return the codec that decodes the same as a configuration of another package; ``None`` if there is none.

        ``config`` has the ``id`` by which :func:`find_foreign_plugin` found this class. ``chunks`` is the shape of the
        chunks; empty if it is not known.
        """
        return None

    @classmethod
    def foreign_decoder(cls, config: Mapping[str, Any], /) -> BytesDecoder | None:
        """Return the decoder for a configuration of another package, or ``None`` to use the decoder of that package."""
        return None

    @abstractmethod
    def decode_chunk(self, raw: BytesLike, /) -> Any:
        """Decode a chunk of any shape."""

    def get_config(self) -> dict[str, Any]:
        """Return the settings, with the ``id``."""
        return {"id": self.codec_id, **self.codec.options()}

    def encode(self, buf: Any) -> Any:
        """Refuse."""
        raise NotImplementedError(f"'{self.codec_id}' only decodes")

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Return the values, written into ``out`` if it is given."""
        values = self.decode_chunk(raw_bytes(buf))
        if out is None:
            return values
        decoded, target = raw_bytes(values), np.asarray(memoryview(out).cast("B"))
        if target.size != decoded.size:
            raise CodecError(f"the chunk decodes to {decoded.size} bytes; there is room for {target.size}")
        target[:] = decoded
        return out


class ArrayPlugin(Plugin):
    """A codec that decodes a chunk to an array."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.decoder(options)  # raises an error if the options are not valid

    @classmethod
    @abstractmethod
    def decoder(
        cls, options: Mapping[str, Any], shape: tuple[int, ...] | None = None, /
    ) -> Callable[[BytesLike], NDArray[Any]]:
        """Make the decoder of chunks of a shape; by default of any shape."""

    def decode_chunk(self, raw: BytesLike, /) -> NDArray[Any]:
        """Decode a chunk of any shape."""
        return self.decoder(self.codec.options())(raw)


class FilterPlugin(Plugin):
    """A codec that decodes bytes to bytes."""

    @classmethod
    def foreign_decoder(cls, config: Mapping[str, Any], /) -> BytesDecoder | None:
        """Return the decoder of the codec that decodes the same."""
        codec = cls.from_numcodecs(config, ())
        return None if codec is None else cls.decoder(codec.options())

    @classmethod
    @abstractmethod
    def decoder(cls, options: Mapping[str, Any], /) -> BytesDecoder:
        """Make the decoder."""

    @classmethod
    def encoded_size(cls, options: Mapping[str, Any], size: int, /) -> int | None:
        """Return the number of stored bytes for ``size`` decoded bytes; ``None`` if it depends on their values."""
        return None

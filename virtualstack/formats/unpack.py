"""Files that are compressed as a whole, with gzip or bzip2: unpacked in memory that does not depend on the file."""

from __future__ import annotations

from virtualstack.codecs.bounded import INFLATE_ERRORS, bounded_decoder
from virtualstack.codecs.codec import Codec, CodecError
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError
from virtualstack.storage import Source

PACKINGS = {b"\x1f\x8b": "gzip", b"BZh": "numcodecs.bz2"}
"""Name of the codec by the first bytes of a compressed file."""

_DAMAGE: tuple[type[Exception], ...] = (CodecError, *INFLATE_ERRORS, OSError, EOFError)
_MAX_UNPACKED_BYTES = 1 << 27
"""Bytes that a compressed file may have after unpacking; a field of MRMS has up to 100 million."""


def find_packing(source: Source, /) -> Codec | None:
    """Return the codec that a file is compressed with, by its first bytes; ``None`` if there is none."""
    head = source.read(0, min(3, source.size))
    return next((Codec(name) for magic, name in PACKINGS.items() if head.startswith(magic)), None)


def unpack(source: Source, packing: Codec, /) -> bytes:
    """Unpack a whole file.

    Raises
    ------
    MalformedFileError
        The file is damaged, or has too many bytes after unpacking.
    UnsupportedFeatureError
        The file itself has too many bytes.
    """
    url, limit = source.location.url, f"{_MAX_UNPACKED_BYTES >> 20} MiB"
    if source.size > _MAX_UNPACKED_BYTES:
        raise UnsupportedFeatureError(
            f"'{url}' is compressed and has {source.size} bytes. Compressed files may have at most {limit} after "
            "unpacking: unpack it first",
            url=url,
            feature="compressed file",
        )
    data = source.read(0, source.size)
    decoder = bounded_decoder(packing)
    assert decoder is not None  # gzip and bzip2 are known
    try:
        return bytes(decoder(data, None, _MAX_UNPACKED_BYTES))
    except _DAMAGE as error:
        raise MalformedFileError(
            f"'{url}' cannot be unpacked: {error}. Fetch it again. If it is sound and has more than {limit} after "
            "unpacking, unpack it first",
            url=url,
        ) from error

"""The codec ``virtualstack.zip``: a deflated member of a zip archive, with its local header, to its bytes.

The header and the record after the bytes have the checksum, so a chunk is complete by itself.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from typing import Any

from virtualstack.codecs.bounded import INFLATE_ERRORS, new_inflate
from virtualstack.codecs.codec import BytesDecoder, BytesLike, CodecError, check_size, raw_bytes
from virtualstack.codecs.plugins import FilterPlugin

ZIP = "virtualstack.zip"
DESCRIPTOR_BYTES = 16
"""Bytes that may follow those of a member: a signature, the checksum, and sizes."""

# APPNOTE.TXT, 4.3.7: signature, version, flags, method, time, date, CRC-32, two sizes, lengths of name and extra field
_HEADER = struct.Struct("<4s5H3I2H")
_MAGIC, _DESCRIPTOR_MAGIC = b"PK\x03\x04", b"PK\x07\x08"
_DEFLATED, _HAS_DESCRIPTOR = 8, 0x8
_MAX_CHUNK_BYTES = (1 << 31) - 1


def zip_member(options: Mapping[str, Any], /) -> BytesDecoder:
    """Make the decoder; ``skip`` is the number of decoded bytes in front of the values."""
    skip = int(options.get("skip", 0))

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        data = memoryview(raw_bytes(raw))
        if len(data) < _HEADER.size or bytes(data[:4]) != _MAGIC:
            raise CodecError("there is no member of a zip archive: its header is missing")
        _, _, flags, method, _, _, checksum, _, _, n_name, n_extra = _HEADER.unpack(data[: _HEADER.size])
        if method != _DEFLATED:
            raise CodecError(f"the member has compression method {method}, not {_DEFLATED}")
        stream = new_inflate()
        try:
            values = stream.decompress(data[_HEADER.size + n_name + n_extra :], limit + skip + 1)
        except INFLATE_ERRORS as error:
            raise CodecError(f"the deflate stream is damaged: {error}") from error
        check_size("the member", len(values) - skip, size, limit)
        if flags & _HAS_DESCRIPTOR:
            after = bytes(stream.unused_data[:8])
            checksum = int.from_bytes(after[4:] if after.startswith(_DESCRIPTOR_MAGIC) else after[:4], "little")
        if not stream.eof or zlib.crc32(values) != checksum:
            raise CodecError("the member has another checksum than its header says")
        return memoryview(values)[skip:]

    return decode


class ZipMember(FilterPlugin):
    """The codec as numcodecs and the pipeline load it."""

    codec_id = ZIP

    @classmethod
    def decoder(cls, options: Mapping[str, Any], /) -> BytesDecoder:
        """Make the decoder."""
        return zip_member(options)

    def decode_chunk(self, raw: BytesLike, /) -> Any:
        """Return the decoded bytes."""
        return raw_bytes(zip_member(self.codec.options())(raw, None, _MAX_CHUNK_BYTES))

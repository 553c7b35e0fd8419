"""How large an image says that it is, before it is decoded: a damaged tile is no bomb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from struct import unpack_from

from virtualstack.codecs.decoder import CodecError

__all__ = ["image_size", "lerc_size", "png_without_texts"]

_NOT_FRAMES = frozenset({0xC4, 0xC8, 0xCC})
_MAX_SCANS = 100
"""Of a JPEG image: libjpeg goes through all of it for each. Writers make 10 or so."""
_MAX_TILES = 16_384
"""Tiles of all samples: as many as one tile may have samples."""
_MIN_POINTS_PER_TILE = 4096
_MIN_POINTS_PER_PRECINCT = 64
_STYLES = re.compile(rb"\xff[\x52\x53]")
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})


def image_size(name: str, data: bytes, /) -> tuple[int, int, int] | None:
    """Read rows, columns and samples of an image; ``None`` where the format is not looked into.

    Raises
    ------
    CodecError
        There is no such image.
    """
    match name:
        case "jpeg":
            return _jpeg(data)
        case "png":
            return _png(data)
        case "webp":
            return _webp(data)
        case "jpeg2k":
            return _jpeg2000(data)
    return None


def _jpeg(data: bytes) -> tuple[int, int, int]:
    """Find the frame header (ITU T.81, B.2.2), as libjpeg and liblj92 do: these take the last one."""
    found: tuple[int, int, int] | None = None
    at = 0
    while at + 4 <= len(data):
        marker = data[at + 1]
        if data[at] != 0xFF or not marker:  # which libjpeg looks for the next marker behind
            raise CodecError(f"the JPEG stream has no marker at byte {at}")
        if marker == 0xFF:  # fill bytes
            at += 1
            continue
        if marker in _ALONE:
            at += 2
            continue
        if marker == 0xDA:
            break
        if 0xC0 <= marker <= 0xCF and marker not in _NOT_FRAMES:
            if found is not None:
                raise CodecError("the JPEG stream has a second frame header")
            if at + 10 > len(data):
                break
            rows, columns, samples = unpack_from(">HHB", data, at + 5)
            found = rows, columns, samples
        at += 2 + int(unpack_from(">H", data, at + 2)[0])
    if found is None:
        raise CodecError("the JPEG stream has no frame header: it is cut short or damaged")
    if (n_scans := data.count(b"\xff\xda", at)) > _MAX_SCANS:
        raise CodecError(f"the JPEG stream has {n_scans} scans; more than {_MAX_SCANS} are not decoded")
    return found


def _png(data: bytes) -> tuple[int, int, int]:
    if len(data) < 26 or data[12:16] != b"IHDR":
        raise CodecError("there is no PNG image: its header is missing")
    columns, rows = unpack_from(">II", data, 16)
    return rows, columns, 4


_TEXTS = frozenset({b"iCCP", b"iTXt", b"zTXt"})


def png_without_texts(data: bytes, /) -> bytes:
    """Leave out the chunks of a PNG image (ISO 15948, 5.3) that are compressed and no samples.

    libspng decompresses all of them, whatever they grow to.
    """
    parts, begin, at = [], 0, 8
    while at + 12 <= len(data):
        end = at + 12 + int(unpack_from(">I", data, at)[0])
        if data[at + 4 : at + 8] in _TEXTS:
            parts.append(data[begin:at])
            begin = end
        at = end
    return b"".join((*parts, data[begin:]))


def _webp(data: bytes) -> tuple[int, int, int]:
    """Read the first chunk of the RIFF file (RFC 9649, 2.5 to 2.7)."""
    if len(data) < 30 or data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        raise CodecError("there is no WebP image: its header is missing")
    kind = data[12:16]
    if kind == b"VP8 ":
        columns, rows = unpack_from("<HH", data, 26)
        return rows & 0x3FFF, columns & 0x3FFF, 4
    if kind == b"VP8L":
        (bits,) = unpack_from("<I", data, 21)
        return ((bits >> 14) & 0x3FFF) + 1, (bits & 0x3FFF) + 1, 4
    if data[20] & 2:
        raise CodecError("the WebP image is animated, with a number of frames that its header does not say")
    columns = int.from_bytes(data[24:27], "little") + 1
    return int.from_bytes(data[27:30], "little") + 1, columns, 4


def _jpeg2000(data: bytes) -> tuple[int, int, int]:
    """Find the SIZ marker (ITU T.800, A.5.1), in a codestream or in the boxes of a file."""
    at = 0
    while data[at : at + 4] != b"\xff\x4f\xff\x51":  # else boxes, ITU T.800, I.4
        length, kind = unpack_from(">I4s", data, at) if at + 8 <= len(data) else (0, b"")
        header = 8
        if length == 1 and at + 16 <= len(data):
            (length,), header = unpack_from(">Q", data, at + 8), 16
        if kind == b"jp2c":
            length = header
        if length < header:
            raise CodecError("there is no JPEG 2000 codestream: its header is missing")
        at += length
    if at + 42 > len(data):
        raise CodecError("the JPEG 2000 codestream ends in its header")
    columns, rows, left, top, width, height, tiles_left, tiles_top = unpack_from(">8I", data, at + 8)
    (samples,) = unpack_from(">H", data, at + 40)
    n_tiles = -((columns - tiles_left) // -max(width, 1)) * -((rows - tiles_top) // -max(height, 1))
    size = (rows - top) * (columns - left) * samples
    if n_tiles * samples > _MAX_TILES and size < n_tiles * samples * _MIN_POINTS_PER_TILE:
        raise CodecError(
            f"the JPEG 2000 codestream has {n_tiles} tiles of a few points in {samples} samples, which take kilobytes "
            "each"
        )
    for levels, exponents in _precincts(data[at:], samples):
        n = sum(
            _pieces(rows - top, height, levels - i, exponent >> 4)
            * _pieces(columns - left, width, levels - i, exponent & 15)
            for i, exponent in enumerate(exponents)
        )
        if n * samples > _MAX_TILES and size < n * samples * _MIN_POINTS_PER_PRECINCT:
            raise CodecError(f"the JPEG 2000 codestream has {n} precincts of a few points, which take kilobytes each")
    return rows - top, columns - left, samples


def _precincts(stream: bytes, samples: int) -> Iterator[tuple[int, bytes]]:
    """Give levels and exponents of precincts of all coding styles (ITU T.800, A.6.1 and A.6.2), those of tiles too.

    What only looks like one in the data of a tile is given, too; that is one of 2^40 bytes or so.
    """
    for found in _STYLES.finditer(stream):
        at = found.end()
        is_default = stream[at - 1] == 0x52
        flags = at + (2 if is_default else 3 if samples < 257 else 4)
        levels = flags + (5 if is_default else 1)
        if levels >= len(stream) or not stream[flags] & 1:
            continue
        n = stream[levels] + 1
        (length,) = unpack_from(">H", stream, at)
        if length == levels + 5 + n - at:
            yield n - 1, stream[levels + 5 : levels + 5 + n]


def _pieces(length: int, tile: int, level: int, exponent: int) -> int:
    """Count the pieces of 2^exponent that an axis has at a level, where each tile begins a new one."""
    n_tiles = -(length // -max(tile, 1))
    return n_tiles + (length >> min(level, 32) >> exponent)


def lerc_size(head: bytes, /) -> tuple[int, int, int]:
    """Read rows, columns and samples that stand together of a LERC frame: of its first band.

    Raises
    ------
    CodecError
        There is no such frame.
    """
    depth = 1
    if head.startswith(b"Lerc2 ") and len(head) >= 26:
        (version,) = unpack_from("<i", head, 6)
        rows, columns, depth = unpack_from("<iii", head, 14 if version >= 3 else 10)
        depth = depth if version >= 4 else 1
    elif head.startswith(b"CntZImage ") and len(head) >= 26:
        rows, columns = unpack_from("<ii", head, 18)
    else:
        raise CodecError("there is no LERC frame: its header is missing")
    if rows < 0 or columns < 0 or depth < 1:
        raise CodecError(f"the LERC frame says that it has {rows} x {columns} x {depth} samples")
    return rows, columns, depth

"""The filter blosc2 (32026): a contiguous frame of one chunk, of plain bytes or of n-dimensional blocks (b2nd)."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.decoder import Bytes, BytesDecoder, CodecError, check_size, raw_bytes
from virtualstack.codecs.hdf5.library import check_installed, imagecodecs

__all__ = ["BLOSC2", "blosc2"]

BLOSC2 = "virtualstack.blosc2"
_FIXED = struct.Struct(">2x8sxIxQ5xxqxqxi")
"""c-blosc2 README_CFRAME_FORMAT: magic, sizes of header and frame, uncompressed and compressed size, type size."""
_SKIP = {0xA4: 5, 0xC2: 1, 0xC3: 1, 0xCF: 9, 0xD1: 3, 0xD2: 5, 0xD3: 9, 0xD8: 18}
"""Bytes of the msgpack values in the header of a frame."""
_CHUNK = struct.Struct("<4xiii")
"""c-blosc2 README_CHUNK_FORMAT, behind four bytes of versions and flags: nbytes, blocksize, cbytes."""
_ZEROS = 0x81
"""Last byte of an offset in the index of chunks that stands for a chunk of zeros."""
_MAX_PADDING = 16
"""Blocks of at least 2 in each of 8 axes pad a chunk to (4/3)**8 times its size at most."""


def blosc2(options: Mapping[str, Any], /) -> BytesDecoder:
    """Give the decoder."""
    check_installed(BLOSC2)

    def decode(raw: Bytes, size: int | None, limit: int, /) -> Bytes:
        frame = raw_bytes(raw)
        if frame.size < _FIXED.size or frame[2:10].tobytes() != b"b2frame\0":
            raise CodecError("there is no blosc2 frame: the magic is missing")
        _, n_header, n_frame, n_held, n_chunks, itemsize = _FIXED.unpack_from(frame)
        if itemsize < 1 or n_held < 0:
            raise CodecError(f"the blosc2 frame says that it holds {n_held} bytes of elements of {itemsize} bytes")
        if n_frame > frame.size or not _FIXED.size <= n_header <= n_frame or not 0 <= n_chunks <= n_frame - n_header:
            raise CodecError(f"the blosc2 frame says that it is {n_frame} bytes long; there are {frame.size}")
        chunks = frame[n_header:n_frame]
        shapes = _b2nd(frame[:n_header].tobytes())
        if shapes is None:
            found = _held(chunks) if n_chunks else n_held
            check_size("the blosc2 frame", found, size, limit)
            return _chunk(chunks, n_chunks, found)
        shape, block = shapes
        check_size("the blosc2 frame", math.prod(shape) * itemsize, size, limit)
        grid = tuple(-(-n // b) for n, b in zip(shape, block, strict=True))
        padded = math.prod(n * b for n, b in zip(grid, block, strict=True)) * itemsize
        check_size("the blosc2 frame, with padding,", padded, None, _MAX_PADDING * limit)
        data = _chunk(chunks, n_chunks, padded)
        return _join_blocks(data.view(f"V{itemsize}"), shape, block, grid)

    return decode


def _chunk(chunks: NDArray[np.uint8], n_chunks: int, size: int) -> NDArray[np.uint8]:
    """Decode the one chunk of a frame, which may be a special value in the index of chunks."""
    if n_chunks:
        return _decode(chunks[:n_chunks], size)
    special = int(_decode(chunks, 8)[7])
    if special != _ZEROS:
        raise CodecError(f"the blosc2 frame has a chunk of special values {special:#x}, which is not known")
    return np.zeros(size, np.uint8)


def _held(chunk: NDArray[np.uint8]) -> int:
    if chunk.size < _CHUNK.size:
        raise CodecError("the blosc2 frame ends in the header of its chunk")
    stored_bytes: int = _CHUNK.unpack_from(chunk)[0]
    return stored_bytes


def _decode(chunk: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    if _held(chunk) != size:
        raise CodecError(f"the blosc2 chunk says that it holds {_held(chunk)} bytes; {size} are expected")
    stored = _CHUNK.unpack_from(chunk)[2]
    if not _CHUNK.size <= stored <= chunk.size:
        raise CodecError(f"the blosc2 chunk says that it is {stored} bytes long; there are {chunk.size}")
    out = np.empty(size, np.uint8)
    if size and len(imagecodecs().blosc2_decode(chunk[:stored], numthreads=1, out=out)) != size:
        raise CodecError(f"the blosc2 chunk decodes to less than {size} bytes")
    return out


def _b2nd(header: bytes) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Read shapes of chunk and block; ``None`` where the frame holds plain bytes.

    Raises
    ------
    CodecError
        The metalayer is damaged, or tells of several chunks.
    """
    try:
        content = _metalayer(header)
        if content is None:
            return None
        shape, chunk, block = _shapes(content)
    except (IndexError, KeyError, struct.error) as error:
        raise CodecError("the header of the blosc2 frame is damaged") from error
    if shape != chunk or not all(1 <= b <= n for n, b in zip(shape, block, strict=True)):
        raise CodecError(
            f"the blosc2 frame holds {shape} in chunks of {chunk} and blocks of {block}; one chunk is expected"
        )
    return shape, block


def _metalayer(header: bytes) -> bytes | None:
    """Find the content of the metalayer ``b2nd``: map of names and offsets, then the contents."""
    at = 10  # behind the array's own byte and the magic, a string of 8
    while header[at] != 0x93:
        at += _SKIP[header[at]]
    n_names = struct.unpack_from(">H", header, at + 5)[0]
    at += 7
    for _ in range(n_names):
        n = header[at] & 0x1F
        name, start = header[at + 1 : at + 1 + n], struct.unpack_from(">xI", header, at + 1 + n)[0]
        if name == b"b2nd":
            length = struct.unpack_from(">xI", header, start)[0]
            return header[start + 5 : start + 5 + length]
        at += 6 + n
    return None


def _shapes(content: bytes) -> list[tuple[int, ...]]:
    """Read version, number of axes, then lengths of array (8 bytes each), chunk and block (4 bytes each)."""
    n_dims, at = content[2], 3
    shapes = []
    for form, width in (("q", 9), ("i", 5), ("i", 5)):
        n = content[at] & 0x0F
        if n != n_dims:
            raise IndexError(n)
        shapes.append(tuple(struct.unpack_from(f">x{form}", content, at + 1 + i * width)[0] for i in range(n)))
        at += 1 + n * width
    return shapes


def _join_blocks(
    data: NDArray[np.void], shape: tuple[int, ...], block: tuple[int, ...], grid: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Put blocks, each in C order and one behind the other, in their places."""
    n_dims = len(shape)
    blocks = data.reshape(*grid, *block)
    order = [axis for i in range(n_dims) for axis in (i, n_dims + i)]
    whole = blocks.transpose(order).reshape([n * b for n, b in zip(grid, block, strict=True)])
    return raw_bytes(whole[tuple(slice(n) for n in shape)])

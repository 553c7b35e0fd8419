"""Compressors of HDF5: LZF, szip, and lz4, bitshuffle and blosc2, which cut a chunk into blocks."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numcodecs.lz4 import decompress
from numpy.typing import NDArray

from virtualstack.codecs.aec import sample_bytes, szip_settings
from virtualstack.codecs.codec import BytesDecoder, BytesLike, CodecError, check_size, raw_bytes
from virtualstack.errors import MissingDependencyError
from virtualstack.printable import counted

_PACKAGE, _EXTRA = "imagecodecs", "hdf5"


def check_installed(codec: str, /) -> None:
    """Raise an error if the package is not installed, without importing it."""
    if importlib.util.find_spec(_PACKAGE) is None:
        raise MissingDependencyError(f"codec '{codec}'", extra=_EXTRA)


@functools.cache
def imagecodecs() -> Any:
    """Import imagecodecs when the first chunk is decoded."""
    return importlib.import_module(_PACKAGE)


LZF, SZIP = "virtualstack.lzf", "virtualstack.szip"
_LZF_RATIO = 88
"""Maximum bytes that one stored byte decodes to: 264 from a back reference of 3."""


def lzf(options: Mapping[str, Any], /) -> BytesDecoder:
    """Return the decoder of filter 32000."""
    check_installed(LZF)

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        source = raw_bytes(raw)
        if not source.size:
            raise CodecError("there is no LZF stream: the chunk is empty")
        room = min(limit, _LZF_RATIO * (source.size + 1)) if size is None else size
        decoded: BytesLike = imagecodecs().lzf_decode(source, header=False, out=np.empty(max(room, 1), np.uint8))
        if size is not None and len(decoded) != size:
            raise CodecError(f"the LZF stream holds {len(decoded)} bytes; {size} are expected")
        return decoded

    return decode


def szip(options: Mapping[str, Any], /) -> BytesDecoder:
    """Return the decoder of filter 4: the size in 4 bytes, least significant first, and a stream of libaec."""
    settings = szip_settings(options)
    check_installed(SZIP)

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        source = raw_bytes(raw)
        if source.size < 4:
            raise CodecError(f"an szip chunk begins with its size in 4 bytes; there are {source.size} bytes")
        found = int.from_bytes(source[:4].tobytes(), "little")
        check_size("the szip chunk", found, size, limit)
        if not found:
            return b""
        return _unpacked_lines(source[4:], settings, found)

    return decode


def _unpacked_lines(source: BytesLike, settings: Mapping[str, int], size: int) -> BytesLike:
    """Decode a stream of szip, and notice if it ends early.

    Lines are padded to whole blocks, and values of 32 and 64 bits are stored as planes of bytes. If libaec undoes both,
    it does not say how much the stream filled. So it is told of padded lines of single bytes here.
    """
    mask, block, bits, pixels = settings.values()
    n_planes = bits // 8 if bits in (32, 64) else 1
    bits = 8 if n_planes > 1 else bits
    width = sample_bytes(bits)
    if size % (n_planes * width):
        raise CodecError(f"the szip chunk has {size} bytes, which are not whole values of {n_planes * width} bytes")
    padded = -(-pixels // block) * block
    row, line = pixels * width, padded * width
    n_rows = -(-size // row)
    out = np.empty(n_rows * line, np.uint8)
    decoded = imagecodecs().szip_decode(source, mask, block, bits, padded, out=out)
    if len(decoded) < size + (n_rows - 1) * (line - row):
        raise CodecError(f"the szip stream ends before the {size} bytes that its header announces")
    rows = out.reshape(n_rows, line)[:, :row]
    return np.ascontiguousarray(rows.reshape(-1)[:size].reshape(n_planes, -1).T).reshape(-1)


BITSHUFFLE, LZ4 = "virtualstack.bitshuffle", "virtualstack.lz4"
_HEADER = struct.Struct(">QI")
"""Header of both filters: bytes of the decoded chunk, bytes of a decoded block."""
_GROUP_ELEMENTS = 8
"""Elements whose bits bitshuffle transposes together. Remaining elements at the end are stored unchanged."""
_TARGET_BYTES, _MIN_BLOCK_ELEMENTS = 8192, 128
"""Block size of bitshuffle if the file does not name one: target in bytes, and minimum in elements."""
_MAX_ELEMENT_BYTES = 1 << 20
"""Maximum bytes of an element: a file that claims more is refused."""

type _Undo = Callable[[memoryview, int, int, memoryview], None]
"""Function that decodes the block between two positions; the first 4 bytes of the block are its size."""


def lz4(options: Mapping[str, Any], /) -> BytesDecoder:
    """Return the decoder of filter 32004; a block that did not shrink is stored uncompressed."""

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        out, work, n_bytes = _open(raw, "lz4", size, limit)
        _decode_blocks(work, memoryview(out), n_bytes, _copy_or_lz4)
        return out

    return decode


def bitshuffle_settings(options: Mapping[str, Any], /) -> tuple[int, int, str]:
    """Return bytes of an element, elements of a block and the compressor."""
    width, block, compressor = int(options["elementsize"]), int(options["blocksize"]), options["compressor"]
    if compressor not in ("none", *_COMPRESSORS):
        raise ValueError(f"has the compressor {compressor!r}, which is not known")
    if not 1 <= width <= _MAX_ELEMENT_BYTES or not 0 <= block < 1 << 32 or block % _GROUP_ELEMENTS:
        raise ValueError(f"has elements of {width} bytes in blocks of {block}")
    return width, block, compressor


def bitshuffle(options: Mapping[str, Any], /) -> BytesDecoder:
    """Return the decoder of filter 32008."""
    width, block, compressor = bitshuffle_settings(options)
    check_installed(BITSHUFFLE)
    if compressor == "none":
        return lambda raw, size, limit: _unshuffle(raw_bytes(raw), width, block or _own_block(width))
    undo = _COMPRESSORS[compressor]

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
        out, work, n_bytes = _open(raw, "bitshuffle", size, limit)
        if out.size % width or n_bytes % (_GROUP_ELEMENTS * width) or not n_bytes:
            raise CodecError(
                f"the bitshuffle chunk says that it holds {out.size} bytes in blocks of {n_bytes}. Elements have "
                f"{width} bytes, and blocks a multiple of {_GROUP_ELEMENTS} elements"
            )
        whole = out.size - out.size % (_GROUP_ELEMENTS * width)
        at = _decode_blocks(work, memoryview(out)[:whole], n_bytes, undo)
        rest = out.size - whole
        if len(work) - at < rest:
            raise CodecError("the bitshuffle chunk is cut short")
        out[whole:] = np.frombuffer(work[at : at + rest], np.uint8)
        return _unshuffle(out, width, n_bytes // width)

    return decode


def _open(raw: BytesLike, what: str, size: int | None, limit: int) -> tuple[NDArray[np.uint8], memoryview, int]:
    """Return memory for the decoded chunk, the stored bytes in writable memory, and the bytes of a block."""
    if len(raw) < _HEADER.size:
        raise CodecError(f"the {what} chunk has {len(raw)} bytes; its header alone has {_HEADER.size}")
    work = memoryview(bytearray(raw))
    found, block = _HEADER.unpack_from(work)
    check_size(f"the {what} chunk", found, size, limit)
    if found and not block:
        raise CodecError(f"the {what} chunk says that its blocks have no bytes")
    return np.empty(found, np.uint8), work, block


def _decode_blocks(work: memoryview, out: memoryview, n_bytes: int, undo: _Undo) -> int:
    """Decode blocks of ``n_bytes`` each (the last one may be shorter), and return the position after them."""
    at = _HEADER.size
    for start in range(0, len(out), max(n_bytes, 1)):
        end = at + 4 + int.from_bytes(work[at : at + 4], "big")
        if len(work) < end:
            raise CodecError("a block reaches past the end of the chunk, which is cut short or damaged")
        undo(work, at, end, out[start : start + n_bytes])
        at = end
    return at


def _copy_or_lz4(work: memoryview, start: int, end: int, out: memoryview) -> None:
    if end - start - 4 == len(out):
        out[:] = work[start + 4 : end]
        return
    # numcodecs expects the decoded size in front of the data, where the stored size is
    work[start : start + 4] = len(out).to_bytes(4, "little")
    decompress(work[start:end], out)


def _lz4_block(work: memoryview, start: int, end: int, out: memoryview) -> None:
    _check_block(imagecodecs().lz4_decode(work[start + 4 : end], out=out), out)


def _zstd_block(work: memoryview, start: int, end: int, out: memoryview) -> None:
    _check_block(imagecodecs().zstd_decode(work[start + 4 : end], out=out), out)


def _check_block(decoded: Any, out: memoryview) -> None:
    if len(decoded) != len(out):
        raise CodecError(f"a block holds {counted(len(decoded), 'byte')}; {counted(len(out), 'byte')} expected")


_COMPRESSORS: Mapping[str, _Undo] = {"lz4": _lz4_block, "zstd": _zstd_block}


def _own_block(width: int) -> int:
    """Return the elements of a block if the file does not name them: 8 KiB in multiples of 8."""
    return max(_TARGET_BYTES // width // _GROUP_ELEMENTS * _GROUP_ELEMENTS, _MIN_BLOCK_ELEMENTS)


def _unshuffle(data: NDArray[np.uint8], width: int, block: int) -> BytesLike:
    if data.size % width:
        raise CodecError(f"the bitshuffle chunk has {data.size} bytes, which are not whole elements of {width} bytes")
    if not data.size:
        return data
    out = np.empty(data.size, np.uint8)
    imagecodecs().bitshuffle_decode(memoryview(data), itemsize=width, blocksize=block, out=memoryview(out))
    return out


BLOSC2 = "virtualstack.blosc2"
_FIXED = struct.Struct(">2x8sxIxQ5xxqxqxi")
"""c-blosc2 README_CFRAME_FORMAT: magic, sizes of header and frame, uncompressed and compressed size, type size."""
_SKIP = {0xA4: 5, 0xC2: 1, 0xC3: 1, 0xCF: 9, 0xD1: 3, 0xD2: 5, 0xD3: 9, 0xD8: 18}
"""Bytes of the msgpack values in the header of a frame."""
_CHUNK = struct.Struct("<4xiii")
"""c-blosc2 README_CHUNK_FORMAT, after four bytes of versions and flags: nbytes, blocksize, cbytes."""
_ZEROS = 0x81
"""Last byte of an offset in the index of chunks if the chunk consists of zeros."""
_MAX_PADDING_RATIO = 16
"""Blocks of at least 2 in each of 8 axes pad a chunk to (4/3)**8 times its size at most."""


def blosc2(options: Mapping[str, Any], /) -> BytesDecoder:
    """Return the decoder."""
    check_installed(BLOSC2)

    def decode(raw: BytesLike, size: int | None, limit: int, /) -> BytesLike:
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
        check_size("the blosc2 frame, with padding,", padded, None, _MAX_PADDING_RATIO * limit)
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
    """Read shapes of chunk and block; return ``None`` if the frame holds plain bytes."""
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
    at = 10  # after the array's own byte and the magic, a string of 8
    while header[at] != 0x93:
        at += _SKIP[header[at]]
    n_names = struct.unpack_from(">H", header, at + 5)[0]
    at += 7
    for _ in range(n_names):
        n = header[at] & 0x1F
        name, start = header[at + 1 : at + 1 + n], struct.unpack_from(">xI", header, at + 1 + n)[0]
        if name == b"b2nd":
            return header[start + 5 :]
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
    """Put consecutive blocks, each in C order, at their positions in the chunk."""
    n_dims = len(shape)
    blocks = data.reshape(*grid, *block)
    order = [axis for i in range(n_dims) for axis in (i, n_dims + i)]
    whole = blocks.transpose(order).reshape([n * b for n, b in zip(grid, block, strict=True)])
    return raw_bytes(whole[tuple(slice(n) for n in shape)])

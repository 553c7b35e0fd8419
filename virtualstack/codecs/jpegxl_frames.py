"""How many samples the frames of a JPEG XL image have: libjxl decodes each frame in full, even if it is not visible.

Neither libjxl nor imagecodecs limits frames, so the headers are parsed here. The array to decode into bounds only the
image itself: an image of 64 x 64 pixels from an untrusted source may have hidden frames of 2^30 x 2^30.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import error, unpack_from

from virtualstack.codecs.codec import CodecError

__all__ = ["check_frames"]

_FREE_SAMPLES = 1 << 20
"""Samples of small frames, such as patches, that any image may have in addition to its own."""
_SAMPLES_PER_BYTE = 8
"""Samples of all frames for each byte, or sample, that is expected."""
_SIZES = ((1, 9), (1, 13), (1, 18), (1, 30))
_ENUM = ((0, 0), (1, 0), (2, 4), (18, 6))
_CROPS = ((0, 8), (256, 11), (2304, 14), (18688, 30))
_NAMES = ((0, 0), (0, 4), (16, 5), (48, 10))
_SECTIONS = ((0, 10), (1024, 14), (17408, 22), (4211712, 30))
_REGULAR, _DC, _REFERENCE = 0, 1, 2
_RATIOS = ((1, 1), (12, 10), (4, 3), (3, 2), (16, 9), (5, 4), (2, 1))


class _Bits:
    """Reads fields (ISO 18181-1, B.2), the least bits first."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, 8 * at

    def u(self, n: int, /) -> int:
        begin, shift = divmod(self.at, 8)
        self.at += n
        if self.at > 8 * len(self.data):
            raise CodecError("the JPEG XL image ends in a header")
        return int.from_bytes(self.data[begin : begin + 6], "little") >> shift & ((1 << n) - 1)

    def u32(self, *kinds: tuple[int, int]) -> int:
        least, n = kinds[self.u(2)]
        return least + self.u(n)

    def skip_u32(self, *widths: int) -> None:
        self.skip(widths[self.u(2)])

    def u64(self) -> int:
        match self.u(2):
            case 0:
                return 0
            case 1:
                return 1 + self.u(4)
            case 2:
                return 17 + self.u(8)
        raise _other("extensions")

    def skip(self, n: int, /) -> None:
        self.at += n

    def align(self) -> None:
        self.at += -self.at % 8


def _other(what: str) -> CodecError:
    return CodecError(f"the JPEG XL image has {what}, after which its frames cannot be found, so it is not decoded")


@dataclass(slots=True)
class _Image:
    """Fields of the image header that the headers of frames depend on."""

    rows: int
    columns: int
    extra: int = 0
    is_xyb: bool = True
    is_gray: bool = False
    is_animated: bool = False
    has_timecodes: bool = False


def check_frames(data: bytes, n: int, /) -> None:
    """Check that the frames of an image do not have many more samples than expected.

    Parameters
    ----------
    data
        The image: a codestream, or boxes.
    n
        Number of bytes, or samples, that are expected.

    Raises
    ------
    CodecError
        The frames have more samples, the data is not an image, or the image has parts whose end only a decoder can
        find.
    """
    bits = _Bits(_codestream(data), 2)
    image = _image(bits)
    left = _SAMPLES_PER_BYTE * n + _FREE_SAMPLES
    is_last = False
    while not is_last:
        bits.align()
        is_last, size, left = _frame(bits, image, left)
        bits.skip(8 * size)


def _codestream(data: bytes) -> bytes:
    """Join the parts of a codestream that are stored in boxes (ISO 18181-2)."""
    if data.startswith(b"\xff\x0a"):
        return data
    parts, at = [], 0
    try:
        while at + 8 <= len(data):
            length, kind = unpack_from(">I4s", data, at)
            header = 8
            if length == 1:
                (length,), header = unpack_from(">Q", data, at + 8), 16
            end = at + length if length else len(data)
            if end < at + header:
                break
            if kind in (b"jxlc", b"jxlp"):
                parts.append(data[at + header + (4 if kind == b"jxlp" else 0) : end])
            at = end
    except error:
        parts = []
    found = b"".join(parts)
    if not found.startswith(b"\xff\x0a"):
        raise CodecError("there is no JPEG XL image: its codestream is missing")
    return found


def _size(bits: _Bits) -> tuple[int, int]:
    is_small = bits.u(1)
    rows = 8 * (bits.u(5) + 1) if is_small else bits.u32(*_SIZES)
    if ratio := bits.u(3):
        over, under = _RATIOS[ratio - 1]
        return rows, rows * over // under
    return rows, 8 * (bits.u(5) + 1) if is_small else bits.u32(*_SIZES)


def _image(bits: _Bits) -> _Image:
    """Read the headers of the image (ISO 18181-1, D)."""
    image = _Image(*_size(bits))
    if not bits.u(1):
        _metadata(bits, image)
    if not bits.u(1):
        raise _other("transforms of its own")
    return image


def _metadata(bits: _Bits, image: _Image) -> None:
    has_more = bits.u(1)
    if has_more:
        bits.u(3)  # orientation
        if bits.u(1):
            _size(bits)
        if bits.u(1):
            raise _other("a preview")
        if bits.u(1):
            image.is_animated = True
            bits.skip_u32(0, 0, 10, 30)
            bits.skip_u32(0, 0, 8, 10)
            bits.skip_u32(0, 3, 16, 32)
            image.has_timecodes = bool(bits.u(1))
    _depth(bits)
    bits.u(1)
    image.extra = bits.u32((0, 0), (1, 0), (2, 4), (1, 12))
    for _ in range(image.extra):
        _extra_channel(bits)
    image.is_xyb = bool(bits.u(1))
    if not bits.u(1):
        _colors(bits, image)
    if has_more and not bits.u(1):
        bits.u(32)
        bits.u(17)
    if bits.u64():
        raise _other("extensions")


def _depth(bits: _Bits) -> None:
    is_float = bits.u(1)
    bits.skip_u32(0, 0, 0, 6)
    if is_float:
        bits.u(4)


def _extra_channel(bits: _Bits) -> None:
    if bits.u(1):
        return
    kind = bits.u32(*_ENUM)
    _depth(bits)
    bits.skip_u32(0, 0, 0, 3)
    bits.skip(8 * bits.u32(*_NAMES))
    if kind == 0:
        bits.u(1)
    elif kind == 2:
        bits.skip(64)
    elif kind == 5:
        bits.skip_u32(0, 2, 4, 8)


def _colors(bits: _Bits, image: _Image) -> None:
    if bits.u(1):
        raise _other("an ICC profile")
    space = bits.u32(*_ENUM)
    image.is_gray = space == 1
    if space != 2:
        if bits.u32(*_ENUM) == 2:
            _points(bits, 1)
        if space != 1 and bits.u32(*_ENUM) == 2:
            _points(bits, 3)
        if bits.u(1):
            bits.u(24)
        else:
            bits.u32(*_ENUM)
    bits.u32(*_ENUM)


def _points(bits: _Bits, n: int) -> None:
    for _ in range(2 * n):
        bits.skip_u32(19, 19, 20, 21)


def _frame(bits: _Bits, image: _Image, left: int) -> tuple[bool, int, int]:
    """Read a frame's header (ISO 18181-1, F); return whether it is the last, its bytes of data, and samples left."""
    rows, columns, kind, upsampling, shift, passes, is_last = image.rows, image.columns, _REGULAR, 1, 1, 1, True
    is_default = bits.u(1)
    if not is_default:
        kind, is_modular, flags = bits.u(2), bool(bits.u(1)), bits.u64()
        has_dc = flags & 32
        if not image.is_xyb and bits.u(1) and not has_dc:
            bits.u(6)
        if not has_dc:
            upsampling = 1 << bits.u(2)
            bits.skip(2 * image.extra)
        if is_modular:
            shift = bits.u(2)
        elif image.is_xyb:
            bits.u(6)
        if kind != _REFERENCE:
            passes = _passes(bits)
        is_partial = False
        if kind == _DC:
            level = 1 + bits.u(2)
            rows, columns = -(rows // -(1 << 3 * level)), -(columns // -(1 << 3 * level))
        elif bits.u(1):
            top = begin = 0
            if kind != _REFERENCE:
                begin, top = _signed(bits.u32(*_CROPS)), _signed(bits.u32(*_CROPS))
            columns, rows = bits.u32(*_CROPS), bits.u32(*_CROPS)
            is_partial = max(begin, top) > 0 or begin + columns < image.columns or top + rows < image.rows
        is_last = _blending(bits, image, kind, is_partial=is_partial)
        bits.skip(8 * bits.u32(*_NAMES))
        _filters(bits, is_modular=is_modular)
        if bits.u64():
            raise _other("extensions")
    channels = (1 if image.is_gray and not image.is_xyb else 3) + image.extra
    left -= max(rows * columns, image.rows * image.columns) * channels
    if left < 0:
        raise CodecError(
            "the JPEG XL image has far more samples in its frames than expected, up to a frame of "
            f"{rows} x {columns} x {channels} samples"
        )
    if is_last:
        return True, 0, left
    side = 128 << shift
    n_rows, n_columns = (-(-(length // -upsampling) // -side) for length in (rows, columns))
    n_groups = n_rows * n_columns
    n = 2 + -(n_rows // -8) * -(n_columns // -8) + n_groups * passes
    if bits.u(1):
        raise _other("parts in another order")
    bits.align()
    size = sum(bits.u32(*_SECTIONS) for _ in range(1 if n_groups == passes == 1 else n))
    bits.align()
    return False, size, left


def _signed(n: int) -> int:
    return -(n + 1) // 2 if n & 1 else n // 2


def _passes(bits: _Bits) -> int:
    passes = bits.u32((1, 0), (2, 0), (3, 0), (4, 3))
    if passes > 1:
        n = bits.u32((0, 0), (1, 0), (2, 0), (3, 1))
        bits.skip(2 * (passes - 1) + 2 * n)
        for _ in range(n):
            bits.skip_u32(0, 0, 0, 3)
    return passes


def _blending(bits: _Bits, image: _Image, kind: int, *, is_partial: bool) -> bool:
    """Read how a frame is blended with earlier frames; return whether it is the last."""
    is_last, duration, mode = False, 0, 0
    if kind not in (_DC, _REFERENCE):
        for i in range(1 + image.extra):
            found = bits.u32((0, 0), (1, 0), (2, 0), (3, 2))
            mode = found if i == 0 else mode
            with_alpha = image.extra and found in (2, 3)
            if with_alpha:
                bits.skip_u32(0, 0, 0, 3)
            if with_alpha or found == 4:
                bits.u(1)
            if found or is_partial:
                bits.u(2)
        if image.is_animated:
            duration = bits.u32((0, 0), (1, 0), (0, 8), (0, 32))
            if image.has_timecodes:
                bits.u(32)
        is_last = bool(bits.u(1))
    if kind != _DC:
        reference = 0 if is_last else bits.u(2)
        is_kept = not is_last and (not duration or reference)
        if kind == _REFERENCE or (is_kept and not mode and not is_partial):
            bits.u(1)
    return is_last


def _filters(bits: _Bits, *, is_modular: bool) -> None:
    if bits.u(1):
        return
    if bits.u(1) and bits.u(1):
        bits.skip(6 * 16)
    if bits.u(2):
        if not is_modular and bits.u(1):
            bits.skip(8 * 16)
        if bits.u(1):
            bits.skip(5 * 16)
        if bits.u(1):
            bits.skip(3 * 16 + (0 if is_modular else 16))
        if is_modular:
            bits.skip(16)
    if bits.u64():
        raise _other("extensions")

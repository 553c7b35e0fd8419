"""Frames of JPEG XL: their samples are counted exactly, after any headers (ISO 18181-1)."""

import itertools

import numpy as np
import pytest

from virtualstack.codecs.codec import CodecError
from virtualstack.codecs.jpegxl_frames import check_frames

imagecodecs = pytest.importorskip("imagecodecs")

FREE_SAMPLES, SAMPLES_PER_BYTE = 1 << 20, 8


def check_samples(raw, n_samples):
    """The frames are accepted for as many expected samples as this needs, and refused for one less."""
    least = -((n_samples - FREE_SAMPLES) // -SAMPLES_PER_BYTE)
    check_frames(raw, least)
    with pytest.raises(CodecError, match="far more samples in its frames than expected"):
        check_frames(raw, least - 1)


@pytest.mark.parametrize(
    ("rows", "columns"),
    [
        *[(1536, 1536), (1280, 1536), (1200, 1600), (1200, 1800), (1080, 1920), (1200, 1500), (1000, 2000)],
        *[(1200, 1000), (512, 4099), (4099, 512), (513, 4100), (8192, 600), (8193, 600), (600, 40000)],
    ],
)
def test_images_of_libjxl_have_as_many_samples_as_they_have(rows, columns):
    """Sizes are stored as one of seven ratios, or in 9, 13, 18 or 30 bits."""
    raw = imagecodecs.jpegxl_encode(np.zeros((rows, columns), "u1"), effort=1, lossless=True)
    check_samples(raw, rows * columns)
    check_samples(
        imagecodecs.jpegxl_encode(np.zeros((rows, columns), "u1"), effort=1, usecontainer=True), rows * columns
    )


@pytest.mark.parametrize("shape", [(1000, 1100, 3), (1000, 1100, 4), (3, 1000, 1100)])
def test_channels_and_frames_count(shape):
    raw = imagecodecs.jpegxl_encode(np.zeros(shape, "u1"), effort=1, lossless=True)
    check_samples(raw, int(np.prod(shape)))


def test_a_small_box_of_64_bits_is_read():
    """ISO 18181-2: a length of 1 stands before 64 bits, a length of 0 means up to the end."""
    raw = imagecodecs.jpegxl_encode(np.zeros((1200, 1000), "u1"), effort=1)
    long = b"\0\0\0\1free" + (19).to_bytes(8, "big") + b"abc"
    for boxes in (
        long + b"\0\0\0\0jxlc" + raw,
        b"\0\0\0\1jxlc" + (16 + len(raw)).to_bytes(8, "big") + raw + long,
        (112).to_bytes(4, "big") + b"jxlp\0\0\0\0" + raw[:100] + long + b"\0\0\0\0jxlp\x80\0\0\1" + raw[100:],
    ):
        check_samples(boxes, 1200 * 1000)


# -- headers that libjxl reads and seldom writes --------------------------------------------------------------


def u32(kind, value=0, n=0):
    """One of four kinds of numbers, and its bits."""
    return [(kind, 2), (value, n)]


def crop(n):
    """A length in the fewest bits."""
    return u32(0, n, 8) if n < 256 else u32(1, n - 256, 11) if n < 2304 else u32(3, n - 18688, 30)


SMALL = [(1, 1), (7, 5), (1, 3)]  # 64 x 64
NO, YES = [(0, 1)], [(1, 1)]
EIGHT_BITS, NAME = NO + u32(0), [*u32(1, 3, 4), (6381921, 24)]
WHITE, PRIMARIES = u32(0, 1, 19) + u32(3, 2, 21), 3 * (u32(1, 3, 19) + u32(2, 4, 20))
COLORS = {
    "default": YES,
    "gray": [*NO, *NO, *u32(1), *u32(1), *NO, *u32(2, 6, 4), *u32(0)],
    "gray with white": [*NO, *NO, *u32(1), *u32(2, 0, 4), *WHITE, *YES, (9, 24), *u32(1)],
    "white and primaries": [*NO, *NO, *u32(0), *u32(2, 0, 4), *WHITE, *u32(2, 0, 4), *PRIMARIES, *NO, *u32(1), *u32(1)],
    "white": [*NO, *NO, *u32(0), *u32(2, 0, 4), *u32(1, 0, 19), *u32(2, 0, 20), *u32(1), *NO, *u32(1), *u32(1)],
    "white of few bits": [
        *NO,
        *NO,
        *u32(0),
        *u32(2, 0, 4),
        *u32(0, 7, 19),
        *u32(3, 7, 21),
        *u32(1),
        *YES,
        (9, 24),
        *u32(1),
    ],
    "primaries": [*NO, *NO, *u32(0), *u32(1), *u32(2, 0, 4), *PRIMARIES, *NO, *u32(1), *u32(1)],
    "of no use": [*NO, *NO, *u32(2, 0, 4), *u32(3, 1, 6)],
}
EXTRA = {
    "default": YES,
    "alpha": NO + u32(0) + EIGHT_BITS + u32(0) + u32(0) + YES,
    "depth": NO + u32(1) + EIGHT_BITS + u32(1) + NAME,
    "spot": NO + u32(2, 0, 4) + EIGHT_BITS + u32(3, 2, 3) + u32(2, 0, 5) + [(0, 128)] + [(3, 64)],
    "filter": NO + u32(2, 3, 4) + EIGHT_BITS + u32(2) + u32(0) + u32(3, 1, 8),
    "float": NO + u32(1) + YES + u32(3, 1, 6) + [(7, 4)] + u32(0) + u32(0),
}


def image(more=NO, depth=EIGHT_BITS, extra=(), colors="default", is_xyb=0, tones=()):
    n = {0: u32(0), 1: u32(1)}.get(len(extra), u32(2, len(extra) - 2, 4))
    channels = [bit for name in extra for bit in EXTRA[name]]
    return [*SMALL, *NO, *more, *depth, *NO, *n, *channels, (is_xyb, 1), *COLORS[colors], *tones, *u32(0), *YES]


def frame(
    *, n_extra=0, kind=0, modular=True, xyb=False, flags=(0, 2), ycbcr=NO, upsampling=0, shift=0, passes=None,
    size=None, blending=None, more=(), last=YES, name=None, filters=YES,
):  # fmt: skip
    """The header of a frame: 20000 x 30000, and the last one, if nothing else is asked for."""
    parts = [*NO, (kind, 2), (int(modular), 1), *([flags] if isinstance(flags, tuple) else flags)]
    parts += [] if xyb else ycbcr
    parts += [] if upsampling is None else [(upsampling, 2), *(n_extra * [(0, 2)])]
    parts += [(shift, 2)] if modular else [(0, 6)] if xyb else []
    parts += u32(0) if passes is None else passes
    parts += YES + u32(0, 0, 8) + u32(0, 0, 8) + crop(30000) + crop(20000) if size is None else size
    parts += (1 + n_extra) * u32(0) if blending is None else blending
    return [*parts, *more, *last, *(u32(0) if name is None else name), *filters, *u32(0)]


def stored(*parts):
    """Put bits after each other, the least first; ``None`` begins a new byte, and bytes stand for themselves."""
    text = ""
    for part in parts:
        if part is None:
            text += "0" * (-len(text) % 8)
        elif isinstance(part, bytes):
            text += "".join(f"{byte:08b}"[::-1] for byte in part)
        else:
            text += "".join(f"{value:0{n}b}"[::-1] for value, n in part if n)
    text += "0" * (-len(text) % 8)
    return b"\xff\x0a" + bytes(int(text[i : i + 8][::-1], 2) for i in range(0, len(text), 8)) + bytes(8)


BIG = 20000 * 30000
ANIMATED = [*YES, (0, 3), *NO, *NO, *YES, *u32(2, 9, 10), *u32(3, 8, 10), *u32(1, 5, 3)]


@pytest.mark.parametrize(
    ("header", "n_samples", "n_extra"),
    [
        (image(), 3, 0),
        (image([*YES, (5, 3), *YES, *SMALL, *NO, *NO], tones=YES), 3, 0),
        (image([*YES, (0, 3), *NO, *NO, *NO], tones=[*NO, (1 << 31, 32), (1 << 16, 17)]), 3, 0),
        (image(depth=YES + u32(3, 3, 6) + [(8, 4)]), 3, 0),
        (image(depth=NO + u32(3, 11, 6)), 3, 0),
        (image(colors="gray"), 1, 0),
        (image(colors="gray with white"), 1, 0),
        (image(colors="white and primaries"), 3, 0),
        (image(colors="of no use"), 3, 0),
        *[(image(extra=[name] * n, colors="gray"), 1 + n, n) for name in EXTRA for n in (1, 2, 3)],
    ],
)
def test_a_frame_is_found_after_any_header_of_an_image(header, n_samples, n_extra):
    check_samples(stored(header, None, frame(n_extra=n_extra)), BIG * n_samples)


def any_kind(*widths):
    """All four kinds of a number, with all bits set."""
    return [u32(kind, (1 << n) - 1, n) for kind, n in enumerate(widths)]


TICKS, LOOPS = itertools.product(any_kind(0, 0, 10, 30), any_kind(0, 0, 8, 10)), any_kind(0, 3, 16, 32)


@pytest.mark.parametrize(
    "header",
    [
        *[
            image(depth=[*is_float, *n, *(is_float[0][0] * [(9, 4)])])
            for n in any_kind(0, 0, 0, 6)
            for is_float in (NO, YES)
        ],
        *[
            image([*YES, (7, 3), *NO, *NO, *YES, *a, *b, *loops, *NO], tones=YES)
            for (a, b), loops in itertools.product(TICKS, LOOPS)
        ],
        *[image(colors=points) for points in ("white", "white of few bits", "primaries")],
    ],
)
def test_numbers_of_every_kind_are_skipped_in_the_header_of_an_image(header):
    is_animated = header[len(SMALL) + 1] == YES[0]
    check_samples(stored(header, None, frame(more=u32(0) if is_animated else ())), 3 * BIG)


@pytest.mark.parametrize("shape", any_kind(0, 0, 0, 3))
@pytest.mark.parametrize("name", any_kind(0, 4, 5, 10))
@pytest.mark.parametrize("kind", any_kind(0, 2, 4, 8))
def test_numbers_of_every_kind_are_skipped_in_an_extra_channel(monkeypatch, shape, name, kind):
    n = {0: 0, 1: 15, 2: 16 + 31, 3: 48 + 1023}[name[0][0]]
    channel = [*NO, *u32(2, 3, 4), *EIGHT_BITS, *shape, *name, (0, 8 * n), *kind]
    monkeypatch.setitem(EXTRA, "odd", channel)
    check_samples(stored(image(extra=["odd"]), None, frame(n_extra=1)), 4 * BIG)


ONE_SECTION = [NO, None, u32(0, 5, 10), None, b"12345"]
PARTIAL = YES + u32(1, 4, 11) + u32(0, 0, 8) + u32(0, 9, 8) + u32(0, 9, 8)
SAVED = [*NO, (1, 2)]
FRAMES = {
    "plain": frame(last=[*NO, (0, 2), *YES], size=NO),
    "kept for later": frame(last=[*SAVED, *YES], size=NO),
    "not modular": frame(modular=False, last=[*NO, (0, 2), *YES], size=NO),
    "flags of 4 bits": frame(flags=[(1, 2), (4, 4)], last=[*SAVED, *YES], size=NO),
    "flags of 8 bits": frame(flags=[(2, 2), (64 - 17, 8)], last=[*SAVED, *YES], size=NO),
    "other colours": frame(ycbcr=[*YES, (0, 6)], last=[*SAVED, *YES], size=NO),
    "flag 32": frame(flags=[(2, 2), (32 - 17, 8)], ycbcr=YES, upsampling=None, last=[*SAVED, *YES], size=NO),
    "partial": frame(size=PARTIAL, blending=[*u32(0), (1, 2)], last=SAVED),
    "added": frame(size=NO, blending=[*u32(1), (1, 2)], last=SAVED),
    "multiplied": frame(size=NO, blending=[*u32(3, 1, 2), (0, 1), (1, 2)], last=SAVED),
    "named": frame(size=NO, last=[*SAVED, *YES], name=NAME),
    "filtered": frame(size=NO, last=[*SAVED, *YES], filters=NO + NO + [(0, 2)] + u32(0)),
    "smoothed": frame(size=NO, last=[*SAVED, *YES], filters=NO + YES + NO + [(0, 2)] + u32(0)),
    "smoothed, weights": frame(
        size=NO, last=[*SAVED, *YES], filters=NO + YES + YES + [(1, 96)] + [(0, 2)] + u32(0)
    ),
    "edges": frame(size=NO, last=[*SAVED, *YES], filters=NO + NO + [(1, 2)] + NO + NO + [(1, 16)] + u32(0)),
    "edges, weights": frame(
        size=NO, last=[*SAVED, *YES], filters=[*NO, *NO, (2, 2), *YES, (1, 80), *YES, (1, 48), (1, 16), *u32(0)]
    ),
    "edges, not modular": frame(
        modular=False, size=NO, last=[*SAVED, *YES],
        filters=[*NO, *NO, (3, 2), *YES, (1, 128), *YES, (1, 80), *YES, (1, 64), *u32(0)],
    ),
    "reference": frame(kind=2, passes=(), size=NO, blending=(), last=[(1, 2), *YES]),
    "reference of a size": frame(
        kind=2, passes=(), size=YES + u32(0, 64, 8) + u32(0, 64, 8), blending=(), last=[(1, 2), *YES]
    ),
    "low frequencies": frame(kind=1, size=[(2, 2)], blending=(), last=()),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_found_after_any_other_frame(name):
    raw = stored(image(), None, FRAMES[name], *ONE_SECTION, frame())
    check_samples(raw, 3 * (BIG + 64 * 64))


@pytest.mark.parametrize(
    ("begin", "top", "columns", "rows", "is_partial"),
    [(0, 0, 64, 64, False), (0, 0, 65, 70, False), (7, 9, 68, 69, False), (2, 0, 64, 64, True), (0, 2, 64, 64, True),
     (0, 0, 63, 64, True), (0, 0, 64, 63, True), (7, 0, 67, 64, True), (0, 9, 64, 68, True)],
)  # fmt: skip
def test_a_frame_that_does_not_cover_the_image_says_with_what_it_is_blended(begin, top, columns, rows, is_partial):
    """Offsets are signed numbers: 0, -1, 1, -2, 2 ...; one that covers the image says more."""
    size = [*YES, *u32(0, begin, 8), *u32(0, top, 8), *u32(0, columns, 8), *u32(0, rows, 8)]
    blending = [*u32(0), (3, 2)] if is_partial else u32(0)
    one = frame(size=size, blending=blending, last=SAVED if is_partial else [*SAVED, *NO])
    n_samples = 3 * (BIG + max(rows * columns, 64 * 64))
    check_samples(stored(image(), None, one, *ONE_SECTION, frame()), n_samples)


@pytest.mark.parametrize(("level", "n_groups"), [(0, 16), (1, 1)])
def test_low_frequencies_are_an_eighth_of_the_image_at_each_level(level, n_groups):
    large = [*NO, *u32(1, 4095, 13), (0, 3), *u32(1, 4094, 13), *image()[len(SMALL) :]]
    one = frame(kind=1, size=[(level, 2)], blending=(), last=())
    n_sections = 2 + 1 + n_groups if n_groups > 1 else 1
    data = [NO, None, *(n_sections * [u32(0, 3, 10)]), None, bytes(3 * n_sections)]
    check_samples(stored(large, None, one, *data, frame()), 3 * (BIG + 4096 * 4095))


@pytest.mark.parametrize("alpha", any_kind(0, 0, 0, 3))
@pytest.mark.parametrize("mode", [u32(2), u32(3, 0, 2)])
def test_an_alpha_channel_of_any_number(alpha, mode):
    ways = [*mode, *alpha, *NO, (1, 2), *u32(0)]
    one = frame(n_extra=1, size=NO, blending=ways, last=SAVED)
    header = image(extra=["depth"], colors="gray")
    check_samples(stored(header, None, one, *ONE_SECTION, frame(n_extra=1)), 2 * (BIG + 64 * 64))


@pytest.mark.parametrize(
    ("n", "bits"),
    [(200, u32(0, 200, 8)), (2000, u32(1, 2000 - 256, 11)), (9000, u32(2, 9000 - 2304, 14)), (30000, crop(30000))],
)
def test_sides_of_a_frame_take_as_many_bits_as_they_need(n, bits):
    corner = [*YES, *u32(0, 0, 8), *u32(0, 0, 8)]
    for sides in ([*bits, *crop(20000)], [*crop(20000), *bits]):
        check_samples(stored(image(), None, frame(size=[*corner, *sides])), 3 * 20000 * n)


@pytest.mark.parametrize(
    ("passes", "n_sections"),
    [
        (u32(1) + u32(0) + [(0, 2)], 2 + 1 + 2),
        (u32(2) + u32(1) + [(0, 4), (0, 2)] + u32(2), 2 + 1 + 3),
        (u32(3, 1, 3) + u32(3, 1, 1) + [(0, 8), (0, 8)] + 4 * u32(3, 1, 3), 2 + 1 + 5),
    ],
)
def test_a_frame_is_found_after_one_of_several_passes(passes, n_sections):
    one = frame(passes=passes, size=NO, last=[*NO, (0, 2), *YES])
    sizes = [u32(0, 1, 10), u32(1, 5, 14), *((n_sections - 2) * [u32(0, 0, 10)])]
    data = [NO, None, *sizes, None, bytes(1 + 1024 + 5)]
    check_samples(stored(image(), None, one, *data, frame()), 3 * (BIG + 64 * 64))


@pytest.mark.parametrize(
    ("size", "shift", "upsampling", "n_groups", "n_large"),
    [((64, 129), 0, 0, 2, 1), ((64, 256), 1, 0, 1, 0), ((257, 300), 1, 0, 4, 1), ((300, 1100), 0, 0, 27, 2),
     ((300, 1100), 0, 2, 3, 1), ((64, 129), 0, 1, 1, 0), ((1024, 1025), 3, 0, 2, 1)],
)  # fmt: skip
def test_a_frame_is_found_after_one_of_several_groups(size, shift, upsampling, n_groups, n_large):
    """Groups are of 128 samples and more; eight of them in each direction are one large group."""
    rows, columns = size
    part = [*YES, *u32(0, 0, 8), *u32(0, 0, 8), *crop(columns), *crop(rows)]
    one = frame(shift=shift, upsampling=upsampling, size=part, last=[*NO, (0, 2), *YES])
    n_sections = 2 + n_large + n_groups if n_groups > 1 else 1
    data = [NO, None, *(n_sections * [u32(0, 3, 10)]), None, bytes(3 * n_sections)]
    check_samples(stored(image(), None, one, *data, frame()), 3 * (BIG + rows * columns))


def test_frames_of_an_animation_have_durations_and_timecodes():
    header = image([*ANIMATED, *YES], tones=YES)
    one = frame(size=NO, more=[*u32(2, 3, 8), (7, 32)], last=[*NO, (0, 2)])
    two = frame(size=NO, more=[*u32(0), (7, 32)], last=[*NO, (0, 2), *YES])
    raw = stored(header, None, one, *ONE_SECTION, two, *ONE_SECTION, frame(more=[*u32(1), (7, 32)]))
    check_samples(raw, 3 * (BIG + 2 * 64 * 64))


@pytest.mark.parametrize("reference", range(4))
@pytest.mark.parametrize("duration", [u32(0), *[u32(2, x, 8) for x in (0, 255)], *[u32(3, x, 32) for x in (0, 256)]])
def test_frames_that_take_no_time_or_are_kept_have_a_bit_more(duration, reference):
    """It tells whether they are kept before or after their colors are turned."""
    (_, (ticks, _)) = duration
    last = [*NO, (reference, 2), *(YES if not ticks or reference else [])]
    one = frame(size=NO, more=[*duration, (7, 32)], last=last)
    two = frame(more=[*u32(1), (7, 32)])
    check_samples(stored(image([*ANIMATED, *YES], tones=YES), None, one, *ONE_SECTION, two), 3 * (BIG + 64 * 64))


def test_channels_are_blended_each_in_its_own_way():
    header = image(extra=["alpha", "depth"], colors="gray")
    ways = [*u32(2), *u32(0), *YES, (0, 2), *u32(3, 1, 2), *NO, (0, 2), *u32(0)]
    one = frame(n_extra=2, size=NO, blending=ways, last=SAVED)
    check_samples(stored(header, None, one, *ONE_SECTION, frame(n_extra=2)), 3 * (BIG + 64 * 64))


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        ([[*SMALL, *NO, *YES, (0, 3), *NO, *YES]], "a preview"),
        ([[*SMALL, *NO, *NO, *EIGHT_BITS, *NO, *u32(0), *NO, *NO, *YES]], "an ICC profile"),
        ([[*SMALL, *NO, *NO, *EIGHT_BITS, *NO, *u32(0), *NO, *YES, (1, 2), (0, 4)]], "extensions"),
        ([[*SMALL, *YES, *NO]], "transforms of its own"),
        ([image(), None, [*frame()[:-2], (1, 2), (0, 4)]], "extensions"),
        ([image(), None, frame(filters=[*NO, *NO, (0, 2), (3, 2)])], "extensions"),
        ([image(), None, frame(size=NO, last=[*NO, (0, 2), *YES]), YES], "parts in another order"),
    ],
)
def test_what_hides_the_frames_is_refused(parts, what):
    with pytest.raises(CodecError, match=f"the JPEG XL image has {what}, after which"):
        check_frames(stored(*parts), 1 << 40)


@pytest.mark.parametrize("data", [b"", bytes(3), b"\0\0\0\1jxlc" + bytes(5), b"\0\0\0\5jxlc\xff\x0a"])
def test_what_is_no_image_is_refused(data):
    with pytest.raises(CodecError, match="there is no JPEG XL image"):
        check_frames(data, 1 << 40)

"""Compare codecs by what they decode to, whatever settings only their encoders use."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from virtualstack.codecs.cf import CF
from virtualstack.codecs.cf_times import same_dates
from virtualstack.codecs.codec import Codec
from virtualstack.codecs.plugins import find_plugin

# Settings that steer the encoder alone: a decoder does the same whatever they are.
_ENCODER_ONLY: Mapping[str, frozenset[str] | None] = {
    "blosc": None,  # a blosc frame describes itself
    "numcodecs.blosc": None,
    "numcodecs.bz2": None,
    "numcodecs.gzip": None,
    "numcodecs.lz4": None,
    "numcodecs.lzma": frozenset({"preset"}),
    "numcodecs.zlib": None,
    "numcodecs.zstd": None,
    "gzip": None,
    "zstd": None,
}

# Two names of the same codec: the name in numcodecs, and the newer name in zarr v3.
_SAME = {
    "numcodecs.blosc": "blosc",
    "numcodecs.gzip": "gzip",
    "numcodecs.vlen-utf8": "vlen-utf8",
    "numcodecs.zstd": "zstd",
}


def agreed(a: tuple[Codec, ...], b: tuple[Codec, ...], /) -> tuple[Codec, ...]:
    """Return codecs for two chains that decode alike: the first chain, without settings that hold for it alone.

    >>> plain = Codec.from_config("virtualstack.grib", row=360, plain=True)
    >>> agreed((plain,), (Codec.from_config("virtualstack.grib", row=360),))
    (Codec(name='virtualstack.grib', configuration='{"row":360}'),)
    """
    if a == b:
        return a
    return tuple(x if x == y else _without(x, _promises(x.name)) for x, y in zip(a, b, strict=True))


@lru_cache(maxsize=4096)
def tells_values(codecs: tuple[Codec, ...], /) -> bool:
    """Return whether all chunks with these codecs have the same values.

    >>> tells_values((Codec.from_config("virtualstack.grib", key="latitudes", grid="9a2e"),))
    True
    """
    plugins = ((codec, find_plugin(codec.name)) for codec in codecs)
    return any(plugin.naming_setting in codec.options() for codec, plugin in plugins if plugin is not None)


def _promises(name: str) -> frozenset[str]:
    plugin = find_plugin(name)
    return frozenset() if plugin is None else plugin.promises


def _without(codec: Codec, settings: frozenset[str]) -> Codec:
    if not settings:
        return codec
    return Codec.from_config(
        codec.name, **{key: value for key, value in codec.options().items() if key not in settings}
    )


@lru_cache(maxsize=4096)
def decoding_part(codecs: tuple[Codec, ...], /) -> tuple[Codec, ...]:
    """Return codecs without settings that do not change decoding, such as a compression level.

    >>> a, b = Codec.from_config("numcodecs.zlib", level=1), Codec.from_config("numcodecs.zlib", level=9)
    >>> decoding_part((a,)) == decoding_part((b,))
    True
    """
    return tuple(_without_encoder_settings(codec) for codec in codecs)


def _without_usual_calendar(codec: Codec) -> Codec:
    """Return the codec of packed dates without its calendar, if the same dates have no other one."""
    options = codec.options()
    attributes = options.get("attributes")
    if not isinstance(attributes, dict) or not isinstance(units := attributes.get("units"), str):
        return codec
    calendar = attributes.get("calendar")
    if not isinstance(calendar, str) or not same_dates((units, calendar), (units, None)):
        return codec
    return Codec.from_config(
        CF, **{**options, "attributes": {key: value for key, value in attributes.items() if key != "calendar"}}
    )


def _without_encoder_settings(codec: Codec) -> Codec:
    if codec.name == CF:
        return _without_usual_calendar(codec)
    name = _SAME.get(codec.name, codec.name)
    drop = _ENCODER_ONLY.get(codec.name, _promises(codec.name))
    return Codec(name) if drop is None else _without(Codec(name, codec.configuration), drop)

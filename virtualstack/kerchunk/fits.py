"""What kerchunk's references of FITS files say otherwise than the FITS standard (4.0)."""

from __future__ import annotations

import re
from typing import Any

import orjson

from virtualstack.errors import UnsupportedFeatureError
from virtualstack.storage import Source

__all__ = ["corrected"]

_BLOCK, _CARD = 2880, 80
_MOST = 1000 * _BLOCK
_SCALED = re.compile(r"(TSCAL|TZERO)\d+")


def corrected(references: dict[str, Any], source: Source, /) -> dict[str, Any]:
    """Give references that read as the standard has it.

    Numbers of images are unpacked by ``scale_factor`` and ``add_offset`` (kerchunk 0.2.10 divides by BSCALE), BLANK is
    what is missing, and 0 is not.

    Raises
    ------
    UnsupportedFeatureError
        An image is compressed, or columns of a table are scaled, for which kerchunk refers to the stored numbers; or an
        image has unsigned numbers of 64 bits, which scaling would round.
    """
    references = {**references, "refs": dict(references["refs"])} if "refs" in references else dict(references)
    refs = references.get("refs", references)
    url = source.location.url
    for key in [key for key in refs if key.endswith("/.zarray")]:
        name = key.removesuffix("/.zarray")
        array = _document(refs[key])
        attributes = _document(refs.get(f"{name}/.zattrs", "{}"))
        chunk = next((x for key, x in refs.items() if key.startswith(f"{name}/") and isinstance(x, list)), None)
        if chunk is not None and len(chunk) > 1 and _is_compressed(source, int(chunk[1])):
            raise UnsupportedFeatureError(
                f"'{url}': the image '{name}' is compressed by tiles, whose bytes kerchunk takes for pixels: unpack it "
                "with funpack, or name other extensions by options={'extension': ...}",
                url=url,
                variable=name,
                feature="tile-compressed FITS image",
            )
        packed = sorted(k for k, x in attributes.items() if _SCALED.fullmatch(k) and x != float(k.startswith("TSCAL")))
        if packed:
            raise UnsupportedFeatureError(
                f"'{url}': columns of the table '{name}' are scaled ({', '.join(packed[:3])}), which kerchunk leaves "
                "out: name other extensions by options={'extension': ...}, or read it with astropy",
                url=url,
                variable=name,
                feature="scaled FITS columns",
            )
        blank = attributes.get("BLANK")
        array["fill_value"] = None
        for codec in array.get("filters") or []:
            if codec.get("id") == "fixedscaleoffset":
                if str(codec["astype"])[1:] == "i8" and (codec["scale"], codec["offset"]) == (1, 1 << 63):
                    raise UnsupportedFeatureError(
                        f"'{url}': the image '{name}' has unsigned numbers of 64 bits, which BZERO in floating point "
                        "rounds: name other extensions by options={'extension': ...}, or read it with astropy",
                        url=url,
                        variable=name,
                        feature="unsigned FITS numbers of 64 bits",
                    )
                array |= {"dtype": codec["astype"], "filters": None}
                attributes |= {"scale_factor": codec["scale"], "add_offset": codec["offset"]}
        if isinstance(blank, int) and not isinstance(blank, bool) and str(array["dtype"])[1:2] in ("i", "u"):
            attributes["_FillValue"] = blank
        refs[key] = orjson.dumps(array).decode()
        refs[f"{name}/.zattrs"] = orjson.dumps(attributes).decode()
    return references


def _document(text: Any) -> dict[str, Any]:
    return dict(text if isinstance(text, dict) else orjson.loads(text))


def _is_compressed(source: Source, offset: int) -> bool:
    """Look for ZIMAGE in the header in front of the data."""
    begin = max(offset - _MOST, offset % _BLOCK, 0)
    head = source.read(begin, min(offset, source.size) - begin) if begin < source.size else b""
    starts = [at for at in range(0, len(head), _BLOCK) if head.startswith((b"XTENSION=", b"SIMPLE  ="), at)]
    header = head[starts[-1] if starts else 0 :]
    cards = (header[at : at + _CARD] for at in range(0, len(header), _CARD))
    return any(card.startswith(b"ZIMAGE  =") and card[10:30].strip().startswith(b"T") for card in cards)

"""What kerchunk's references of TIFF files say otherwise than GDAL."""

from __future__ import annotations

from typing import Any

import orjson

from virtualstack.formats.tiff.arrays import nodata_value
from virtualstack.formats.tiff.image import Images
from virtualstack.formats.tiff.structure import PrefetchingSource, TiffStructure
from virtualstack.storage import Source

__all__ = ["corrected"]


def corrected(references: dict[str, Any], source: Source, /) -> dict[str, Any]:
    """Give references in which 0 is missing only where the tag GDAL_NODATA says so; tifffile has it for no tag, too.

    Raises
    ------
    MalformedFileError
        The first directory of the file is damaged.
    """
    references = {**references, "refs": dict(references["refs"])} if "refs" in references else dict(references)
    refs = references.get("refs", references)
    structure = TiffStructure(PrefetchingSource(source))
    if nodata_value(Images(structure).layout(next(structure.chain()))) == 0:
        return references
    for key in [key for key in refs if key.endswith("/.zarray") or key == ".zarray"]:
        array = dict(refs[key] if isinstance(refs[key], dict) else orjson.loads(refs[key]))
        if array["fill_value"] == 0:
            refs[key] = orjson.dumps({**array, "fill_value": None}).decode()
    return references

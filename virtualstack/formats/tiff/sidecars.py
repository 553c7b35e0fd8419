"""Read the files that GDAL keeps beside an image: a mask (``.msk``) and metadata (``.aux.xml``)."""

from __future__ import annotations

from virtualstack.errors import SourceNotFoundError
from virtualstack.formats.tiff.arrays import Axes, image_array
from virtualstack.formats.tiff.image import Images
from virtualstack.formats.tiff.structure import PrefetchingSource, TiffStructure
from virtualstack.location import split_query
from virtualstack.manifests import ManifestArray
from virtualstack.storage import Source, Storage

_MAX_BYTES = 16 << 20


def read_pam(url: str, storage: Storage, /) -> bytes | None:
    """Return the persistent auxiliary metadata (PAM) of an image; ``None`` if it has none."""
    source = _beside(url, ".aux.xml", storage)
    return None if source is None else bytes(source.read(0, min(source.size, _MAX_BYTES + 1)))


def read_mask(url: str, storage: Storage, most_bytes: int | None, /) -> ManifestArray | None:
    """Return the mask of an image, of axes ``(y, x)`` or ``(band, y, x)``; ``None`` if it has none."""
    source = _beside(url, ".msk", storage)
    if source is None:
        return None
    structure = TiffStructure(PrefetchingSource(source))
    image = Images(structure).image(next(structure.chain()))
    if image.layout.obstacle is not None:
        return None
    band = "first" if image.layout.samples > 1 else None
    array = image_array(
        [image], Axes(band=band), name="mask", location=source.location, attributes={}, most_bytes=most_bytes
    )
    return array[0] if image.layout.samples == 1 and array.ndim > 2 else array


def _beside(url: str, suffix: str, storage: Storage) -> Source | None:
    path, query = split_query(url)
    try:
        return storage.source(f"{path}{suffix}{query}")
    except SourceNotFoundError:
        return None

"""The reader of TIFF files.

The steps from a file to a group:

1. `structure` reads the directories and the values of their tags. `image` interprets them for one image.
2. `series` finds images that belong together: pages, overviews and masks. `dialects` uses tifffile for other axes.
3. `arrays` makes a virtual array of the strips or tiles of an image, with its attributes.
4. `georeference` reads the transform, the coordinates and the reference system.
5. `groups` combines them: one dataset, or a tree of resolutions.

Values are decoded by `virtualstack.codecs.tiff`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from virtualstack.formats.base import ReadOptions
from virtualstack.formats.tiff.arrays import AUTO_CHUNK_BYTES
from virtualstack.formats.tiff.groups import Choices, dataset_group, tree_group
from virtualstack.formats.tiff.image import Images
from virtualstack.formats.tiff.series import find_series
from virtualstack.formats.tiff.sidecars import read_mask, read_pam
from virtualstack.formats.tiff.structure import PrefetchingSource, TiffStructure
from virtualstack.location import local_path
from virtualstack.manifests import ManifestGroup
from virtualstack.sizes import chunk_byte_count
from virtualstack.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class TIFF:
    """Reader of TIFF, GeoTIFF, COG and OME-TIFF files; it reads only directories, no strips or tiles.

    Names, dimensions, coordinates and attributes are the same as in rioxarray for a single image, and the same as in
    tifffile for several images.

    When to use: the reader is chosen by the first bytes of a file. Name it to set an option. Alternatives:
    ``reader=KerchunkDriver(...)`` takes the references of another program.

    Parameters
    ----------
    band_as_variable
        If true, bands are variables ``band_1``, ``band_2`` and so on, as with rioxarray, instead of a dimension.
    chunk_size
        Maximum bytes of a chunk, as a number or text such as ``"4 MiB"``. It applies to uncompressed contiguous strips,
        which are merged or cut. ``"auto"`` is 4 MiB; ``None`` makes all contiguous strips one chunk.
    sidecars
        If true, the files of GDAL beside the image are read: its mask (``.msk``) and its metadata (``.aux.xml``). By
        default they are read beside local files; beside a remote file, each takes a request.

    Raises
    ------
    ValueError
        ``chunk_size`` is not a positive number of bytes.

    Examples
    --------
    >>> import numpy as np
    >>> import tifffile
    >>> import virtualstack as vs
    >>> tifffile.imwrite("a.tif", np.arange(6, dtype="u2").reshape(2, 3))
    >>> vds = vs.open_virtual_dataset("a.tif", reader=vs.readers.TIFF(band_as_variable=True))
    >>> vds.virtual.open()["band_1"].values.tolist()
    [[0, 1, 2], [3, 4, 5]]
    """

    name: ClassVar[str] = "tiff"

    band_as_variable: bool = False
    chunk_size: int | str | None = "auto"
    sidecars: bool | None = None

    def __post_init__(self) -> None:
        self._most_bytes()  # raises an error if the size is not valid

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return the images of a file as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The file is not a TIFF file, contradicts itself, or is truncated.
        StorageError
            The bytes could not be read.
        """
        source = storage.source(url)
        structure = TiffStructure(PrefetchingSource(source))
        series = find_series(structure, Images(structure), source)
        choices = Choices(
            band_as_variable=self.band_as_variable,
            most_bytes=self._most_bytes(),
            dropped=options.drop_variables,
            inline_limit=options.inline_limit,
        )
        is_local = local_path(url) is not None  # files beside it cost no request
        if is_local if self.sidecars is None else self.sidecars:
            choices = replace(choices, pam=read_pam(url, storage), mask=read_mask(url, storage, choices.most_bytes))
        make = dataset_group if options.is_tree is False else tree_group
        return make(structure, series, choices, source.location)

    def _most_bytes(self) -> int | None:
        return chunk_byte_count(self.chunk_size, auto=AUTO_CHUNK_BYTES)

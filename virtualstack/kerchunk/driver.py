"""Drivers of kerchunk, and what others wrote like them, as readers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar

from virtualstack.errors import MalformedFileError, MissingDependencyError, ReaderError, VirtualStackError
from virtualstack.formats.base import ReadOptions
from virtualstack.kerchunk import fits as fits_references
from virtualstack.kerchunk import hdf4 as hdf4_references
from virtualstack.kerchunk import tiff as tiff_references
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.location import Location, local_path
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.storage import Source, Storage

__all__ = ["KerchunkDriver"]

_OF_THE_EXTRA = frozenset({"kerchunk", "fastparquet", "fsspec"})

_CORRECTIONS: Mapping[str, Callable[[dict[str, Any], Source], dict[str, Any]]] = {
    "kerchunk.fits": fits_references.corrected,
    "kerchunk.hdf4": hdf4_references.corrected,
    "kerchunk.tiff": tiff_references.corrected,
}
"""By module of a driver: what makes its references right."""

_MENDED: Mapping[str, Callable[[str], Any]] = {"kerchunk.hdf4": hdf4_references.big_endian}
"""By module of a driver: what gives another one in its place."""


@dataclass(frozen=True, slots=True)
class KerchunkDriver:
    """Reads what a driver of kerchunk translates: FITS and HDF4 among others.

    What is read is what the driver says. It is trusted with the file, which it may read as a whole.

    Parameters
    ----------
    driver
        ``"module:name"`` of a class or function, or the object itself. It is called with the URL, ``storage_options=``
        for fsspec and ``options``, and gives references: a mapping, or a list of them; or it has a method
        ``translate()`` that does. FITS is ``"kerchunk.fits:FitsToZarr"``, HDF4 ``"kerchunk.hdf4:HDF4ToZarr"``.
    options
        Further keyword arguments, such as ``{"extension": 1}``.
    number
        Which set of references is taken, where there is a list of several; the first is 0.
    masks_fill_value
        As in :class:`~virtualstack.readers.Kerchunk`. Drivers put ``_FillValue`` of a file there; turn it off for one
        that gives 0 where a file has none, as that of HDF5 does.

    Examples
    --------
    >>> reader = KerchunkDriver("kerchunk.fits:FitsToZarr", {"extension": 1})
    >>> vds = vs.open_virtual_dataset("image.fits", reader=reader)  # doctest: +SKIP
    """

    name: ClassVar[str] = "kerchunk_driver"

    driver: str | Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    number: int | None = None
    masks_fill_value: bool = True

    def __post_init__(self) -> None:
        if not callable(self.driver) and not (isinstance(self.driver, str) and self.driver.count(":") == 1):
            raise TypeError(f"driver={self.driver!r} is neither 'module:name' nor can it be called")

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Let the driver translate a source, and read its references.

        Raises
        ------
        MissingDependencyError
            The driver, or what it needs, is not installed.
        MalformedFileError
            The driver cannot translate the source, or what it gives are no references.
        ReaderError
            It gives several sets of references, and ``number`` says none of them.
        StorageError
            The source cannot be had.
        """
        source = storage.source(url)
        driver = self._driver(url)
        module = getattr(driver, "__module__", "")
        if module in _MENDED:
            driver = getattr(_MENDED[module](module), driver.__name__, driver)
        name, given = _way_to(url, storage)
        try:
            translated = driver(name, storage_options=given, **deepcopy(dict(self.options)))
            if hasattr(translated, "translate"):
                translated = translated.translate()
        except (VirtualStackError, MemoryError):
            raise
        except ImportError as error:
            raise self._missing(url, error) from error
        except Exception as error:
            raise MalformedFileError(
                f"'{url}': the driver {self._words()} cannot translate it: {type(error).__name__}: {error}", url=url
            ) from error
        references = self._chosen(translated, url)
        if module in _CORRECTIONS:
            references = _CORRECTIONS[module](references, source)
        reader = Kerchunk(masks_fill_value=self.masks_fill_value)
        base = url.rpartition("/")[0]
        try:
            group = reader.read_references(references, base_url=base, storage=storage, options=options)
        except ReaderError as error:
            error.url = error.url or url
            raise
        return replace(group, url=url).map_arrays(lambda array: _seen(array, name, source.location))

    def _driver(self, url: str) -> Callable[..., Any]:
        if not isinstance(self.driver, str):
            return self.driver
        module, _, name = self.driver.partition(":")
        try:
            found = getattr(importlib.import_module(module), name)
        except ImportError as error:
            raise self._missing(url, error) from error
        except AttributeError as error:
            raise ReaderError(f"there is no driver '{name}' in the module '{module}'", url=url) from error
        if not callable(found):
            raise ReaderError(f"the driver '{self.driver}' cannot be called", url=url)
        return found  # type: ignore[no-any-return]

    def _missing(self, url: str, error: ImportError) -> ReaderError:
        what, module = f"reading with {self._words()}, which says '{error}',", (error.name or "").partition(".")[0]
        if module in _OF_THE_EXTRA and find_spec(module) is None:
            return MissingDependencyError(what, extra="kerchunk", url=url)
        return ReaderError(
            f"{what} needs the module '{error.name or 'that it names'}'. Install the package that has it", url=url
        )

    def _words(self) -> str:
        return repr(self.driver if isinstance(self.driver, str) else getattr(self.driver, "__name__", self.driver))

    def _chosen(self, translated: Any, url: str) -> dict[str, Any]:
        if isinstance(translated, list | tuple):
            n = len(translated)
            at = 0 if self.number is None and n == 1 else self.number
            if at is None or not 0 <= at < n:
                raise ReaderError(
                    f"'{url}': the driver {self._words()} gives {n} sets of references, and number={self.number} says "
                    "none of them: give the number of one, from 0",
                    url=url,
                )
            translated = translated[at]
        if not isinstance(translated, Mapping):
            raise MalformedFileError(
                f"'{url}': the driver {self._words()} gives a {type(translated).__name__}, no references", url=url
            )
        return dict(translated)


def _way_to(url: str, storage: Storage) -> tuple[str, dict[str, Any]]:
    """Say how fsspec reaches a source: a local file by its path, whatever else through the storage."""
    path = local_path(url)
    prefix, backend = storage.find(url)
    if path is not None and not storage.permissions and not prefix.startswith("memory") and backend is None:
        return str(path), {}
    from virtualstack.storage.filesystem import PROTOCOL

    return f"{PROTOCOL}://{url}", {"store": storage}


def _seen(array: ManifestArray, name: str, location: Location) -> ManifestArray:
    """Give references to the source the version of it that was translated."""
    manifest = array.in_memory()
    names = {name, location.url, Location(location.url).url}
    locations = tuple(location if x.url in names else x for x in manifest.locations)
    return replace(array, manifest=replace(manifest, locations=locations))

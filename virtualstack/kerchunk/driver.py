"""Drivers of kerchunk as readers."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar

from virtualstack.errors import (
    MalformedFileError,
    MissingDependencyError,
    ReaderError,
    Remedy,
    UnsupportedFeatureError,
    VirtualStackError,
)
from virtualstack.formats.base import ReadOptions
from virtualstack.formats.hdf5.library import check_alone
from virtualstack.kerchunk.reader import Kerchunk
from virtualstack.location import Location, local_path
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.printable import counted
from virtualstack.storage import Storage

_HDF5_DRIVERS = "kerchunk.hdf"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_OF_THE_EXTRA = frozenset({"kerchunk", "fastparquet", "fsspec"})

_REPLACED = {"kerchunk.fits": "fits", "kerchunk.hdf4": "hdf4", "kerchunk.tiff": "tiff"}
"""Reader of virtualstack that stands in for a driver, by the module of the driver."""


@dataclass(frozen=True, slots=True)
class KerchunkDriver:
    """Reader of files that a driver of kerchunk translates.

    The references of the driver are read unchanged. The driver may read the whole file; it must be trusted.

    When to use: for formats without a reader in virtualstack. Alternatives: a reader of ``vs.readers``, which checks
    the file itself.

    Parameters
    ----------
    driver
        ``"module:name"`` of a class or function, or the object itself. It is called with the URL, ``storage_options=``
        for fsspec and ``options``. It returns references, as a mapping or a list of mappings, or an object whose method
        ``translate()`` does. The drivers for FITS, HDF4 and TIFF are refused, since they return other values than the
        formats define: :class:`~virtualstack.readers.FITS`, :class:`~virtualstack.readers.HDF4` and
        :class:`~virtualstack.readers.TIFF` read them.
    options
        Further keyword arguments, such as ``{"extension": 1}``.
    number
        Number of the set of references to read, from 0, if the driver returns a list of several.
    masks_fill_value
        If true, ``fill_value`` masks values, as in :class:`~virtualstack.readers.Kerchunk`. Drivers store
        ``_FillValue`` of a file as ``fill_value``. Set it to false for a driver that stores 0 if the file has none,
        such as the driver for HDF5.

    Examples
    --------
    A driver may be any function that returns references:

    >>> from pathlib import Path
    >>> import virtualstack as vs
    >>> def raw_bytes(url, **options):
    ...     array = {"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": "|u1", "order": "C"}
    ...     array |= {"compressor": None, "filters": None, "fill_value": None}
    ...     return {"t/.zarray": array, "t/.zattrs": {"_ARRAY_DIMENSIONS": ["x"]}, "t/0": [url, 0, 3]}
    >>> n_bytes = Path("a.bin").write_bytes(b"abc")
    >>> vds = vs.open_virtual_dataset("a.bin", reader=vs.readers.KerchunkDriver(raw_bytes))
    >>> vds.virtual.open()["t"].values
    array([97, 98, 99], dtype=uint8)
    """

    name: ClassVar[str] = "kerchunk_driver"

    driver: str | Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    number: int | None = None
    masks_fill_value: bool = True

    def __post_init__(self) -> None:
        if not callable(self.driver) and not (isinstance(self.driver, str) and self.driver.count(":") == 1):
            raise TypeError(f"driver={self.driver!r} is neither a text such as 'module:name' nor a callable")

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Translate a source with the driver, and return its references as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MissingDependencyError
            A package of the extra ``kerchunk`` is not installed.
        MalformedFileError
            The driver cannot translate the source, or does not return references.
        ForbiddenLocationError
            The source is an HDF5 file with links or values in other files, which the HDF5 library would open.
        UnsupportedFeatureError
            The driver is known to return wrong values, and virtualstack has a reader of its own.
        ReaderError
            The driver or another module that it needs does not exist, or ``number`` is not one of its sets of
            references.
        StorageError
            The source cannot be read.
        """
        source = storage.source(url)
        driver = self._driver(url)
        module = getattr(driver, "__module__", "")
        if module in _REPLACED:
            raise UnsupportedFeatureError(
                f"'{url}': the driver {self._words()} returns other values than the format defines",
                Remedy("read the file with", reader=_REPLACED[module]),
                url=url,
                feature="driver of kerchunk",
            )
        if module == _HDF5_DRIVERS or source.read(0, min(8, source.size)) == _HDF5:
            check_alone(source, storage)
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
                f"'{url}': the driver {self._words()} failed: {type(error).__name__}: {error}. Check that the file "
                "has the format of this driver",
                url=url,
            ) from error
        references = self._chosen(translated, url)
        reader = Kerchunk(masks_fill_value=self.masks_fill_value)
        base = url.rpartition("/")[0]
        group = reader.read_references(references, base_url=base, storage=storage, options=options)
        return replace(group, url=url).map_arrays(lambda array: _seen(array, name, source.location))

    def _driver(self, url: str) -> Callable[..., Any]:
        if not isinstance(self.driver, str):
            return self.driver
        module, _, name = self.driver.partition(":")
        try:
            found = getattr(importlib.import_module(module), name, None)
        except ImportError as error:
            raise self._missing(url, error) from error
        if found is None:
            raise ReaderError(f"the module '{module}' has no driver '{name}'. Check driver='{self.driver}'", url=url)
        if not callable(found):
            raise ReaderError(
                f"driver='{self.driver}' names a {type(found).__name__}, not a class or function",
                Remedy("check the name"),
                url=url,
            )
        return found  # type: ignore[no-any-return]

    def _missing(self, url: str, error: ImportError) -> ReaderError:
        what, module = f"the driver {self._words()} ('{error}')", (error.name or "").partition(".")[0]
        if module in _OF_THE_EXTRA and find_spec(module) is None:
            return MissingDependencyError(what, extra="kerchunk", url=url)
        return ReaderError(
            f"{what} needs the module '{error.name or 'that it names'}'",
            Remedy("install the package that provides it"),
            url=url,
        )

    def _words(self) -> str:
        return repr(self.driver if isinstance(self.driver, str) else getattr(self.driver, "__name__", self.driver))

    def _chosen(self, translated: Any, url: str) -> dict[str, Any]:
        if isinstance(translated, list | tuple):
            n = len(translated)
            at = 0 if self.number is None and n == 1 else self.number
            if at is None or not 0 <= at < n:
                choose = Remedy(f"choose one with {{}}, from 0 to {n - 1}", number=...)
                raise ReaderError(
                    f"'{url}': the driver {self._words()} returned {counted(n, 'set')} of references, and "
                    f"number={self.number} is none of them",
                    choose if n else Remedy("check the options of the driver"),
                    url=url,
                )
            translated = translated[at]
        if not isinstance(translated, Mapping):
            raise MalformedFileError(
                f"'{url}': the driver {self._words()} returned an object of type '{type(translated).__name__}', not "
                "references. It must return a mapping, a list of mappings, or an object with translate()",
                url=url,
            )
        return dict(translated)


def _way_to(url: str, storage: Storage) -> tuple[str, dict[str, Any]]:
    """Return the path or URL, and the storage options, by which fsspec reads a source."""
    path = local_path(url)
    prefix, backend = storage.find(url)
    is_named = all(getattr(x, "store", None) == url for x in storage.permissions)  # by the user, not by a store
    if path is not None and is_named and not prefix.startswith("memory") and backend is None:
        return str(path), {}
    from virtualstack.storage.filesystem import PROTOCOL

    return f"{PROTOCOL}://{url}", {"store": storage}


def _seen(array: ManifestArray, name: str, location: Location) -> ManifestArray:
    """Return an array whose references to the source have the version that was translated."""
    manifest = array.in_memory()
    names = {name, location.url, Location(location.url).url}
    locations = tuple(location if x.url in names else x for x in manifest.locations)
    return replace(array, manifest=replace(manifest, locations=locations))

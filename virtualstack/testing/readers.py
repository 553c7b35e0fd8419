"""Tests that every reader must pass: subclass :class:`ReaderTests`, and give it files and the format's own library.

This module needs ``pytest``. Values are read through :mod:`virtualstack.reading`.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.location import absolute_url
from virtualstack.manifests import FIRST, ManifestArray, ManifestGroup
from virtualstack.reading import read_array
from virtualstack.storage import Source, Storage
from virtualstack.testing.sources import RecordingSource

__all__ = ["ReaderTests", "arrays_by_path", "difference", "record_reads"]


def arrays_by_path(group: ManifestGroup, /) -> dict[str, ManifestArray]:
    """Return all arrays of a group and its children by absolute path.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> from virtualstack.testing.readers import arrays_by_path
    >>> xr.Dataset({"rain": ("time", [1.0])}).to_netcdf("day.nc", engine="netcdf4", group="gauge")
    >>> list(arrays_by_path(vs.scan(["day.nc"])[0]))
    ['/gauge/rain']
    """
    return {f"{path}/{name}": array for path, child in group.walk() for name, array in child.arrays.items()}


def difference(expected: NDArray[Any], got: NDArray[Any], /) -> str:
    """Return text that describes how two arrays differ, or ``""`` if they are equal in shape and value.

    Fields are compared separately, and NaN equals NaN. Texts are compared as `str`, with bytes read as UTF-8.

    Examples
    --------
    >>> import numpy as np
    >>> from virtualstack.testing.readers import difference
    >>> difference(np.array([1.0, np.nan]), np.array([1.0, np.nan]))
    ''
    """
    if expected.shape != got.shape:
        return f"shape {got.shape}, not {expected.shape}"
    if expected.dtype.names is not None:
        if expected.dtype.names != got.dtype.names:
            return f"fields {got.dtype.names}, not {expected.dtype.names}"
        found = ((name, difference(expected[name], got[name])) for name in expected.dtype.names)
        return next((f"field '{name}': {text}" for name, text in found if text), "")
    if expected.dtype.kind in "OT" or got.dtype.kind in "OT":
        expected, got = _as_text(expected), _as_text(got)
    elif expected.dtype.kind != got.dtype.kind and not {expected.dtype.kind, got.dtype.kind} <= set("iub"):
        return f"dtype {got.dtype}, not {expected.dtype}"
    same = expected == got
    if expected.dtype.kind in "fcmM":
        same |= np.isnan(expected) & np.isnan(got)
    if np.all(same):
        return ""
    first = tuple(int(i) for i in np.argwhere(~np.asarray(same))[0]) if expected.shape else ()
    return f"{np.count_nonzero(~same)} of {expected.size} values differ, first {got[first]!r}, not {expected[first]!r}"


def _as_text(array: NDArray[Any]) -> NDArray[Any]:
    texts = [x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x or "") for x in array.reshape(-1).tolist()]
    return np.array(texts, object).reshape(array.shape)


class _RecordingStorage:
    """Storage whose sources record what is read."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.sources: list[RecordingSource] = []

    def source(self, url: str, **options: Any) -> Source:
        self.sources.append(RecordingSource(self._storage.source(url, **options)))
        return self.sources[-1]

    def may_open(self, url: str) -> bool:
        return self._storage.may_open(url)


def record_reads(reader: Reader, url: str, options: ReadOptions, /) -> tuple[ManifestGroup, list[RecordingSource]]:
    """Read a source, and return its group and the sources that were opened, which list their reads.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> from virtualstack.testing.readers import record_reads
    >>> xr.Dataset({"rain": ("time", [1.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> group, (source,) = record_reads(vs.readers.HDF5(metadata="own"), "day.nc", vs.readers.ReadOptions())
    >>> source.bytes_read > 0
    True
    """
    storage = _RecordingStorage(Storage.from_option(None))
    group = reader.read(url, cast(Storage, storage), options)
    return group, storage.sources


class ReaderTests:
    """Tests that hold for every reader. pytest collects them in a subclass.

    When to use: subclass it in the tests of a reader, also of one in another package. Override ``reader``,
    :meth:`files` and :meth:`expected`.

    Attributes
    ----------
    reader
        Reader to test.
    truncated_to
        Sizes of truncated files, as parts of the whole between 0 and 1.

    Examples
    --------
    >>> import numpy as np
    >>> from virtualstack.testing.readers import ReaderTests
    >>> class TestMyReader(ReaderTests):
    ...     reader = None  # an instance of the reader
    ...
    ...     def files(self, folder):
    ...         return [folder / "a.nc"]  # written here
    ...
    ...     def expected(self, path):
    ...         return {"/rain": np.array([1.0])}  # read with the format's own library
    """

    reader: ClassVar[Reader]
    truncated_to: ClassVar[tuple[float, ...]] = (0.2, 0.6, 0.95)

    def files(self, folder: Path) -> Iterable[Path]:
        """Return the paths of files to read. Write them into ``folder`` if they must be made."""
        raise NotImplementedError

    def expected(self, path: Path) -> Mapping[str, NDArray[Any]]:
        """Return all values of a file, read with the format's own library, by absolute path of the variable."""
        raise NotImplementedError

    def _groups(self, folder: Path) -> Iterator[tuple[Path, ManifestGroup]]:
        for path in self.files(folder):
            yield path, self.reader.read(absolute_url(path), Storage.from_option(None), ReadOptions())

    def test_values_equal_those_of_the_native_library(self, tmp_path: Path) -> None:
        """Check that every variable is equal to the native library's, or carries a refusal."""
        n_compared = 0
        for path, group in self._groups(tmp_path):
            arrays = arrays_by_path(group)
            refused = {x.path for _, child in group.walk() for x in child.refusals if x.kind == "refused"}
            for name, values in self.expected(path).items():
                if name in refused:
                    continue
                assert name in arrays, f"{path}: '{name}' is missing without a refusal"
                got = read_array(arrays[name], (), Storage.from_option(None))
                assert not (text := difference(values, got)), f"{path}: {name}: {text}"
                n_compared += 1
        assert n_compared, "no variable was compared"

    def test_scanning_looks_at_no_chunk(self, tmp_path: Path) -> None:
        """Check that a source with other chunk bytes has the same references."""
        for path in list(self.files(tmp_path)):
            url, options = absolute_url(path), ReadOptions(inline_limit=0)
            group = self.reader.read(url, Storage.from_option(None), options)
            data = bytearray(path.read_bytes())
            for offset, length in _chunk_ranges(group, url):
                data[offset : offset + length] = bytes(byte ^ 0xFF for byte in data[offset : offset + length])
            path.write_bytes(data)
            again = arrays_by_path(self.reader.read(url, Storage.from_option(None), options))
            for name, array in arrays_by_path(group).items():
                ours, other = (_references(x, url) for x in (array, again[name]))
                assert ours == other, f"{path}: {name} depends on the bytes of chunks"

    def test_reader_and_groups_pickle(self, tmp_path: Path) -> None:
        """Check that a pickled reader returns an equal group, and that a pickled group has equal arrays."""
        for path, group in self._groups(tmp_path):
            copy = pickle.loads(pickle.dumps(self.reader))
            again = copy.read(absolute_url(path), Storage.from_option(None), ReadOptions())
            for other in (again, pickle.loads(pickle.dumps(group))):
                for name, array in arrays_by_path(group).items():
                    assert array.equals(arrays_by_path(other)[name]), f"{path}: {name}"

    def test_truncated_files_are_malformed(self, tmp_path: Path) -> None:
        """Check that a file without its end raises `MalformedFileError` with its URL."""
        for path in list(self.files(tmp_path)):
            data = path.read_bytes()
            for part in self.truncated_to:
                cut = tmp_path / f"cut{part}{path.suffix}"
                cut.write_bytes(data[: int(len(data) * part)])
                with pytest.raises(MalformedFileError, match="cut") as caught:
                    self.reader.read(absolute_url(cut), Storage.from_option(None), ReadOptions())
                assert caught.value.url == absolute_url(cut)


def _references(array: ManifestArray, url: str) -> tuple[Any, ...]:
    """Return the content of a manifest, without the version of one source."""
    manifest = array.in_memory()
    locations = [x.url if x.url == url else x for x in manifest.locations]
    return manifest.entries.tobytes(), locations, manifest.encodings, manifest.fills, manifest.inline, array.grid


def _chunk_ranges(group: ManifestGroup, url: str) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for array in arrays_by_path(group).values():
        manifest = array.in_memory()
        for code, location in enumerate(manifest.locations, start=FIRST):
            if location.url == url:
                chosen = manifest.entries[manifest.entries["location"] == code]
                ranges += zip(chosen["offset"].tolist(), chosen["length"].tolist(), strict=True)
    return ranges

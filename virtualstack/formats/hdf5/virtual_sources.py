"""Find the sources of virtual datasets where the HDF5 library looks for them, and open the files that hold them."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from virtualstack.errors import ReaderError, SourceNotFoundError, StorageError
from virtualstack.formats.hdf5.fetch import MetadataSource
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.structures.requests import LostValuesError
from virtualstack.formats.hdf5.tree import FileView
from virtualstack.location import absolute_url, join_url, local_path, split_url
from virtualstack.manifests import ManifestArray
from virtualstack.storage import Source

type OpenSource = Callable[[str, str], ManifestArray | None]
"""Function that opens a dataset by file URL and path; it returns ``None`` if the file does not have the dataset.

It raises the errors of readers, `SourceNotFoundError` if the file does not exist, and `LostValuesError` if the dataset
is refused, or depends on itself.
"""

type Chain = tuple[tuple[str, str], ...]
"""URL and path of the virtual datasets whose sources are being opened, outermost first."""

type ReadDataset = Callable[[str, str, Chain], ManifestArray | None]
"""Function like `OpenSource`, which also takes the chain of virtual datasets that need the dataset."""

_MAX_DEPTH = 16  # levels of virtual datasets of virtual datasets
_MIN_INLINE_BYTES = 1 << 16  # always allowed, so that a compact dataset fits


class Datasets:
    """Datasets of any files, each read once, however many virtual datasets refer to it.

    Otherwise a few datasets that refer to each other in layers could be read billions of times.

    Parameters
    ----------
    read
        Function that reads a dataset.
    """

    def __init__(self, read: ReadDataset) -> None:
        self._read = read
        self._known: dict[tuple[str, str], ManifestArray | LostValuesError | SourceNotFoundError | None] = {}

    def open_sources(self, url: str, path: str, chain: Chain, /) -> OpenSource:
        """Return a function that opens sources of a dataset; ``chain`` has the virtual datasets that need it."""
        chain = (*chain, (url, _normal(path)))

        def open_source(url: str, path: str) -> ManifestArray | None:
            return self._open((url, _normal(path)), chain)

        return open_source

    def _open(self, key: tuple[str, str], chain: Chain) -> ManifestArray | None:
        if key in chain or len(chain) > _MAX_DEPTH:
            names = " of ".join(f"'{path}'" for _, path in (*chain, key)[::-1])
            raise LostValuesError(
                f"a virtual dataset (VDS) whose sources have sources without end: {names[:500]}; the HDF5 library "
                "crashes on some of these"
            )
        if key not in self._known:
            try:
                self._known[key] = self._read(*key, chain)
            except (LostValuesError, SourceNotFoundError) as error:
                self._known[key] = error
        known = self._known[key]
        if isinstance(known, LostValuesError | SourceNotFoundError):
            raise known
        return known


def _normal(path: str) -> str:
    # as in the HDF5 library, for which ".." is an ordinary name
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


class Sources:
    """The sources of one virtual dataset, each opened once.

    Parameters
    ----------
    open_source
        Function that opens a dataset.
    url
        URL of the file of the virtual dataset.
    inline_limit
        Number of bytes of values that sources without references may put into the manifest; at least 64 KiB are
        allowed.
    """

    def __init__(self, open_source: OpenSource, url: str, inline_limit: int) -> None:
        self._open_source = open_source
        self._url = url
        self._limit = max(inline_limit, _MIN_INLINE_BYTES)
        self._files: dict[str, str | None] = {}  # URL by name
        self._arrays: dict[tuple[str, str], ManifestArray | None] = {}  # by file and path
        self._inline = 0

    def need(self, file: str, dataset: str) -> ManifestArray:
        """Open a dataset that must exist."""
        array = self.find(file, dataset)
        if array is not None:
            return array
        where = "the file" if file == "." else f"'{file}'"
        what = f"file '{file}' does not exist" if self._files[file] is None else f"'{dataset}' is not in {where}"
        raise LostValuesError(f"a virtual dataset (VDS) whose source {what}; the HDF5 library would show fill values")

    def find(self, file: str, dataset: str) -> ManifestArray | None:
        """Open a dataset; return ``None`` if it does not exist."""
        if (file, dataset) not in self._arrays:
            self._arrays[file, dataset] = self._look(file, dataset)
        return self._arrays[file, dataset]

    def _look(self, file: str, dataset: str) -> ManifestArray | None:
        """Open a dataset in the first existing file of this name; the storage may record each request."""
        if file in self._files:
            known = self._files[file]
            return None if known is None else self._open(known, dataset)
        for url in file_urls(file, self._url, prefix="HDF5_VDS_PREFIX"):
            try:
                array = self._open(url, dataset)
            except SourceNotFoundError:
                continue
            self._files[file] = url
            return array
        self._files[file] = None
        return None

    def _open(self, url: str, dataset: str) -> ManifestArray | None:
        try:
            array = self._open_source(url, dataset)
        except SourceNotFoundError:
            raise
        except (ReaderError, StorageError) as error:
            raise LostValuesError(
                f"a virtual dataset (VDS) whose source '{dataset}' cannot be opened: {error}"
            ) from error
        if array is not None:
            self._inline += len(array.in_memory().inline)
            if self._inline > self._limit:
                raise LostValuesError(
                    f"a virtual dataset (VDS) whose sources have no references; {self._inline} bytes of their values "
                    f"are more than the inline limit of {self._limit}"
                )
        return array


def file_urls(name: str, url: str, /, *, prefix: str) -> Iterator[str]:
    """Yield the URLs where another file may be, in the order in which the HDF5 library looks.

    ``prefix`` is the environment variable of the library that has further folders.

    A file that is not local may name files beside and below it, and never a local file.
    """
    if name == ".":
        yield url
        return
    main = local_path(url)
    if main is not None:
        yield from (absolute_url(os.path.abspath(path)) for path in _candidates(name, main, os.environ.get(prefix, "")))
        return
    if not name or name.startswith("/") or ".." in name.split("/") or any(mark in name for mark in ":\\?#"):
        raise LostValuesError(f"it needs '{name}', which is another file, looked for only beside and below '{url}'")
    root, key = split_url(url)
    yield join_url(root + key.rpartition("/")[0], name)


def _candidates(name: str, main: Path, prefix: str) -> Iterator[Path]:
    """Yield the paths where the HDF5 library looks for a source file, in its order (H5F_prefix_open_file)."""
    if Path(name).is_absolute():
        yield Path(name)
        name = Path(name).name
    yield from (Path(part, name) for part in prefix.split(":") if part)
    if prefix:
        yield Path(prefix.replace("${ORIGIN}", str(main.parent)), name)
    yield main.parent / name
    yield Path(name)
    yield main.resolve().parent / name


_MAX_OPEN_FILES = 64  # their metadata are kept, usually at most 1 MiB each; those of all sources may not fit in memory


@dataclass(kw_only=True)
class OpenSourceFile:
    """An open file, whose metadata are read at the first request for a dataset."""

    source: Source
    metadata: MetadataSource
    library: Library
    make_view: Callable[[], FileView]
    n_users: int = 0

    @cached_property
    def view(self) -> FileView:
        """The objects of the file."""
        return self.make_view()


class SourceFiles:
    """Files that were opened by URL; the most recently used files are kept."""

    def __init__(self, open_file: Callable[[str], OpenSourceFile]) -> None:
        self._open_file = open_file
        self._known: OrderedDict[str, OpenSourceFile] = OrderedDict()

    @contextmanager
    def use(self, url: str, /) -> Iterator[OpenSourceFile]:
        """Yield an open file; the HDF5 library closes it when it has no more users."""
        file = self._known.get(url) or self._open_file(url)
        self._known[url] = file
        self._known.move_to_end(url)
        if len(self._known) > _MAX_OPEN_FILES:
            self._known.popitem(last=False)
        file.n_users += 1
        try:
            yield file
        finally:
            file.n_users -= 1
            if not file.n_users:
                file.library.close()

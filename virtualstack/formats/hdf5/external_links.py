"""Find the objects that external links lead to, in the groups of other files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from virtualstack.errors import ReaderError, SourceNotFoundError, StorageError
from virtualstack.formats.hdf5.structures.requests import LostValuesError, decode_text
from virtualstack.formats.hdf5.virtual_sources import file_urls
from virtualstack.manifests import ManifestArray, ManifestGroup, Refusal


class _NothingError(Exception):
    """An external link leads to nothing that can be shown; the message is half a sentence."""


@dataclass(slots=True, eq=False)
class ExternalLinks:
    """The external links of a file, with each file that they lead to read once.

    Links of these other files are not followed, so that a few small files cannot show billions of objects.
    """

    url: str
    read: Callable[[str], ManifestGroup]
    _files: dict[str, ManifestGroup | str] = field(default_factory=dict)
    _shown: dict[int, str] = field(default_factory=dict)

    def follow(self, path: str, target: tuple[bytes, bytes], /) -> ManifestArray | ManifestGroup | Refusal:
        """Return the array or group that the link at a path leads to, or the reason why there is none."""
        file, wanted = map(decode_text, target)
        try:
            return self._follow(path, file, wanted)
        except (_NothingError, LostValuesError) as error:
            reason = f"a link to '{wanted}' of '{file}', which is in another file: {error}"
            return Refusal(path=path, reason=reason, kind="noted")

    def _follow(self, path: str, file: str, wanted: str) -> ManifestArray | ManifestGroup | Refusal:
        node = self._open(file)
        *groups, name = [part for part in wanted.split("/") if part not in ("", ".")] or [""]
        for part in groups:
            if part not in node.groups:
                raise _NothingError("it does not exist")
            node = node.groups[part]
        if name in node.arrays:
            return replace(node.arrays[name], name=path)
        refusal = next((x for x in node.refusals if x.path == "/" + "/".join((*groups, name))), None)
        if refusal is not None:
            return replace(refusal, path=path)
        below = node if not name else node.groups.get(name)
        if below is None:
            raise _NothingError("it does not exist")
        first = self._shown.setdefault(id(below), path)
        if first != path:
            raise _NothingError(f"another name of '{first}'")
        return below

    def _open(self, file: str) -> ManifestGroup:
        if file not in self._files:
            self._files[file] = self._look(file)
        found = self._files[file]
        if isinstance(found, str):
            raise _NothingError(found)
        return found

    def _look(self, file: str) -> ManifestGroup | str:
        """Read the first existing file of this name, or return why it cannot be read."""
        for url in file_urls(file, self.url, prefix="HDF5_EXT_PREFIX"):
            try:
                return self.read(url)
            except SourceNotFoundError:
                continue
            except (ReaderError, StorageError) as error:
                return str(error)
        return "the file does not exist"


def with_free_dims(array: ManifestArray, name: str, sizes: Mapping[str, int], /) -> ManifestArray:
    """Return the array of another file with new names for dimensions that have another length here."""
    dims = array.dimension_names or ()
    is_free = [sizes.get(dim, n) == n for dim, n in zip(dims, array.shape, strict=True)]
    renamed = tuple(dim if free else f"{dim}_of_{name}" for dim, free in zip(dims, is_free, strict=True))
    return replace(array, dimension_names=renamed)

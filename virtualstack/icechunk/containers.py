"""Whether a repository may point to where chunks are: its virtual chunk containers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from virtualstack.errors import WriterError
from virtualstack.icechunk.format import NATIVE, url_to_icechunk
from virtualstack.location import Location, split_url

__all__ = ["Containers", "container_prefix"]

_ALIASES = {"s3a": "s3", "gs": "gcs", "gcs": "gs", "az": "abfs", "abfs": "az", "abfss": "az", "azure": "az"}


def container_prefix(url: str, /) -> str:
    """Give the prefix of a container for a source: its bucket or web server, of a local file its folder.

    Icechunk (2.3) reads nothing in containers whose prefix is percent-encoded, but encodes all else in URLs: then it is
    a folder above. There is no container of all local files.

    >>> container_prefix("file:///data/a b/c/d.nc")
    'file:///data/'
    >>> container_prefix("s3://bucket/data/a.nc")
    's3://bucket/'
    """
    root, key = split_url(url_to_icechunk(url))
    folder, slash, _ = key.partition("%")[0].rpartition("/")
    return f"{root}{folder}{slash}" if root == "file:///" else root


@dataclass(frozen=True, slots=True)
class Containers:
    """The virtual chunk containers of a repository.

    Parameters
    ----------
    prefixes
        Of URLs that lie in one.
    """

    prefixes: tuple[str, ...]

    @classmethod
    def of(cls, prefixes: Iterable[str], /) -> Containers:
        """Take what a repository is configured with, without what Icechunk does not read (:func:`container_prefix`)."""
        return cls(tuple(sorted(prefix for prefix in prefixes if "%" not in prefix)))

    def url(self, location: Location, /) -> str | None:
        """Give the URL of a source as the repository has it; ``None`` where no container holds it."""
        if location.url.startswith(NATIVE):
            return location.url
        url = url_to_icechunk(location.url)
        scheme, _, rest = url.partition("://")
        for candidate in (url, f"{_ALIASES.get(scheme, scheme)}://{rest}"):
            if candidate.startswith(self.prefixes):
                return candidate
        return None

    def urls(self, locations: Sequence[Location], /, *, variable: str) -> list[str]:
        """Give the URLs of sources as the repository has them.

        Raises
        ------
        WriterError
            One lies in no container.
        """
        found = []
        for location in locations:
            url = self.url(location)
            if url is None:
                raise self._refused(location, variable)
            found.append(url)
        return found

    def _refused(self, location: Location, variable: str) -> WriterError:
        prefix = container_prefix(location.url)
        if prefix == "file:///":
            return WriterError(
                f"variable '{variable}' has chunks in '{location.url}', for which Icechunk has no virtual chunk "
                "container: move it into a folder whose path begins with ASCII letters and digits alone",
                variable=variable,
                feature="virtual chunk container for 'file:///'",
            )
        there = f"it has {list(self.prefixes)}" if self.prefixes else "it has none"
        return WriterError(
            f"variable '{variable}' has chunks in '{location.url}', and the repository has no virtual chunk container "
            f"for '{prefix}', without which it reads nothing there; {there}. Add one: "
            f"config.set_virtual_chunk_container(icechunk.VirtualChunkContainer('{prefix}', {_store(prefix)})), "
            "repo = icechunk.Repository.open(storage, config, authorize_virtual_chunk_access={...}), "
            "repo.save_config(), and write to a new session",
            variable=variable,
            feature=f"virtual chunk container for '{prefix}'",
        )


def _store(prefix: str) -> str:
    scheme, _, rest = prefix.partition("://")
    match scheme:
        case "file":
            return f"icechunk.local_filesystem_store('{rest}')"
        case "s3" | "s3a":
            return "icechunk.s3_store(region=...)"
        case "gs" | "gcs":
            return "icechunk.gcs_store()"
        case "http" | "https":
            return "icechunk.http_store()"
    return "..."

"""Files of commands that read many: their names, their scan, and their datasets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from virtualstack import accessor, sample  # noqa: F401 - accessor registers vds.virtual
from virtualstack.cli.facts import maybe_dry
from virtualstack.cli.options import read_list
from virtualstack.cli.output import say, wants_progress, worded
from virtualstack.cli.sample import no_sample, write_sample
from virtualstack.dataset.opening import Opening, account_for, open_groups, select_group, where_variables_are
from virtualstack.errors import (
    ReaderError,
    SourceNotFoundError,
    VirtualStackError,
)
from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestGroup
from virtualstack.options import OnError, Unsupported
from virtualstack.printable import did_you_mean, first_names
from virtualstack.readers import ReadOptions
from virtualstack.scanning.many import scan
from virtualstack.scanning.one import read_one
from virtualstack.scanning.result import ScanResult
from virtualstack.storage import StorageLike
from virtualstack.storage.listing import find_urls

_PREFIX = "sample:"


def sample_files(text: str, /, *, is_dry: bool = False) -> tuple[str, ...] | None:
    """Return the local paths of ``sample:<name>``, sorted by name, or ``None`` if the text names no sample.

    The files are written into the folder ``sample/<name>``, unless it exists: cubes may refer to its files. Those of
    an installed package stay there. A dry run writes none.

    Raises
    ------
    UsageError
        The sample does not exist.
    SourceNotFoundError
        The files are not there, and this is a dry run.
    MissingDependencyError
        The package with the files is not installed.
    """
    if not text.startswith(_PREFIX):
        return None
    name = text.removeprefix(_PREFIX)
    if name not in sample.__all__:
        raise no_sample(name)
    if name in sample.INSTALLED:
        return tuple(write_sample(name, None))
    folder = Path("sample", name)
    if folder.exists():
        return tuple(sorted(str(path) for path in folder.iterdir()))
    if is_dry:
        raise SourceNotFoundError(
            f"the files of '{text}' are not there, and a dry run does not write them. Write them with 'virtualstack "
            f"sample {name} {folder}'",
            url=text,
        )
    return tuple(write_sample(name, folder))


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Files of a command, and the options of reading them; see its help."""

    files: tuple[str, ...]
    reader: str | None
    group: str | None
    drop_variables: tuple[str, ...]
    no_decode_times: bool
    unsupported: Unsupported
    inline_limit: int
    unpack: Literal["all", "differing", "never"] | None
    on_error: OnError
    executor: Literal["threads", "processes"] | None
    cache: str | None
    allow: tuple[str, ...]
    storage: Any
    dry_run: bool

    @property
    def is_part(self) -> bool:
        """Whether a reader may take all files as parts of one index, as that of GRIB does."""
        return False


def expand(files: Iterable[str], storage: StorageLike, /, *, is_dry: bool = False) -> list[str]:
    """Return absolute URLs: the files of samples, the matches of patterns, and all other items unchanged."""
    urls: list[str] = []
    for text in (each for file in files for each in read_list(file)):
        paths = sample_files(text, is_dry=is_dry)
        urls += find_urls([text], storage=storage) if paths is None else map(absolute_url, paths)
    return urls


def scan_files(urls: Sequence[str], options: Files, /, *, is_tree: bool = False) -> ScanResult:
    """Scan the files, with all their groups if ``is_tree`` is true.

    With ``--on-error skip``, files that cannot be read are left out.
    """
    with maybe_dry(options.dry_run):  # which keeps what the cache would get in memory
        found = scan(
            urls,
            reader=options.reader,
            executor=options.executor,
            on_error=options.on_error,
            cache=options.cache,
            storage=options.storage,
            progress=wants_progress(),
            options=ReadOptions.from_options(
                group=options.group,
                is_tree=is_tree,
                is_part=options.is_part,
                drop_variables=options.drop_variables,
                unsupported=options.unsupported,
                inline_limit=options.inline_limit,
                allow=options.allow,
            ),
        )
    if not found:
        raise found.errors[0][1]
    for url, error in found.errors:
        say("warning", worded(f"left out '{url}': {error}"))
    read = ReadOptions.from_options(group=options.group, allow=options.allow, inline_limit=options.inline_limit)
    check_dropped(found.urls, options.drop_variables, read, reader=options.reader, storage=options.storage)
    return found


def check_dropped(
    urls: Sequence[str], names: Sequence[str], read: ReadOptions, /, *, reader: Any = None, storage: Any = None
) -> None:
    """Refuse names of variables to leave out that no file has: they are mistyped.

    Parameters
    ----------
    urls
        The files. Most often only the first one is read again.
    names
        Names or paths of variables.
    read
        Options with which the files are read, and which drop no variable.
    reader, storage
        Reader of the files, and access to them.
    """
    missing, there = {name.rpartition("/")[2] for name in names}, set[str]()
    for url in urls if missing else ():
        try:
            root, _ = read_one(url, reader=reader, options=read, storage=storage)
        except VirtualStackError:
            return  # a file may open only without the variable
        nodes = [node for _, node in root.walk()]
        there |= {name for node in nodes for name in node.arrays}
        there |= {x.path.rpartition("/")[2] for node in nodes for x in node.refusals}
        missing -= there
        if not missing:
            return
    if missing:
        name = min(missing)
        raise ReaderError(
            f"no file has the variable '{name}' of --drop-variable.{did_you_mean(name, there)} The files have "
            f"{first_names(sorted(there))}"
        )


def open_trees(found: ScanResult, options: Files, /) -> list[xr.DataTree]:
    """Open the scanned files as one tree each, or as one of all if they are parts of one index."""
    opening = Opening(
        options=found.options,
        storage=found.storage,
        unsupported="skip" if options.unsupported == "skip" else "inline",  # the scan has inlined values
        decode_times=not options.no_decode_times,
        unpack=options.unpack == "all",
    )

    def open_node(root: ManifestGroup) -> xr.DataTree:
        node = opening.node(root, with_children=True)
        account_for(node, opening.unsupported, with_children=True, urls=found.urls)
        return opening.tree(node)

    trees, _, errors = open_groups(found, found.urls, open_node, opening, found.reader, on_error=options.on_error)
    for url, error in errors.items():
        if not trees:
            raise error
        say("warning", worded(f"left out '{url}': {error}"))
    return trees


def open_scanned(found: ScanResult, options: Files, /) -> list[xr.Dataset]:
    """Open the scanned files as one dataset each, or as one of all if they are parts of one index."""
    datasets = found.datasets(
        decode_times=not options.no_decode_times,
        unpack=options.unpack == "all",
        unsupported="skip" if options.unsupported == "skip" else "raise",  # the scan has inlined values
        on_error=options.on_error,
    )
    for dataset in datasets:
        if not dataset.variables:
            url = dataset.encoding.get("source", found.urls[0])
            root = next((root for root in found if root.url == url), found[0])
            where = where_variables_are(select_group(root, options.group), options.group)
            raise ReaderError(
                where or f"there are no variables to reference in '{options.group or '/'}' of '{url}'", url=url
            )
    return datasets

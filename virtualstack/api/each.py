"""Scan and open each of many sources, before they are joined."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import xarray as xr

from virtualstack.combine import Nested, flatten, nest_like
from virtualstack.dataset import declared_dataset
from virtualstack.dataset.opening import Opening, account_for, open_groups, warn_of_groups, what_is_left_out
from virtualstack.errors import CombineError, SourceNotFoundError, VirtualStackError
from virtualstack.formats.base import Reader
from virtualstack.manifests import ManifestGroup, Refusal
from virtualstack.options import OnError
from virtualstack.printable import counted
from virtualstack.scanning.many import scan
from virtualstack.storage import Storage
from virtualstack.storage.handles import Handle, find_handle, is_one, reach
from virtualstack.storage.listing import find_each
from virtualstack.warning import warn

type Path = str | os.PathLike[str]


def preprocessed[T: (xr.Dataset, xr.DataTree)](
    kind: type[T], opened: T, preprocess: Callable[[T], Any], url: str | None
) -> T:
    """Return the dataset that ``preprocess=`` makes of an item, after checks, with the URL of its source."""
    try:
        made = preprocess(opened)
    except VirtualStackError as error:
        error.add_note(f"in preprocess= for '{url}'")
        raise
    except Exception as error:  # code of the user may raise any error, and does not name the file
        raise CombineError(
            f"preprocess= raised {type(error).__name__} for '{url}': {error}", property="preprocess", left_url=url
        ) from error
    if not isinstance(made, kind):
        raise TypeError(f"preprocess= returned a {type(made).__name__} for '{url}'; it must return a {kind.__name__}")
    if url is not None:
        made.encoding.setdefault("source", url)
    return _declared(made)


def _declared[T: (xr.Dataset, xr.DataTree)](item: T) -> T:
    """Return a copy in which edits of CF attributes apply to the arrays, before files are joined."""
    if isinstance(item, xr.Dataset):
        return declared_dataset(item)
    tree: xr.DataTree = item.copy()
    for node in tree.subtree:
        node.dataset = declared_dataset(node.to_dataset(inherit=False))
    return tree


@dataclass(frozen=True, slots=True)
class _Opened[T]:
    """Opened datasets or trees, nested as the URLs were, the errors of files by URL, and what reads values."""

    nested: Nested[T]
    errors: Mapping[str, Exception]
    storage: Storage

    def left_out(self) -> tuple[Refusal, ...]:
        """Return notes on the files that could not be opened, and warn of them; raise if these are all files."""
        if self.errors:
            _warn_of_errors(self.errors, n=len(list(flatten(self.nested))) + len(self.errors))
        return tuple(Refusal(path=url, reason=f"{type(x).__name__}: {x}") for url, x in self.errors.items())


def open_all[T: (xr.Dataset, xr.DataTree)](
    kind: type[T],
    urls: Nested[Any],
    open_one: Callable[[ManifestGroup, Opening], T],
    opening: Opening,
    /,
    *,
    preprocess: Callable[[T], T] | None,
    given: Sequence[str],
    reader: str | Reader | None,
    executor: Any,
    on_error: OnError,
    cache: Path | None,
    progress: Any,
    with_children: bool,
    is_one_index: bool,
) -> _Opened[T]:
    """Scan and open all sources.

    The sources are opened as one where they are parts of one index and their reader assembles such parts. Datasets and
    trees that are already open keep their positions.
    """
    handles: list[Handle] = []
    nested = _expanded(urls, kind, opening.storage, handles)
    opening = replace(opening, storage=reach(handles, opening.storage))
    items: list[str | T] = list(flatten(cast(Nested[str | T], nested)))
    if not items:
        raise SourceNotFoundError("there are no files to open: the list of URLs is empty")
    listed = [item for item in items if isinstance(item, str)]
    if given and not listed:
        raise TypeError(f"{list(given)} are options for opening files, but only datasets are given")
    opening = replace(opening, storage=opening.storage.with_users(listed)[1])
    is_skipping = opening.unsupported == "skip"
    nodes: list[ManifestGroup] = []

    def open_node(root: ManifestGroup) -> T:
        node = opening.node(root, with_children=with_children)
        nodes.append(node)
        if not is_skipping:
            account_for(node, opening.unsupported, with_children=with_children, urls=listed)
        return prepared(open_one(node, opening), node.url)

    def prepared(item: T, url: str | None) -> T:
        return item if preprocess is None else preprocessed(kind, item, preprocess, url)

    scanned = scan(
        map(Handle, listed),
        reader=reader,
        storage=opening.storage,
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        options=replace(opening.options, is_part=is_one_index and len(listed) == len(items)),
    )
    found, is_one, errors = open_groups(scanned, scanned.urls, open_node, opening, reader, on_error=on_error)
    errors = dict(scanned.errors) | errors
    if nodes and not with_children:
        warn_of_groups(nodes[0], opening.options.group)
    if is_skipping:
        _warn_of_refused(nodes, with_children=with_children)
    if is_one and len(listed) == len(items):
        return _Opened(cast(Nested[T], found), {}, opening.storage)
    rest = iter(found)
    there = [item for item in items if not isinstance(item, str) or item not in errors]
    found = [next(rest) if isinstance(item, str) else prepared(_declared(item.copy()), _source(item)) for item in there]
    if not errors:
        return _Opened(nest_like(nested, found), {}, opening.storage)
    _check_places(nested, errors)
    return _Opened(found, errors, opening.storage)


def _source(item: xr.Dataset | xr.DataTree) -> str | None:
    return (item if isinstance(item, xr.Dataset) else item.to_dataset()).encoding.get("source")


def _expanded(
    urls: Nested[Any], kind: type[xr.Dataset | xr.DataTree], storage: Storage, handles: list[Handle]
) -> list[Any]:
    """Return the URLs and open items in lists, with patterns replaced by their matches; handles are added to a list."""
    if isinstance(urls, str | os.PathLike):
        return find_each([urls], storage=storage)[0]
    if isinstance(urls, kind):
        return [urls]
    if isinstance(urls, xr.Dataset | xr.DataTree):
        other = "open_virtual_mfdatatree" if isinstance(urls, xr.DataTree) else "open_virtual_mfdataset"
        raise TypeError(f"a {type(urls).__name__} is not a {kind.__name__}. Use {other}")
    if is_one(urls) or isinstance(urls, xr.DataArray) or not isinstance(urls, Iterable):
        handles.append(find_handle(urls))
        return [handles[-1].url]
    items, found = list(urls), list[Any]()
    matches = iter(find_each([x for x in items if isinstance(x, str | os.PathLike)], storage=storage))
    for item in items:
        if isinstance(item, str | os.PathLike):
            found += next(matches)
        elif is_one(item) or isinstance(item, xr.Dataset | xr.DataTree):
            found += _expanded(item, kind, storage, handles)
        else:
            found.append(_expanded(item, kind, storage, handles))
    return found


def _check_places(nested: Sequence[Any], errors: Mapping[str, Exception]) -> None:
    """Raise the first error if the files are in lists of lists, where leaving one out would move the others."""
    if any(isinstance(item, list) for item in nested):
        url, error = next(iter(errors.items()))
        error.add_note(
            f"'{url}' cannot be left out with on_error='skip': it has a position in nested lists, and other "
            "files would move there. Leave its row or column out, or order files by their coordinates "
            "(combine='by_coords')"
        )
        raise error


def _warn_of_errors(errors: Mapping[str, Exception], *, n: int) -> None:
    url, error = next(iter(errors.items()))
    if len(errors) == n:
        raise error
    warn(
        f"left out {len(errors):,} of {n:,} files that could not be opened, the first is '{url}': {error}. "
        ".virtual.report() lists all of them"
    )


def _warn_of_refused(nodes: Sequence[ManifestGroup], *, with_children: bool) -> None:
    """Warn once for all files about variables that were left out."""
    said = [x for node in nodes if (x := what_is_left_out(node, with_children=with_children)) is not None]
    if said:
        warn(f"{said[0]} (and of {counted(len(said) - 1, 'more file')})" if said[1:] else said[0])

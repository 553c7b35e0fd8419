"""Opening many sources as one virtual dataset or tree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, Unpack, cast

import xarray as xr

from virtualstack.combine import (
    Combine,
    CombineOptions,
    Join,
    Labelling,
    Nested,
    combine_trees,
    flatten,
    nest_like,
)
from virtualstack.combine import combine_datasets as combine_by
from virtualstack.dataset import declared_dataset, get_refusals, with_refusals
from virtualstack.dataset.opening import (
    OnError,
    Opening,
    Unsupported,
    account_for,
    as_one,
    open_each,
    open_whole,
    what_is_left_out,
)
from virtualstack.errors import CombineError, SourceNotFoundError, StorageError, VirtualStackError
from virtualstack.formats.base import Reader
from virtualstack.manifests import ManifestGroup, Refusal
from virtualstack.scanning import scan
from virtualstack.storage import Allow, StorageLike
from virtualstack.storage.listing import find_urls
from virtualstack.warning import warn

__all__ = ["OpenOptions", "combine_datasets", "open_virtual_mfdataset", "open_virtual_mfdatatree"]

type Path = str | os.PathLike[str]


class _TreeOptions(TypedDict, total=False):
    reader: str | Reader | None
    group: str | None
    storage: StorageLike
    drop_variables: str | Iterable[str]
    decode_times: bool | None
    unsupported: Unsupported
    inline_limit: int | str
    allow: Allow


class OpenOptions(_TreeOptions, total=False):
    """How each file is opened: parameters of :func:`open_virtual_dataset`."""

    loadable_variables: str | Iterable[str] | None


def open_virtual_mfdataset(
    urls: Nested[Path | xr.Dataset],
    /,
    *,
    combine: Combine = "by_coords",
    concat_dim: str | Sequence[str | None] | None = None,
    join: Join = "exact",
    tolerance: Any = None,
    preprocess: Callable[[xr.Dataset], xr.Dataset] | None = None,
    new_dim: Mapping[str, Labelling] | None = None,
    unpack: bool | Literal["differing"] = False,
    combine_options: Mapping[str, Any] | None = None,
    executor: Any = None,
    on_error: OnError = "raise",
    cache: Path | None = None,
    progress: Any = None,
    **open_options: Unpack[OpenOptions],
) -> xr.Dataset:
    """Open many files as one dataset of virtual variables; datasets that are open are joined with them.

    Nothing is dropped, filled in or overridden unasked. Reads the metadata of all files, their loadable variables, and
    the values of variables that must be the same in all and are not provably so.

    Parameters
    ----------
    urls
        A pattern such as ``"data/*.nc"`` or ``"s3://bucket/2020/**/*.nc"``, or a list of paths, URLs and patterns; or
        lists of lists, for ``combine="nested"`` along several dimensions. What a pattern matches is in natural order.
        A virtual dataset may stand in the place of a URL; it is joined as it is, after ``preprocess``.
    combine
        ``"by_coords"``: dimension coordinates tell the order, whatever that of ``urls``. ``"nested"``: files are joined
        in the order of ``urls``.
    concat_dim
        With ``combine="nested"``: the dimension that files are joined along, one for each level of lists, outermost
        first; ``None`` in its place puts files of other variables side by side. A dimension that no file has is new.
    join
        Of coordinates along other dimensions: ``"exact"`` raises where they differ; ``"outer"``, ``"inner"``,
        ``"left"``, ``"right"`` as in :func:`xarray.align`. What is not there reads as missing: labels that a file lacks
        are EMPTY; with ``"outer"``, variables that a file lacks and tiles for which there is no file are ABSENT.
    tolerance
        How far coordinates, and floats of other variables that must be the same, may lie apart to be taken for those of
        the first file; a number, or a timedelta for dates.
    preprocess
        Applied to the dataset of each file; its URL is ``dataset.encoding["source"]``.
    new_dim
        Dimensions that the files lack, with where their labels are from: a :class:`FromName`, a :class:`FromAttribute`
        or a function of the dataset.
    unpack
        As in :func:`open_virtual_dataset`; ``"differing"`` unpacks the variables that files pack differently.
    combine_options
        ``data_vars``, ``coords``, ``compat`` ("equals" or "override"), ``combine_attrs`` and ``fill_value``, as in
        :func:`xarray.concat`. By default attributes that differ are left out, and noted in ``.virtual.report()``;
        ``units`` that differ are an error.
    executor, cache, progress
        See :func:`scan`.
    on_error
        Whether a file that cannot be opened raises, or is left out with one warning and named in
        ``.virtual.report()`` (``"skip"``).
    **open_options
        Other parameters of :func:`open_virtual_dataset`, ``storage`` among them. Like ``unpack=True``, they are about
        files, and datasets that are open already stay as they were opened.

    Returns
    -------
    xarray.Dataset
        With the accessor ``.virtual``.

    Raises
    ------
    CombineError
        The files do not fit; the message says where, in which files, how far, and what can be done.
    ReaderError, StorageError
        A file cannot be opened, and ``on_error`` is ``"raise"``; or nothing matches a pattern.
    TypeError
        An option is not known, or is about opening files, and none is opened.
    """
    how = CombineOptions.from_options(
        combine=combine,
        concat_dim=concat_dim,
        join=join,
        tolerance=tolerance,
        new_dim=new_dim,
        unpack=unpack,
        decode_times=open_options.get("decode_times"),
        combine_options=combine_options,
    )
    opening = _opening("open_virtual_mfdataset", open_options, OpenOptions, unpack is True, is_tree=False)
    loadable = open_options.get("loadable_variables")
    wanted = None if loadable is None else {loadable} if isinstance(loadable, str) else set(loadable)
    unknown = set(wanted or ())

    def open_one(node: ManifestGroup) -> xr.Dataset:
        unknown.difference_update(node.arrays)
        its = None if wanted is None else wanted & node.arrays.keys()
        return opening.dataset(node, loadable_variables=its)

    opened = _open_all(
        xr.Dataset,
        urls,
        open_one,
        opening,
        preprocess=preprocess,
        given=_given(open_options, unpack is True),
        is_one_index=how.dims is None and preprocess is None and not new_dim,
        reader=open_options.get("reader"),
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        with_children=False,
    )
    if unknown:
        raise KeyError(f"loadable_variables names {sorted(unknown)}, which no file has")
    combined = combine_by(opened.nested, how, storage=opening.storage)
    return with_refusals(combined, (*get_refusals(combined), *opened.left_out))


def combine_datasets(
    datasets: Nested[xr.Dataset],
    /,
    *,
    combine: Combine = "by_coords",
    concat_dim: str | Sequence[str | None] | None = None,
    join: Join = "exact",
    tolerance: Any = None,
    new_dim: Mapping[str, Labelling] | None = None,
    unpack: Literal[False, "differing"] = False,
    combine_options: Mapping[str, Any] | None = None,
    storage: StorageLike = None,
) -> xr.Dataset:
    """Combine virtual datasets that are open already, by the rules of :func:`open_virtual_mfdataset`.

    Reads the values of variables that must be the same in all datasets and are not provably so, and nothing else.

    Parameters
    ----------
    datasets
        A list of datasets, or lists of lists for ``combine="nested"`` along several dimensions.
    combine, concat_dim, join, tolerance, new_dim, unpack, combine_options
        See :func:`open_virtual_mfdataset`.
    storage
        See :func:`open_virtual_dataset`.

    Returns
    -------
    xarray.Dataset
        With the accessor ``.virtual``.

    Raises
    ------
    CombineError
        The datasets do not fit; the message says where, how far, and what can be done.
    """
    if unpack not in (False, "differing"):
        raise ValueError(f"unpack={unpack!r}; for datasets that are open it is False or 'differing'")
    how = CombineOptions.from_options(
        combine=combine,
        concat_dim=concat_dim,
        join=join,
        tolerance=tolerance,
        new_dim=new_dim,
        unpack=unpack,
        combine_options=combine_options,
    )
    nested: Nested[Any] = [datasets] if isinstance(datasets, xr.Dataset) else datasets
    for item in flatten(nested):
        if not isinstance(item, xr.Dataset):
            raise TypeError(
                f"combine_datasets() takes datasets, not a {type(item).__name__}: open_virtual_mfdataset takes URLs "
                "and datasets, open_virtual_mfdatatree URLs and trees"
            )
    return combine_by(nest_like(nested, map(declared_dataset, flatten(nested))), how, storage=storage)


def open_virtual_mfdatatree(
    urls: Nested[Path | xr.DataTree],
    /,
    *,
    combine: Combine = "by_coords",
    concat_dim: str | Sequence[str | None] | None = None,
    join: Join = "exact",
    tolerance: Any = None,
    preprocess: Callable[[xr.DataTree], xr.DataTree] | None = None,
    new_dim: Mapping[str, Labelling] | None = None,
    unpack: bool | Literal["differing"] = False,
    combine_options: Mapping[str, Any] | None = None,
    executor: Any = None,
    on_error: OnError = "raise",
    cache: Path | None = None,
    progress: Any = None,
    **open_options: Unpack[_TreeOptions],
) -> xr.DataTree:
    """Open many files with groups as one tree of virtual datasets, combined node by node.

    Parameters are those of :func:`open_virtual_mfdataset`, with trees in place of datasets. All files must have the
    same groups. A group without the dimension that others are joined along must be the same in all files.

    Raises
    ------
    CombineError
        A group is absent in some files, or groups do not fit; a note on the error names the group.
    ReaderError, StorageError
        A file cannot be opened, and ``on_error`` is ``"raise"``; or nothing matches a pattern.
    """
    how = CombineOptions.from_options(
        combine=combine,
        concat_dim=concat_dim,
        join=join,
        tolerance=tolerance,
        new_dim=new_dim,
        unpack=unpack,
        decode_times=open_options.get("decode_times"),
        combine_options=combine_options,
    )
    opening = _opening("open_virtual_mfdatatree", open_options, _TreeOptions, unpack is True, is_tree=True)

    def open_one(node: ManifestGroup) -> xr.DataTree:
        return opening.tree(node)

    opened = _open_all(
        xr.DataTree,
        urls,
        open_one,
        opening,
        preprocess=preprocess,
        given=_given(open_options, unpack is True),
        is_one_index=how.dims is None and preprocess is None and not new_dim,
        reader=open_options.get("reader"),
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        with_children=True,
    )
    combined = combine_trees(opened.nested, how, storage=opening.storage)
    if opened.left_out:
        root = combined.to_dataset()
        combined.dataset = with_refusals(root, (*get_refusals(root), *opened.left_out))
    return combined


def _opening(function: str, options: Mapping[str, Any], known: Any, unpack: bool, *, is_tree: bool) -> Opening:
    """Take the options that are not about how files are described, or combined.

    Raises
    ------
    TypeError
        One is not known.
    """
    unknown = sorted(options.keys() - known.__optional_keys__)
    if unknown:
        raise TypeError(
            f"{function}() got the unexpected keywords {unknown}; those of how files are joined belong into "
            f"combine_options=, and each file is opened with {sorted(known.__optional_keys__)}"
        )
    rest = {key: value for key, value in options.items() if key not in ("reader", "loadable_variables")}
    return Opening.from_options(unpack=unpack, is_tree=is_tree, **rest)


def _preprocessed[T: (xr.Dataset, xr.DataTree)](
    kind: type[T], opened: T, preprocess: Callable[[T], Any], url: str | None
) -> T:
    """Check what preprocess= gives, and let it know where it is from."""
    try:
        made = preprocess(opened)
    except VirtualStackError as error:
        error.add_note(f"in preprocess= for '{url}'")
        raise
    except Exception as error:  # code of the user's raises what it likes, and does not name the file
        raise CombineError(
            f"preprocess= raised {type(error).__name__} for '{url}': {error}", property="preprocess", left_url=url
        ) from error
    if not isinstance(made, kind):
        raise TypeError(f"preprocess= gave a {type(made).__name__} for '{url}'; it must give a {kind.__name__}")
    if url is not None:
        made.encoding.setdefault("source", url)
    return _declared(made)


def _declared[T: (xr.Dataset, xr.DataTree)](item: T) -> T:
    """Let edits of CF attributes count before files are joined."""
    if isinstance(item, xr.Dataset):
        return declared_dataset(item)
    tree: xr.DataTree = item.copy()
    for node in tree.subtree:
        node.dataset = declared_dataset(node.to_dataset(inherit=False))
    return tree


# -- opening each ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Opened[T]:
    """What was opened, nested as the URLs were, and notes on what was not."""

    nested: Nested[T]
    left_out: tuple[Refusal, ...]


def _open_all[T: (xr.Dataset, xr.DataTree)](
    kind: type[T],
    urls: Nested[Any],
    open_one: Callable[[ManifestGroup], T],
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
    """Scan and open all sources; as one, where that is asked for and their reader makes one group of all.

    What is open already stays in its place.

    Raises
    ------
    SourceNotFoundError
        There are none.
    TypeError
        All are open already, and options are given that are about files.
    ReaderError, StorageError
        One cannot be opened, and ``on_error`` is "raise"; or none can be.
    """
    nested = _expanded(urls, kind, opening.storage)
    items: list[str | T] = list(flatten(cast(Nested[str | T], nested)))
    if not items:
        raise SourceNotFoundError("there are no files to open: the list of URLs is empty")
    listed = [item for item in items if isinstance(item, str)]
    if given and not listed:
        raise TypeError(f"there is no file among what is to be joined, and {list(given)} say how files are opened")
    is_skipping = opening.unsupported == "skip"
    nodes: list[ManifestGroup] = []

    def open_node(root: ManifestGroup) -> T:
        node = opening.node(root)
        nodes.append(node)
        if not is_skipping:
            account_for(node, opening.unsupported, with_children=with_children)
        return prepared(open_one(node), node.url)

    def prepared(item: T, url: str | None) -> T:
        return item if preprocess is None else _preprocessed(kind, item, preprocess, url)

    scanned = scan(
        listed,
        reader=reader,
        storage=opening.storage,
        executor=executor,
        on_error=on_error,
        cache=cache,
        progress=progress,
        options=replace(opening.options, is_part=is_one_index and len(listed) == len(items)),
    )
    outcomes = open_each(scanned, scanned.urls, lambda root: open_whole(root, open_node), on_error=on_error)
    errors = dict(scanned.errors)
    errors |= {url: x for url, x in zip(scanned.urls, outcomes, strict=True) if isinstance(x, Exception)}
    opened = [x for x in outcomes if not isinstance(x, Exception)]
    found, is_one = as_one(opened, open_node, opening, reader)
    if is_skipping:
        _warn_of_refused(nodes, with_children=with_children)
    if is_one and len(listed) == len(items):
        return _Opened(cast(Nested[T], found), ())
    rest = iter(found)
    there = [item for item in items if not isinstance(item, str) or item not in errors]
    found = [next(rest) if isinstance(item, str) else prepared(_declared(item.copy()), _source(item)) for item in there]
    if not errors:
        return _Opened(nest_like(nested, found), ())
    _check_places(nested, errors)
    _warn_of_errors(errors, n=len(items))
    return _Opened(found, tuple(Refusal(path=url, reason=f"{type(x).__name__}: {x}") for url, x in errors.items()))


def _given(options: Mapping[str, Any], is_unpacking: bool) -> list[str]:
    """Name the options that are about how files are opened; storage is about reading values, too."""
    return [*sorted(options.keys() - {"storage", "decode_times"}), *(["unpack=True"] if is_unpacking else [])]


def _source(item: xr.Dataset | xr.DataTree) -> str | None:
    return (item if isinstance(item, xr.Dataset) else item.to_dataset()).encoding.get("source")


def _expanded(urls: Nested[Any], kind: type[xr.Dataset | xr.DataTree], storage: StorageLike) -> list[Any]:
    """Return lists of URLs, with what patterns match in their places, and of what is open already."""
    if isinstance(urls, str | os.PathLike):
        return find_urls([urls], storage=storage)
    if isinstance(urls, kind):
        return [urls]
    if isinstance(urls, xr.Dataset | xr.DataTree):
        other = "open_virtual_mfdatatree" if isinstance(urls, xr.DataTree) else "open_virtual_mfdataset"
        raise TypeError(f"a {type(urls).__name__} is no {kind.__name__}: {other} joins such")
    if isinstance(urls, bytes | Mapping | xr.DataArray) or not isinstance(urls, Iterable):
        raise StorageError(
            f"{urls!r:.200} is no path or URL, but of type '{type(urls).__name__}'; give text, a pathlib.Path, or a "
            "list of such"
        )
    found: list[Any] = []
    for item in urls:
        if isinstance(item, str | os.PathLike | xr.Dataset | xr.DataTree):
            found += _expanded(item, kind, storage)
        else:
            found.append(_expanded(item, kind, storage))
    return found


def _check_places(nested: Sequence[Any], errors: Mapping[str, Exception]) -> None:
    """Raise the first error where each file has its place in lists of lists: the others would move up."""
    if any(isinstance(item, list) for item in nested):
        url, error = next(iter(errors.items()))
        error.add_note(
            f"'{url}' cannot be left out with on_error='skip': it has a place in lists of lists, and others would move "
            "there; leave its row or column out, or order files by their coordinates (combine='by_coords')"
        )
        raise error


def _warn_of_errors(errors: Mapping[str, Exception], *, n: int) -> None:
    url, error = next(iter(errors.items()))
    if len(errors) == n:
        raise error
    warn(
        f"left out {len(errors):,} of {n:,} files that could not be opened, first '{url}': {error}; "
        ".virtual.report() names all"
    )


def _warn_of_refused(nodes: Sequence[ManifestGroup], *, with_children: bool) -> None:
    """Warn once for all files."""
    said = [x for node in nodes if (x := what_is_left_out(node, with_children=with_children)) is not None]
    if said:
        warn(f"{said[0]} (and of {len(said) - 1:,} more files)" if said[1:] else said[0])

"""Opening a source as a virtual dataset or tree."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import Literal

import xarray as xr

from virtualstack.dataset import to_dataset
from virtualstack.errors import ReaderError, UnsupportedFeatureError
from virtualstack.manifests import ManifestGroup
from virtualstack.readers.base import Reader, ReadOptions
from virtualstack.scan import scan
from virtualstack.sizes import byte_count
from virtualstack.storage import Storage, StorageLike
from virtualstack.storage.listing import found_url

__all__ = [
    "Unsupported",
    "account_for",
    "open_virtual_dataset",
    "open_virtual_datatree",
    "read_options",
    "select_group",
    "to_tree",
]

type Unsupported = Literal["inline", "raise", "skip"]


def open_virtual_dataset(
    url: str | os.PathLike[str],
    /,
    *,
    reader: str | Reader | None = None,
    group: str | None = None,
    storage: StorageLike = None,
    loadable_variables: str | Iterable[str] | None = None,
    drop_variables: str | Iterable[str] = (),
    decode_times: bool | None = None,
    unpack: bool = False,
    unsupported: Unsupported = "inline",
    inline_limit: int | str = "1 MiB",
) -> xr.Dataset:
    """Open a file as a dataset of virtual variables; reads its metadata, no chunk but those of loadable variables.

    Characters along the last dimension are text from here on where ``xr.open_dataset`` takes them for it, which depends
    on all variables of the file.

    Parameters
    ----------
    url
        Local path or URL.
    reader
        Name of a reader (see :func:`list_readers`) or a reader with options; found out by default.
    group
        Path of a group in the file, such as ``"science/grids"``; the root by default.
    storage
        How the source is reached: nothing for local files, http(s), and buckets reachable with the environment's or
        without credentials; ``{"s3://bucket/": {...}}``, or an obstore or fsspec object otherwise. Remembered by URL
        prefix for reading values later in this process.
    loadable_variables
        Names of variables to load and decode; by default the dimension coordinates.
    drop_variables
        Names of variables to leave out; they are not looked at but to tell text from single letters.
    decode_times
        Whether loaded and unpacked times become dates; by default they do.
    unpack
        Let the chunks of virtual variables decode to what ``xr.open_dataset`` makes of them, bit by bit: missing
        values, scale and offset, ``_Unsigned``, times. Files that pack differently can be joined then. What has no
        fixed dtype once decoded (text, dates of other calendars) stays as it is stored, and is ``packed`` in
        ``report()``. Reading a date outside of 1677 to 2262 raises.
    unsupported
        What to do with a variable that has no byte-range form: ``"inline"`` its values in the manifest up to
        ``inline_limit``, and raise beyond; ``"raise"``; or ``"skip"`` it, named in one warning and in ``report()``.
    inline_limit
        Bytes of values a variable, as a number or such as ``"1 MiB"``.

    Returns
    -------
    xarray.Dataset
        With the accessor ``.virtual``.

    Raises
    ------
    ReaderError
        No reader knows the file, it is damaged, or a variable is refused; the message says which and what to do.
    StorageError
        The source cannot be read.
    """
    root, store = _read(url, reader, group, storage, drop_variables, unsupported, inline_limit)
    node = select_group(root, group)
    account_for(node, unsupported, with_children=False)
    return to_dataset(
        node,
        storage=store,
        loadable_variables=loadable_variables,
        decode_times=decode_times,
        unpack=unpack,
        inline_limit=_inline_limit(unsupported, inline_limit),
        skips=unsupported == "skip",
    )


def open_virtual_datatree(
    url: str | os.PathLike[str],
    /,
    *,
    reader: str | Reader | None = None,
    group: str | None = None,
    storage: StorageLike = None,
    drop_variables: str | Iterable[str] = (),
    decode_times: bool | None = None,
    unpack: bool = False,
    unsupported: Unsupported = "inline",
    inline_limit: int | str = "1 MiB",
) -> xr.DataTree:
    """Open a file with groups as a tree of virtual datasets; dimension coordinates are loaded.

    Parameters are those of :func:`open_virtual_dataset`; ``group`` names the group that becomes the root.

    Raises
    ------
    ReaderError
        As for :func:`open_virtual_dataset`.
    StorageError
        The source cannot be read.
    """
    root, store = _read(url, reader, group, storage, drop_variables, unsupported, inline_limit)
    node = select_group(root, group)
    account_for(node, unsupported, with_children=True)
    limit = _inline_limit(unsupported, inline_limit)
    skips = unsupported == "skip"
    return to_tree(node, storage=store, decode_times=decode_times, unpack=unpack, inline_limit=limit, skips=skips)


def to_tree(
    node: ManifestGroup,
    /,
    *,
    storage: Storage,
    decode_times: bool | None = None,
    unpack: bool = False,
    inline_limit: int = 1 << 20,
    skips: bool = False,
) -> xr.DataTree:
    """Make the tree of virtual datasets of a group and those below it; reads the bytes of dimension coordinates.

    Raises
    ------
    ReaderError
        Groups do not form one tree, or a coordinate cannot be decoded.
    StorageError
        Values of a coordinate cannot be read.
    """
    datasets = {
        path or "/": to_dataset(
            child, storage=storage, decode_times=decode_times, unpack=unpack, inline_limit=inline_limit, skips=skips
        )
        for path, child in node.walk()
    }
    try:
        return xr.DataTree.from_dict(datasets)
    except ValueError as error:  # coordinates of a group contradict its parent's
        raise ReaderError(
            f"'{node.url}': its groups do not form one tree: {error}; open them one by one with group=", url=node.url
        ) from error


def _read(
    url: str | os.PathLike[str],
    reader: str | Reader | None,
    group: str | None,
    storage: StorageLike,
    drop_variables: str | Iterable[str],
    unsupported: Unsupported,
    inline_limit: int | str,
) -> tuple[ManifestGroup, Storage]:
    options = read_options(
        group=group, drop_variables=drop_variables, unsupported=unsupported, inline_limit=inline_limit
    )
    (root,) = scan([found_url(url)], reader=reader, storage=storage, options=options)
    return root, Storage.of(storage)


def read_options(
    *,
    group: str | None = None,
    drop_variables: str | Iterable[str] = (),
    unsupported: Unsupported = "inline",
    inline_limit: int | str = "1 MiB",
) -> ReadOptions:
    """Give what readers are told of the parameters of :func:`open_virtual_dataset`.

    Raises
    ------
    ValueError
        A value is not known.
    """
    if unsupported not in ("inline", "raise", "skip"):
        raise ValueError(f"unsupported={unsupported!r}; it is 'inline', 'raise' or 'skip'")
    return ReadOptions(
        group=group,
        drop_variables=frozenset([drop_variables] if isinstance(drop_variables, str) else drop_variables),
        inline_limit=_inline_limit(unsupported, inline_limit),
    )


def _inline_limit(unsupported: Unsupported, inline_limit: int | str) -> int:
    return 0 if unsupported == "raise" else byte_count(inline_limit, option="inline_limit")


def select_group(root: ManifestGroup, path: str | None, /) -> ManifestGroup:
    """Give the group at a path, the root for ``None``.

    Raises
    ------
    ReaderError
        There is none; the message lists what there is.
    """
    try:
        node = root[path or ""]
    except KeyError as error:
        raise ReaderError(f"'{root.url}': {error.args[0]}", url=root.url) from error
    if not isinstance(node, ManifestGroup):
        raise ReaderError(f"'{path}' of '{root.url}' is a variable, not a group", url=root.url)
    return node


def account_for(
    node: ManifestGroup, unsupported: Unsupported, /, *, with_children: bool, dropped: Iterable[str] = ()
) -> None:
    """Raise, or warn with ``unsupported="skip"``, for the variables that the reader refused and nobody has dropped.

    Raises
    ------
    UnsupportedFeatureError
        There are such; the message lists them with the reasons.
    """
    groups = [group for _, group in node.walk()] if with_children else [node]
    refused = [refusal for group in groups for refusal in group.refusals if refusal.kind == "refused"]
    names = {x: x.path.rsplit("/", 1)[-1] for x in refused}
    refused = [x for x in refused if names[x] not in set(dropped)]
    if not refused:
        return
    listed = "; ".join(f"'{x.path}': {x.reason}" for x in refused[:5])
    listed += f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
    if unsupported == "skip":
        warnings.warn(f"'{node.url}': left out {listed}", UserWarning, stacklevel=3)
        return
    drop = [names[x] for x in refused[:5]]
    raise UnsupportedFeatureError(
        f"'{node.url}': {len(refused)} variable{'s' * (len(refused) > 1)} cannot be referenced: {listed}. "
        f"Leave them out with drop_variables={drop} or unsupported='skip', or raise inline_limit where that is what "
        "stands in the way",
        url=node.url,
        variable=refused[0].path,
        feature=refused[0].reason,
    )

"""Open one source as a virtual dataset or tree."""

from __future__ import annotations

import os
from collections.abc import Iterable

import xarray as xr

from virtualstack.dataset.opening import Opening, Unsupported, account_for
from virtualstack.formats.base import Reader
from virtualstack.manifests import ManifestGroup
from virtualstack.scanning import scan
from virtualstack.storage import Allow, StorageLike
from virtualstack.storage.listing import found_url

__all__ = ["open_virtual_dataset", "open_virtual_datatree"]


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
    allow: Allow = (),
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
        Variables to leave out, by name in any group, or by path (``"/science/winds"``) in that group alone. They are
        not looked at but to tell text from single letters.
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
    allow
        URLs or paths, of files and folders, that the source may refer to beyond what it may without. References that
        come over a network may refer to the web server or bucket that they come from, to any bucket, and to public
        web servers. They may refer to local files and private hosts only where this allows it.

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
    opening = Opening.from_options(
        group=group,
        storage=storage,
        drop_variables=drop_variables,
        decode_times=decode_times,
        unpack=unpack,
        unsupported=unsupported,
        inline_limit=inline_limit,
        allow=allow,
    )
    node = _read(url, reader, opening)
    account_for(node, unsupported, with_children=False)
    return opening.dataset(node, loadable_variables=loadable_variables)


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
    allow: Allow = (),
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
    opening = Opening.from_options(
        group=group,
        storage=storage,
        drop_variables=drop_variables,
        decode_times=decode_times,
        unpack=unpack,
        unsupported=unsupported,
        inline_limit=inline_limit,
        allow=allow,
        is_tree=True,
    )
    node = _read(url, reader, opening)
    account_for(node, unsupported, with_children=True)
    return opening.tree(node)


def _read(url: str | os.PathLike[str], reader: str | Reader | None, opening: Opening) -> ManifestGroup:
    (root,) = scan([found_url(url)], reader=reader, storage=opening.storage, options=opening.options)
    return opening.node(root)

"""Convert references from one form to another: kerchunk JSON and parquet, vstack, and Icechunk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

from virtualstack.dataset.opening import account_for
from virtualstack.errors import Remedy, WriterError, folding
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.icechunk.repositories import save_icechunk
from virtualstack.kerchunk.append import to_kerchunk
from virtualstack.kerchunk.writer import SUFFIXES as REFERENCES
from virtualstack.manifests import ManifestGroup
from virtualstack.progress import Progress, progress_shown
from virtualstack.reading.nameless import inline_nameless
from virtualstack.scanning.one import read_one
from virtualstack.sizes import byte_count
from virtualstack.storage import Allow, Storage, StorageLike
from virtualstack.vstack.save import save

STORE = ".vstack"
"""Suffix of a vstack."""

ICECHUNK = ".icechunk"
"""Suffix of an Icechunk repository."""

SUFFIXES = (STORE, ICECHUNK, *REFERENCES)
"""Suffixes of targets, which name the form in which references are written."""


@folding
def convert(
    source: Any,
    target: str | os.PathLike[str],
    /,
    *,
    reader: str | Reader | None = None,
    storage: StorageLike = None,
    drop_variables: str | Iterable[str] = (),
    unsupported: Literal["raise", "skip"] = "raise",
    relative: bool = False,
    fill_budget: int | str = "16 MiB",
    inline_limit: int | str = "1 MiB",
    rewrite: str | float | None = None,
    absent: Literal["fill", "raise"] = "raise",
    message: str | None = None,
    allow: Allow = (),
    progress: Progress | bool | None = None,
) -> ManifestGroup:
    """Write the references of one form in another: chunks stay in place, and readers get the same values.

    Between parquet and vstacks in either direction, memory does not grow with the number of references; the references
    of a JSON file are held in memory. If kerchunk references become a vstack and kerchunk references again, they point
    to the same bytes. The guide to vstacks lists the differences between the forms.

    Parameters
    ----------
    source
        Local path or URL of anything that a reader knows: references, a store, a repository or a file. Or an object
        that docs/how-to/what-opens.md lists.
    target
        Local path or URL that ends in ``.vstack``, in ``.icechunk``, or as ``vds.virtual.to_kerchunk`` takes it. If a
        store or repository exists there, the result becomes its newest snapshot; existing references are replaced.
    reader
        Name of a reader, or a reader: :class:`~virtualstack.readers.VStack` chooses the snapshot to read.
    storage
        Access to source and target; see :func:`virtualstack.open_virtual_dataset`.
    drop_variables
        Variables to leave out: a name in any group, or a path (``"/science/winds"``) in the group of the path alone.
    unsupported
        If ``"skip"``, a variable that the reader refuses is left out and named in a warning; otherwise it is an error.
    relative
        If true, the locations of sources are written relative to the target, so that you can move both together.
    fill_budget, inline_limit, rewrite
        Limits for kerchunk references and Icechunk if they must hold values because they cannot point to chunks: as in
        ``vds.virtual.to_kerchunk``. A vstack can point to all chunks. ``inline_limit`` also limits the values of each
        variable of the source that cannot be described by byte ranges.
    absent
        Treatment of ABSENT chunks, which should exist but have no source (docs/explanation/chunk-states.md), if the
        target cannot distinguish them from EMPTY chunks, which were never written. Only vstacks can. ``"fill"`` leaves
        them out, so that they read as the fill value, and ``"raise"`` raises `WriterError`.
    message
        Message of the snapshot in the log of a store.
    allow
        URLs or paths that references from a network may name, although they are local files or private hosts. With
        `vs.Listed`, only these may be read, and the folder of the references (docs/explanation/permission.md).
    progress
        ``True`` for a progress bar in a notebook or on stderr, or a function of the number of variables that were
        written and of all variables.

    Returns
    -------
    ManifestGroup
        Group that was converted.

    Raises
    ------
    ReaderError
        The source is damaged, or a variable of the source is refused.
    WriterError
        The target cannot express a variable, has no known suffix, or exists and has another form.
    StorageError
        The source cannot be read, or the target cannot be written.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0, 2.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> vs.open_virtual_dataset("day.nc").virtual.to_kerchunk("refs.json")
    >>> group = vs.convert("refs.json", "rain.vstack")
    >>> xr.open_dataset("rain.vstack", engine="virtualstack")["rain"].values
    array([1., 2.])
    """
    suffix = _suffix(target)
    inline_limit = byte_count(inline_limit, option="inline_limit")
    fill_budget = byte_count(fill_budget, option="fill_budget")
    reached = Storage.from_option(storage)
    options = ReadOptions.from_options(drop_variables=drop_variables, inline_limit=inline_limit, allow=allow)
    group, _ = read_one(source, reader=reader, storage=reached, options=options)
    account_for(group, "skip" if unsupported == "skip" else "inline", with_children=True)
    group = inline_nameless(group, storage=reached, inline_limit=inline_limit)
    with progress_shown(progress, "convert") as show:
        if suffix == ICECHUNK:
            if relative:
                raise WriterError(
                    "Icechunk has no relative locations", Remedy("leave out", relative=True), feature="relative"
                )
            save_icechunk(
                group,
                target,
                storage=reached,
                message=message,
                mode="w",
                inline_limit=inline_limit,
                rewrite=rewrite,
                absent=absent,
                progress=show,
            )
        elif suffix != STORE:
            to_kerchunk(
                group,
                target,
                storage=reached,
                relative=relative,
                fill_budget=fill_budget,
                inline_limit=inline_limit,
                rewrite=rewrite,
                absent=absent,
                progress=show,
            )
        else:
            save(group, target, storage=reached, mode="w", message=message, relative=relative, progress=show)
    return group


def _suffix(target: str | os.PathLike[str]) -> str:
    name = os.fspath(target).rstrip("/")
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return suffix
    raise WriterError(
        f"'{name}' does not say in which form to write. End it in '{STORE}', in '{ICECHUNK}' (Icechunk), "
        "or in '.json' or '.parq' (kerchunk)",
        feature="suffix",
    )

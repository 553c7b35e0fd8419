"""Options that many functions take: what they accept and their description, once, and their place in the help."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

type Codecs = Literal["common", "any"]
type Join = Literal["exact", "outer", "inner", "left", "right", "override"]
type JoinToStore = Literal["exact", "left", "outer"]
type OnAbsent = Literal["fill", "raise"]
type OnError = Literal["raise", "skip"]
type OnMissing = Literal["keep", "mask"]
type Unsupported = Literal["inline", "raise", "skip"]

OPENING = """
reader
    Name of a reader (see :func:`list_readers`), or a reader with options. By default the source decides.
group
    Path of the group to open, such as ``"science/grids"``; of a tree it is the root. By default: the root group.
storage
    Access to the sources: credentials, endpoint and retries. Local files, http(s) and buckets that the credentials of
    the environment or anonymous access can read need none. Otherwise use ``{"s3://bucket/": {...}}``, or an
    obstore or fsspec object. The result carries it along and uses it when values are read later.
loadable_variables
    Names of variables to load and decode, beside dimension coordinates and small coordinates (up to 16 KiB), which are
    loaded in any case. An empty list loads nothing.
drop_variables
    Variables to leave out: a name drops the variable in every group, and a path (``"/science/winds"``) drops one
    variable. A dropped variable is only used to tell text from single letters.
decode_times
    If true, loaded and unpacked times become dates. This is the default. A :class:`xarray.coders.CFDatetimeCoder`
    decides how loaded times become dates, and a map from names of variables decides for each one.
unpack
    If true, the chunks of virtual variables decode to exactly the values of ``xr.open_dataset``: missing values,
    scale and offset, ``_Unsigned`` and times are applied. Files that pack differently can then be joined. A
    variable without a fixed dtype after decoding (text, dates of other calendars) stays packed, as it is stored,
    and is ``packed`` in ``report()``. Reading a date outside the years 1677 to 2262 then raises an error.
unsupported
    Treatment of a variable that cannot be expressed as byte ranges. ``"inline"`` reads its values into the
    manifest, as INLINE chunks, if they fit in ``inline_limit``, and raises otherwise. ``"raise"`` raises.
    ``"skip"`` leaves the variable out, and names it in one warning and in ``report()``.
inline_limit
    Largest size of the inlined values of one variable of a file, in bytes or as text such as ``"1 MiB"``.
allow
    URLs or paths that references from a network may name, although they are local files or private hosts. With
    `vs.Listed`, only these may be read, and the folder of the references (docs/explanation/permission.md).
stale
    Treatment of a source that has changed since the references to it were written. ``"error"`` raises
    `SourceChangedError` when it is read; this is the default. ``"warn"`` warns once for each source and reads it as
    it is, ``"ignore"`` does so without a warning. The result carries it along.
"""
"""Options of functions that open virtual datasets."""

JOINING = """
combine
    ``"by_coords"``: the coordinates decide the order of files, and the dimensions along which they are joined (see
    docs/how-to/join-many-files.md). ``"nested"``: files are joined in the order in which they are given.
concat_dim
    Dimension to join along with ``combine="nested"``, or one dimension for each level of lists, outermost first. At
    a level with ``None``, files with different variables are merged. A dimension that no file has is new.
join
    Alignment of coordinates along the other dimensions. ``"exact"`` raises if they differ. ``"outer"``,
    ``"inner"``, ``"left"``, ``"right"`` and ``"override"`` work as in :func:`xarray.align`. Elements at labels that
    a file lacks are EMPTY: they have no bytes, and read as missing. With ``"outer"``, variables that a file lacks,
    and places without a file, are ABSENT: their data should exist, but have no source. Both states are explained in
    docs/explanation/chunk-states.md.
tolerance
    Coordinates that differ by at most this count as equal; so do other floats that must be the same in all files.
    The values of the first file are used. It is a number, or a timedelta for dates.
preprocess
    Function that is applied to the dataset or tree of each file, and returns one. The URL of the file is its
    ``encoding["source"]``.
new_dim
    New dimensions by name, each with the source of its labels: a :class:`FromName`, a :class:`FromAttribute`, a
    function of the dataset (of a tree: of its root group), or a list with one label for each file, in the order of the
    files. Data variables get them; coordinates only if ``combine_options["coords"]`` names them. The labels of a
    dimension that files have are replaced: a list or function then has as many labels for a file as it has elements.
labels
    Variables whose values become the labels of a dimension that has none, by dimension: ``{"Time": "Times"}`` for
    files of WRF. Texts that are dates become dates.
duplicates
    The file that counts if several have the same labels: the ``"first"`` or the ``"last"`` in the order in which they
    are given. By default they are an error that names them, unless the lists determine the order; ``"raise"``
    refuses labels that repeat then, too.
unpack
    If true, virtual variables are decoded as ``xr.open_dataset`` decodes them: missing values, scale and offset,
    and times. ``"differing"``, the default, does this only for variables that the files pack differently;
    ``.virtual.report()`` names them. If false, these are an error.
combine_options
    Options of :func:`xarray.concat` as a dict, such as ``{"coords": ["t"]}``: ``data_vars``, ``coords``,
    ``compat`` ("equals" by default), ``combine_attrs`` and ``fill_value``. Coordinates without a dimension, and
    loaded dates along another one, get the joined dimension if they differ, unless ``coords`` is
    "minimal". By default attributes that differ are left out, and noted in ``.virtual.report()``. ``units`` that
    differ are an error.
executor
    Executor that scans the files: ``"threads"``, ``"processes"``, ``"dask"``, a ``distributed.Client`` or a
    ``concurrent.futures.Executor``. By default remote files use 64 threads. Local files are
    read one after another, or in threads if there is a ``cache``.
on_error
    ``"raise"`` raises the error of a file that cannot be opened. ``"skip"`` leaves the file out, with one warning
    and a row in ``.virtual.report()``.
cache
    Directory or URL that keeps scan results. A later call reads only files that are new or have changed. Results
    are kept separately for each set of options, and separately from those of :func:`scan` with default options.
progress
    ``True`` for a progress bar on stderr, or a function that is called with the number of finished files and the
    number of all files.
"""
"""Options of functions that join files."""

VALUES = """
group
    Path of the group to open; of a tree it is the root. By default: the root group.
reader
    Name of a reader (see :func:`virtualstack.list_readers`), or a reader with options. By default the reader is
    detected.
storage
    Access to the sources: credentials, endpoint and retries, such as ``{"s3://bucket/": {...}}``. Local files, http(s)
    and buckets that the credentials of the environment or anonymous access can read need none, and sources that are
    open already are read as they were opened.
chunks
    Chunks of dask arrays, as in :func:`xarray.open_dataset`: ``{}`` for merges of stored chunks, see
    ``task_bytes``. By default no dask arrays are made.
absent
    Treatment of ABSENT chunks, which should exist but have no source (docs/explanation/chunk-states.md):
    ``"fill"`` reads them as the fill value, and ``"raise"`` raises `StorageError`.
stale
    Treatment of a source whose size, etag or (of a local file) content has changed since the scan:
    ``"error"``, the default, raises `SourceChangedError`; ``"warn"`` only warns; ``"ignore"`` compares nothing.
task_bytes
    Decoded bytes of a dask task with ``chunks={}``, in bytes or as text: stored chunks are merged up to about
    this size. Larger chunks are not cut; 0 keeps the stored ones.
at
    Snapshot of a vstack: its number from 0, ``-1`` for the newest, or a time, which means the snapshot that was
    the newest then (ISO 8601, in UTC if it has no time zone). By default: the newest snapshot.
drop_variables
    Names of variables to leave out of all groups, or paths of variables, such as ``"/science/winds"``.
decode_cf
    If false, nothing is decoded: values are the stored numbers.
mask_and_scale
    If false, missing values, scale and offset are not applied. By default they are. A map from names of
    variables decides for each one.
decode_times
    If false, times stay numbers. By default they become dates. A :class:`xarray.coders.CFDatetimeCoder` decides
    how, and a map from names of variables decides for each one.
decode_timedelta
    If true, numbers in units such as ``"days"`` become time differences. By default, only variables that xarray
    wrote as time differences do. It also takes a :class:`xarray.coders.CFTimedeltaCoder`, or a map by variable.
use_cftime
    If true, dates are ``cftime.datetime`` objects. xarray prefers
    ``decode_times=CFDatetimeCoder(use_cftime=True)``.
concat_characters
    If false, characters along the last dimension are not joined to text. By default they are. A map from names
    of variables decides for each one.
decode_coords
    If false, variables that a ``coordinates`` attribute names do not become coordinates. By default they do.
    With ``"all"``, variables that ``grid_mapping``, ``bounds`` and similar attributes name do, too.
create_default_indexes
    If false, no index is made, so that no coordinate is read.
cache, inline_array, chunked_array_type, from_array_kwargs
    Options of dask arrays and of xarray's cache, the same as in :func:`xarray.open_dataset`.
others
    Options of other engines, for code in which only ``engine=`` was changed: ``storage_options``,
    ``filter_by_keys`` and ``consolidated`` are taken. The error for another one says what to write.
"""
"""Options of functions that open datasets with values, as ``xr.open_dataset`` does."""

RUNNING = """
sample
    Number of new chunks to compare with what the formats' libraries read from the files.
executor
    What opens the files, as in :func:`virtualstack.scan`. If there are more than 256, its workers open and
    join partitions of them, and write the results below the store: see :meth:`segment`.
cache
    Folder or URL that keeps results, as in :func:`virtualstack.scan`.
timeout
    Largest number of seconds for a partition. If a worker takes longer or dies, its files are tried in halves,
    so that only the file at fault is quarantined. A worker that takes longer is ended, unless it is a thread.
only_segments
    If true, only what :meth:`segment` has made is placed. Other files count as pending.
message
    Message of the snapshot, for the log.
progress
    ``True`` for a progress bar, or a function of the number of finished files and of all files.
"""
"""Options of runs by a recipe."""

_SECTION = re.compile(r"\nParameters\n-{10}\n(.*?)(?=\n\n\S[^\n]*\n-{4,}\n|$)", re.DOTALL)
_ENTRY = re.compile(r"^(\S[^\n]*)\n(?:(?: {4}[^\n]*)?(?:\n|$))+", re.MULTILINE)


def with_options[F: Callable[..., Any]](*words: str, passed_on: Iterable[inspect.Parameter] = ()) -> Callable[[F], F]:
    """Return a decorator that completes the help of a function.

    Options that the function passes on replace ``**options`` in its signature. Options that its docstring does not
    describe get the words of the first text that has them.
    """

    def decorate(function: F) -> F:
        own = inspect.signature(function)
        options = tuple(passed_on)
        kept = [x for x in own.parameters.values() if not options or x.kind is not x.VAR_KEYWORD]
        more = [x for x in options if x.name not in {y.name for y in kept}]
        signature = own.replace(parameters=[*kept, *more])
        cast(Any, function).__signature__ = signature
        if function.__doc__ is not None:  # as with python -OO
            function.__doc__ = _completed(inspect.cleandoc(function.__doc__), list(signature.parameters), words)
        return function

    return decorate


def _completed(doc: str, names: list[str], words: tuple[str, ...]) -> str:
    section = _SECTION.search(doc)
    found = {
        name.strip(" *"): entry[0].rstrip()
        for text in (*reversed(words), section[1] if section else "")
        for entry in _ENTRY.finditer(text)
        for name in entry[1].split(",")
    }
    listed = "\n".join(dict.fromkeys(found[name] for name in names if name not in ("self", "cls")))
    if section:
        return doc[: section.start(1)] + listed + doc[section.end(1) :]
    before, mark, after = doc.partition("\n\nReturns\n")
    return f"{before}\n\nParameters\n----------\n{listed}{mark}{after}"

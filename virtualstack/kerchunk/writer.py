"""Writing of groups as kerchunk references: a dict, a JSON file, or a directory of parquet files."""

from __future__ import annotations

import json
import os
import posixpath
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import pyarrow as pa

from virtualstack.errors import Remedy, SourceNotFoundError, StorageError, WriterError, check_word
from virtualstack.kerchunk.document import RECORD_SIZE, parquet_files, reference_dict, reference_texts
from virtualstack.kerchunk.references import FILE_SUFFIXES, FOLDER_SUFFIXES
from virtualstack.location import absolute_url, join_url, local_path, split_url
from virtualstack.manifests import ManifestArray, ManifestGroup, repack
from virtualstack.options import OnAbsent
from virtualstack.printable import counted
from virtualstack.progress import Show
from virtualstack.storage import Bytes, LocalTarget, Storage, StorageLike, Target
from virtualstack.storage.atomic import sync_folders
from virtualstack.storage.permission import named_in
from virtualstack.storage.signatures import without_signature
from virtualstack.zarr.client import Client
from virtualstack.zarr.forms import make_hierarchy3
from virtualstack.zarr.metadata.version2 import ZarrFormat, ZarrHierarchy, make_hierarchy
from virtualstack.zarr.rewrite.plan import plan_rewrite
from virtualstack.zarr.rewrite.rewrite import fitting, is_inlined


def _gzipped(parts: Iterable[Bytes]) -> Iterator[Bytes]:
    packer = zlib.compressobj(6, wbits=zlib.MAX_WBITS | 16)  # with a gzip header without a time
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def _with_zstandard(parts: Iterable[Bytes]) -> Iterator[Bytes]:
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as packer:
        for part in parts:
            packer.write(part)
    yield memoryview(packed.getvalue())


_PACKERS: dict[str, Callable[[Iterable[Bytes]], Iterable[Bytes]]] = dict(
    zip(FILE_SUFFIXES, (iter, _gzipped, _with_zstandard), strict=True)
)
SUFFIXES = (*FILE_SUFFIXES, *FOLDER_SUFFIXES)
"""File suffixes; each suffix selects a format of the references."""
_UNFINISHED = b'{"metadata":{},"record_size":0}'


def write_kerchunk(
    group: ManifestGroup,
    target: str | os.PathLike[str] | None,
    /,
    *,
    storage: StorageLike = None,
    relative: bool = False,
    fill_budget: int = 1 << 24,
    inline_limit: int = 1 << 20,
    rewrite: str | float | None = None,
    absent: OnAbsent = "fill",
    zarr_format: ZarrFormat = 2,
    record_size: int = RECORD_SIZE,
    progress: Show | None = None,
) -> dict[str, Any] | None:
    """Write a group as kerchunk references, which fsspec, zarr and xarray's engine ``"kerchunk"`` read.

    The references have metadata of zarr v2, or, as JSON, of v3. Kerchunk cannot hold sizes and etags of the sources,
    the difference of ABSENT and EMPTY, declared dimensions without an array, and refusals, so these are left out.
    Attributes become JSON, which has no float32: values packed by a ``scale_factor`` and ``add_offset`` of float32
    decode as float64, equal to float32's precision.

    fsspec (2026.9) looks for the protocol of parquet references in groups, too, and may fail there with a KeyError.
    Open parquet references that have groups below the root with ``storage_options={"remote_protocol": "s3"}`` (or
    whichever it is), or write JSON.

    If an array whose manifest is not in memory is written as parquet, memory does not grow with the number of
    references. The manifest is read twice. The first time checks, before anything is written, that kerchunk can express
    it. A manifest is read as a whole if its chunks have several encodings, unpack numbers, or must be written out.

    JSON files appear as a whole or not at all. A local parquet directory is written under another name and renamed. For
    an object store, its files are made in a temporary directory and then uploaded one by one. Until the last file is
    uploaded, reading them is an error. Do not replace references that are being read.
    """
    check_word("zarr_format", zarr_format, (2, 3))
    if record_size < 1:
        raise ValueError(f"record_size={record_size} is no number of references in a file. Pass 1 or more")
    client = replace(KERCHUNK, zarr_format=zarr_format, streams=zarr_format == 2)
    group = group.map_arrays(
        fitting(client, inline_limit=inline_limit, rewrite=rewrite, absent=absent, storage=storage)
    )

    def described(*, shares_chunks: bool = False) -> ZarrHierarchy:
        if zarr_format == 3:
            return make_hierarchy3(group)
        return make_hierarchy(group, fill_budget=fill_budget, shares_chunks=shares_chunks)

    if target is None:
        if relative:
            raise ValueError("relative=True needs a target, to whose folder locations are relative. Pass a path or URL")
        return reference_dict(described(), url=without_signature)
    root, _, name = absolute_url(target).rstrip("/").rpartition("/")
    suffix = next((x for x in SUFFIXES if name.endswith(x)), None)
    if suffix is None:
        raise WriterError(
            f"'{os.fspath(target)}' has no suffix of references. Use '.json' for one file, or '.parq' "
            "for a directory. From 100,000 chunks on, '.parq' is smaller and opens faster",
            feature="suffix",
        )
    is_parquet = suffix in FOLDER_SUFFIXES
    place = f"{root}/{name}"
    url = _relative_to(place) if relative else partial(named_in, place)
    if is_parquet and zarr_format == 3:
        raise WriterError(
            f"'{os.fspath(target)}' would be parquet references, which hold metadata of zarr v2 alone. Write '.json', "
            "or leave out zarr_format=3",
            feature="zarr_format",
        )
    hierarchy = described(shares_chunks=is_parquet)
    reached = Storage.from_option(storage)
    folder = reached.target(f"{root}/")
    local = local_path(f"{root}/{name}") if isinstance(reached.writing_target(f"{root}/"), LocalTarget) else None
    if not is_parquet:
        if local is not None and os.path.isdir(local):
            raise _in_the_way(f"{root}/{name}", "a directory")
        parts = _PACKERS[suffix](reference_texts(hierarchy, url=url, progress=progress))
        if isinstance(folder, LocalTarget):
            folder.put_parts(name, parts)
            folder.sync()
        else:
            folder.put(name, b"".join(parts))
    elif local is not None and isinstance(folder, LocalTarget):
        _write_directory(local, parquet_files(hierarchy, url=url, record_size=record_size, progress=progress))
    else:
        if local is not None:  # a dry run
            _check_replaceable(local)
        _write_objects(folder, name, parquet_files(hierarchy, url=url, record_size=record_size, progress=progress))
    return None


KERCHUNK = Client(name="kerchunk references", zarr_format=2, streams=True)
"""What kerchunk references can express, with metadata of zarr v2."""


def how_taken(array: ManifestArray, /, *, inline_limit: int = 1 << 20) -> str:
    """Return in a few words what :func:`write_kerchunk` would do with an array; no values are read."""
    if KERCHUNK.why_not_plain(array) is None:
        return "as it is"
    array = repack(array.whole())
    if KERCHUNK.why_not_plain(array) is None:
        return "as it is"
    plan = plan_rewrite(array, KERCHUNK)
    if not plan.cells.size:
        return "as it is"
    if is_inlined(array, inline_limit):
        return f"inline: {counted(array.nbytes, 'byte')}"
    if plan.n_absent:
        return f"no: {plan} would have to be re-encoded, and {plan.n_absent} of their parts are ABSENT"
    return f"rewrite='{plan.budget()}': {plan}" + (
        "" if plan.is_sure else ", if the packing or dtype of the other chunks can store their values"
    )


def _relative_to(place: str) -> Callable[[str], str]:
    base = f"{place.rpartition('/')[0]}/"
    root, folder = split_url(base)

    def relative(url: str) -> str:
        url = named_in(place, url)
        if not url.startswith(root):
            return url
        path = posixpath.relpath(f"/{split_url(url)[1]}", f"/{folder}")
        return path if join_url(base, path) == url else url

    return relative


def _write_directory(path: Path, files: Iterable[tuple[str, bytes]]) -> None:
    _check_replaceable(path)
    aside, old = (path.with_name(f".virtualstack-{uuid.uuid4().hex}") for _ in range(2))
    target = LocalTarget(absolute_url(aside))
    there, made, changed = set(LocalTarget(absolute_url(path)).list()), set(), False
    try:
        for key, data in files:
            made.add(key)
            # the time of .zmetadata shows a process with open references that other files changed
            may_stay = key != ".zmetadata" or not (changed or made != there)
            if not (may_stay and _linked(path / key, aside / key, data)):
                changed = True
                target.put(key, data)
        try:
            sync_folders({(aside / key).parent for key in made}, aside)
            if os.path.exists(path):
                path.rename(old)
            aside.rename(path)
            sync_folders({path.parent}, path)
        except OSError as error:
            raise StorageError(
                f"'{path}' cannot be replaced: {error}",
                Remedy("check that its folder is writable"),
                url=absolute_url(path),
            ) from error
    finally:
        if old.exists() and not path.exists():  # also after Ctrl-C
            old.rename(path)
        shutil.rmtree(aside, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _linked(there: Path, name: Path, data: bytes) -> bool:
    """Link an existing file to a new name if it has the bytes to write, and return whether that was done."""
    try:
        if there.stat().st_size != len(data) or there.read_bytes() != data:
            return False
        name.parent.mkdir(parents=True, exist_ok=True)
        os.link(there, name)
    except (OSError, ValueError):  # ValueError: a NUL in the path
        return False
    return True


def _check_replaceable(path: Path) -> None:
    if not os.path.exists(path):
        return
    if not os.path.isdir(path):
        raise _in_the_way(absolute_url(path), "a file")
    if any(path.iterdir()) and not _has_references(LocalTarget(absolute_url(path)), ".zmetadata"):
        raise _in_the_way(absolute_url(path), "a directory that does not contain kerchunk references")


def _write_objects(folder: Target, name: str, files: Iterable[tuple[str, bytes]]) -> None:
    stale = set(folder.list(name))
    if stale and not _has_references(folder, f"{name}/.zmetadata"):
        raise _in_the_way(f"{folder.url}{name}", "a folder that does not contain kerchunk references")
    for key, data in _made_first(files):
        if f"{name}/{key}" not in stale or key == ".zmetadata" or folder.get(f"{name}/{key}") != data:
            folder.put(f"{name}/{key}", data)
        stale.discard(f"{name}/{key}")
    for key in sorted(stale):
        folder.delete(key)


def _made_first(files: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield the files after all of them were made; the first file marks the others as incomplete for readers.

    The new files may be made from the files that they replace. An error during this changes nothing.
    """
    try:
        with TemporaryDirectory(prefix="virtualstack-") as aside:
            made: list[tuple[str, Path]] = []
            for key, data in files:
                made.append((key, Path(aside, str(len(made)))))
                made[-1][1].write_bytes(data)
            yield ".zmetadata", _UNFINISHED
            for key, path in made:
                yield key, path.read_bytes()
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            f"references cannot be prepared in '{gettempdir()}': {error}. Set TMPDIR to a writable folder with "
            "enough space"
        ) from error


def _has_references(target: Target, key: str) -> bool:
    try:
        metadata = json.loads(target.get(key))
    except (SourceNotFoundError, ValueError, RecursionError):
        return False
    return isinstance(metadata, dict) and "record_size" in metadata


def _in_the_way(url: str, what: str) -> WriterError:
    return WriterError(
        f"'{url}' is {what}, and is not overwritten",
        Remedy("remove it, or write to another location"),
        feature="existing target",
    )

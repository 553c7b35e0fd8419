"""Relocate sources: change the beginnings of their locations, and no reference."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from virtualstack.errors import ForbiddenLocationError, Remedy, WriterError, check_type
from virtualstack.location import absolute_url, split_url, way_out
from virtualstack.printable import MAX_SHOWN_ITEMS
from virtualstack.storage import Allow, ObjectStore
from virtualstack.storage.registry import OBJECT_STORES, WEB
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.history import OpenStore
from virtualstack.vstack.format.snapshot import Snapshot
from virtualstack.vstack.format.sources import PARENT, STORE, Prefixes, is_plain
from virtualstack.vstack.reader import permission_for_snapshot
from virtualstack.vstack.write.commit import commit
from virtualstack.vstack.write.edit import Edit


def relocate(
    objects: ObjectStore,
    snapshot: Snapshot,
    folders: Mapping[str | os.PathLike[str], str | os.PathLike[str]],
    allow: Allow,
    /,
    *,
    message: str | None = None,
) -> tuple[Snapshot, Allow]:
    """Commit a snapshot whose sources are in other folders, and return it with the new ``allow``.

    The user names the new folders, and so allows them: see :meth:`Repository.relocate`.
    """
    check_type("folders", folders, Mapping, "a mapping of old to new folders")
    if not folders:
        raise ValueError("relocate() needs a mapping of old to new folders, but this one is empty")
    pairs = sorted(((_old(old), _new(new, objects)) for old, new in folders.items()), key=lambda x: -len(x[0]))
    prefixes = Prefixes(store=objects.url, table=snapshot.prefixes, moved=snapshot.moved)
    for old, new in pairs:
        prefixes = prefixes.relocated(old, new)
    given = [] if allow is None else [allow] if isinstance(allow, str | os.PathLike) else list(allow)
    more: Allow = [*given, *(prefixes.root(new) for _, new in pairs)]
    try:
        permission = permission_for_snapshot(objects.url, snapshot, allow)
    except ForbiddenLocationError:  # the store was moved here: check the locations after relocation
        permission = permission_for_snapshot(objects.url, replace(snapshot, moved=prefixes.moved), more)
    store = OpenStore(objects, permission)
    archive = store.archive(snapshot)
    for i, (old, new) in enumerate(pairs):
        later = [x for x, _ in pairs[i + 1 :] if new.startswith(x) or x.startswith(new)]
        if later:
            raise WriterError(
                f"'{old}' would be relocated to '{new}', and then again by the relocation of '{later[0]}'. Call "
                "relocate() once for each folder, in the intended order",
                feature="relocation",
            )
        _check_used(old, archive)
    said = message or "relocated " + ", ".join(f"'{old}' to '{new}'" for old, new in pairs)
    made = commit(store, snapshot, Edit(moved=tuple(pairs)), message=said)
    return made, more


def _old(folder: str | os.PathLike[str]) -> str:
    found = _folder(folder)
    if found.startswith(STORE):
        raise WriterError(
            f"'{found}' is in the store itself and moves with it, so it cannot be relocated. Give a folder of "
            "sources outside of the store",
            feature="location",
        )
    return found


def _new(folder: str | os.PathLike[str], objects: ObjectStore) -> str:
    found = _folder(folder)
    if found.startswith(STORE):
        raise WriterError(
            f"'{found}' is in the store itself, and could not be relocated from there again. Give an absolute path "
            "or URL, or '../data/' for a folder beside the store",
            feature="location",
        )
    if found.startswith(PARENT):
        if not is_plain(f"{found}x"):
            raise WriterError(
                f"'{found}' cannot be a path relative to the store. The characters '#', '?', '\\', '%' and control "
                "characters have other meanings in a URL",
                Remedy("give an absolute path, or rename the folder"),
                feature="location",
            )
    else:
        objects.storage.check_known(found)
        is_nowhere = found.startswith(tuple(f"{scheme}://" for scheme in (*OBJECT_STORES, *WEB)))
        is_nowhere = is_nowhere and split_url(found)[0].endswith(":///")
        why = "has no host or bucket" if is_nowhere else way_out(found)
        if why is not None:
            raise WriterError(f"'{found}' {why}", Remedy("give another folder"), feature="location")
    return found


def _folder(folder: str | os.PathLike[str]) -> str:
    """Return the beginning of locations in a folder in its written form: a URL, or a path relative to the store."""
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"relocate() needs URLs or paths of folders, not {folder!r}")
    text = os.fsdecode(folder)
    if not text.strip():
        raise WriterError(f"{text!r} is not a folder", Remedy("give the URL or path of one"), feature="location")
    if f"{text}/".startswith((STORE, PARENT)):
        found = text.rstrip("/") + "/"
        if any(part in ("", ".", "..") for part in found.split("/")[1:-1]):
            raise WriterError(
                f"'{text}' leads out of the folder that contains the store: write '../data/' for a folder beside the "
                "store, or give an absolute path or URL",
                feature="location",
            )
        return found
    found = absolute_url(text)
    return found if found.endswith("/") else found + "/"


def _check_used(old: str, archive: Archive) -> None:
    """Check that a folder contains sources; if prefixes do not show it, sources are read until one is found."""
    prefixes = archive.prefixes
    begins = [begin for begin in prefixes.begins() if not begin.startswith(STORE)]  # its own values stay in it
    if any(begin.startswith(old) for begin in begins):
        return
    if any(old.startswith(begin) for begin in begins) and any(x.startswith(old) for x in _written(archive)):
        return
    more = [f"{len(begins) - MAX_SHOWN_ITEMS} more"] * (len(begins) > MAX_SHOWN_ITEMS)
    shown = ", ".join([f"'{begin}'" for begin in sorted(begins)[:MAX_SHOWN_ITEMS]] + more) or "none"
    relative = [x for x in begins if x.startswith(PARENT) and _meet(prefixes.root(x), old)]
    remedy = (
        f"'{relative[0]}' is relative to the store and moves with it. To relocate it, use this relative path"
        if relative
        else "give one of these"
    )
    raise WriterError(
        f"no source of '{archive.url}' is in '{old}'. Its sources are in: {shown}; {remedy}",
        feature="location",
    )


def _meet(a: str, b: str) -> bool:
    return a.startswith(b) or b.startswith(a)


def _written(archive: Archive) -> Iterator[str]:
    """Yield all sources in their written form."""
    for number in range(archive.segments.n):
        yield from archive.written_sources(archive.segment(number))

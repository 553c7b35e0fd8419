"""Keep the places that a user grants to references, in one readable file and in this process."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import platformdirs

from virtualstack.errors import StorageError
from virtualstack.location import absolute_url
from virtualstack.storage.dry_run import active_dry_run
from virtualstack.storage.hosts import find_host, is_host
from virtualstack.storage.standing import config_path, standing_places
from virtualstack.storage.threads import concurrently
from virtualstack.system import LOCK_FLAGS, is_foreign, is_writable_by_others, lock, replace_locked

__all__ = ["ALLOW_VARIABLE", "RECORD_VARIABLE", "Grant", "Granted", "grant", "grant_sources", "granted", "listed",
           "place_from_user", "record_path", "remove", "why_ignored"]  # fmt: skip

ALLOW_VARIABLE = "VIRTUALSTACK_ALLOW"
"""Environment variable with places that references may name, separated by spaces and quoted as in a shell."""

RECORD_VARIABLE = "VIRTUALSTACK_PLACES"
"""Environment variable that names another file for the record."""

_HEADER = """\
# Places that references may name on this account. Each line has a date, how the place was granted, and the place.
# "allowed": by the command "virtualstack allow". "written": this account wrote references to files there.
# A place that ends in "/" contains everything below it; one that ends in "/*" only the files of that folder.
"""
_LINE = re.compile(r"(?P<date>\S+) (?P<how>allowed|written) (?P<place>\S.*)")
_FILE, _MEMORY = "file://", "memory://"
_FEW_FILES = 64  # files of one folder that are looked at one by one for links


class Grant(NamedTuple):
    """A granted place: the place, the date, and where the grant comes from."""

    place: str
    date: str
    source: str


@dataclass(frozen=True, slots=True)
class Granted:
    """The places that were granted.

    Parameters
    ----------
    explicit
        URLs that the user granted in so many words, with everything below them.
    folders
        URLs of folders, ending in ``/``, whose files were written into references; not the folders below them.
    roots
        Places that were written into references, with everything below them: buckets, hosts, relocated folders.
    """

    explicit: tuple[str, ...] = ()
    folders: frozenset[str] = frozenset()
    roots: tuple[str, ...] = ()


@dataclass(slots=True)
class _Process:
    """The places that this process granted, whether or not the record could be written."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    written: dict[Path | None, frozenset[str]] = field(default_factory=dict)  # by the path of the record


_PROCESS = _Process()


def record_path() -> Path | None:
    """Return the path of the record, which need not exist; ``None`` if the account has no folder for it.

    It is ``places.txt`` in the user's folder for states, such as ``~/.local/state/virtualstack``, or the file that the
    environment variable ``VIRTUALSTACK_PLACES`` names.
    """
    named = os.environ.get(RECORD_VARIABLE)
    return _record_path(named, *map(os.environ.get, ("HOME", "XDG_STATE_HOME")))


@lru_cache(maxsize=4)
def _record_path(named: str | None, *_: str | None) -> Path | None:
    path = Path(named).expanduser() if named else platformdirs.user_state_path("virtualstack") / "places.txt"
    return path if path.is_absolute() else None


def granted() -> Granted:
    """Return all places that are granted now: by the environment, the configuration file, the record and this process.

    Raises
    ------
    StorageError
        The configuration file or the environment variable cannot be read.
    """
    named = (*_of_environment(), *map(place_from_user, standing_places()))
    path = record_path()
    return _merged(named, _recorded(path), _PROCESS.written.get(path, frozenset()))


@dataclass(frozen=True, slots=True, eq=False)  # hashed by its identity, however many lines it has
class _Record:
    lines: tuple[tuple[str, str, str], ...] = ()


_NO_RECORD = _Record()


@lru_cache(maxsize=4)
def _merged(named: tuple[str, ...], record: _Record, process: frozenset[str]) -> Granted:
    allowed = [place for _, how, place in record.lines if how == "allowed"]
    written = process.union(place for _, how, place in record.lines if how == "written")
    return Granted(
        explicit=tuple(dict.fromkeys((*named, *allowed))),
        folders=frozenset(x.removesuffix("*") for x in written if x.endswith("/*")),
        roots=tuple(sorted(x for x in written if not x.endswith("/*"))),
    )


def listed() -> list[Grant]:
    """Return each granted place with its date and where the grant comes from; the record comes last.

    Raises
    ------
    StorageError
        The configuration file or the environment variable cannot be read.
    """
    words = {"allowed": "virtualstack allow", "written": "written references"}
    return [
        *(Grant(place, "", ALLOW_VARIABLE) for place in _of_environment()),
        *(Grant(place_from_user(place), "", str(config_path())) for place in standing_places()),
        *(Grant(place, date, words[how]) for date, how, place in _recorded(record_path()).lines),
    ]


def place_from_user(place: str | os.PathLike[str], /) -> str:
    """Return the URL of a place as a user writes it; that of a local folder or of a whole bucket or host ends in ``/``.

    >>> place_from_user("s3://bucket"), place_from_user("https://host/a.nc")
    ('s3://bucket/', 'https://host/a.nc')
    """
    url = absolute_url(place)
    is_folder = url.startswith(_FILE) and os.path.isdir(url.removeprefix(_FILE))
    return f"{url}/" if not url.endswith("/") and (is_folder or url.count("/") == 2) else url


def grant(places: Collection[str], /) -> bool:
    """Add places that the user named to the record, and return whether it could be written."""
    return _append("allowed", places)


def grant_sources(urls: Iterable[str], /, *, folders: Iterable[str] = ()) -> None:
    """Grant what references name that this account writes: folders of local files, buckets, and private web hosts.

    A local folder is granted with the files in it, not with folders below it. If a file is a link, so is the folder to
    which the link leads. The process keeps the grants if the record cannot be written. Places in memory are kept in the
    process only.

    Parameters
    ----------
    urls
        Absolute URLs of the sources that the references name.
    folders
        URLs of folders that the user named, ending in ``/``, with everything below them.
    """
    if active_dry_run() is not None:
        return
    places = {x for folder in folders for x in (folder, _folder_on_disk(folder))}
    files: dict[str, list[str]] = {}
    roots: set[str] = set()
    for url in urls:
        if url.startswith(_FILE):
            folder, _, name = url.rpartition("/")
            files.setdefault(folder, []).append(name)
        else:
            roots.add("/".join(url.split("/", 3)[:3]))
    for folder, names in files.items():
        path = folder.removeprefix(_FILE) or "/"
        places |= {f"{folder}/*", f"{_FILE}{os.path.realpath(path).rstrip('/')}/*"}
        places |= {f"{_FILE}{os.path.dirname(x).rstrip('/')}/*" for x in _links(path, names)}  # noqa: PTH120
    found = concurrently(_place_of_root, sorted(roots), roots)  # names of hosts are looked up
    places |= {place for place in found if place is not None}
    places = {place for place in places if "\n" not in place and "\r" not in place}
    with _PROCESS.lock:
        known = _PROCESS.written.get(record_path(), frozenset())
        _PROCESS.written[record_path()] = known | places
    if not places <= known:
        _append("written", {place for place in places if not place.startswith(_MEMORY)})


def _folder_on_disk(folder: str) -> str:
    if not folder.startswith(_FILE):
        return folder
    return f"{_FILE}{os.path.realpath(folder.removeprefix(_FILE)).rstrip('/')}/"


def _links(folder: str, names: list[str]) -> Iterator[str]:
    """Yield where those files of a folder lead that are links."""
    wanted: Collection[str] = names
    if len(names) > _FEW_FILES:
        try:
            with os.scandir(folder) as entries:
                wanted = {entry.name for entry in entries if entry.is_symlink()}.intersection(names)
        except OSError:
            return
    for name in wanted:
        path = f"{folder.rstrip('/')}/{name}"
        if os.path.islink(path):  # noqa: PTH114 - no path for each
            yield os.path.realpath(path)


def _place_of_root(root: str) -> str | None:
    """Return the place to grant for a bucket or host; ``None`` for public web hosts, which need no grant."""
    scheme, _, authority = root.partition("://")
    if scheme.lower() == "memory":
        return _MEMORY
    if scheme.lower() in ("http", "https"):
        is_private = is_host(authority) and find_host(authority.lower())[0] is not None
        return f"{scheme.lower()}://{authority.lower()}/" if is_private else None
    return f"{scheme.lower()}://{authority}/" if authority and "@" not in authority.partition("@")[0] else None


def remove(places: Collection[str], /) -> list[str]:
    """Remove places from the record, and return those that were in it.

    Raises
    ------
    StorageError
        The record cannot be written.
    """
    path = record_path()
    gone = [place for place in places if any(place == x for *_, x in _recorded(path).lines)]
    if path is None or not gone:
        return []
    try:
        with _locked(path) as descriptor:
            lines = _read_all(descriptor).splitlines(keepends=True)
            kept = [x for x in lines if (m := _LINE.fullmatch(x.strip())) is None or m["place"] not in gone]
            replace_locked(descriptor, str(path), "".join(kept).encode())
    except OSError as error:
        raise StorageError(f"the record of places '{path}' cannot be written: {error}") from error
    with _PROCESS.lock:
        _PROCESS.written[path] = _PROCESS.written.get(path, frozenset()).difference(gone)
    return gone


def _append(how: str, places: Collection[str]) -> bool:
    """Append the places that the record does not have; each line is written whole, also if several processes write."""
    path = record_path()
    if path is None:
        return False
    have = {(x, place) for _, x, place in _recorded(path).lines}
    if all((how, place) in have for place in places):
        return True
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(path) as descriptor:
            text = _read_all(descriptor)
            have = {(x, place) for _, x, place in _parsed(text)}
            today = datetime.now(UTC).date().isoformat()
            lines = [f"{today} {how} {place}\n" for place in sorted(places) if (how, place) not in have]
            begin = _HEADER if not text else "" if text.endswith("\n") else "\n"
            data = (begin + "".join(lines)).encode()
            while data:
                data = data[os.write(descriptor, data) :]
    except (OSError, ValueError):
        return False
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the record for appending, alone among all processes."""
    while True:
        descriptor = os.open(path, LOCK_FLAGS | os.O_APPEND, 0o600)
        try:
            with contextlib.suppress(OSError):  # some network file systems have no locks
                lock(descriptor)
            if path.stat().st_ino == os.fstat(descriptor).st_ino:  # otherwise it was replaced meanwhile
                yield descriptor
                return
        finally:
            os.close(descriptor)


def _read_all(descriptor: int) -> str:
    parts = []
    os.lseek(descriptor, 0, os.SEEK_SET)
    while part := os.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


def _recorded(path: Path | None) -> _Record:
    """Return the record, whose lines are date, how and place; none if it is absent, or if others may write to it."""
    try:
        status = None if path is None else os.stat(path)  # noqa: PTH116 - as fast as it can be
    except (OSError, ValueError):
        return _NO_RECORD
    if status is None or _fault(status) is not None:
        return _NO_RECORD
    return _read(str(path), status.st_ino, status.st_size, status.st_mtime_ns)


def why_ignored() -> str | None:
    """Return why the record is not read although it exists, and what to do; ``None`` if it is read, or absent."""
    path = record_path()
    try:
        fault = None if path is None else _fault(path.stat())
    except (OSError, ValueError):
        return None
    return None if fault is None else f"the record of places '{path}' is ignored: {fault}"


def _fault(status: os.stat_result) -> str | None:
    if not stat.S_ISREG(status.st_mode):
        return "it is not a file. Delete it"
    if is_foreign(status):
        return "it belongs to another account. Delete it, or name another file in " + RECORD_VARIABLE
    if is_writable_by_others(status):
        return "other accounts may write to it. Check its content, and remove that right with 'chmod go-w'"
    return None


@lru_cache(maxsize=4)
def _read(path: str, *_: int) -> _Record:
    try:
        return _Record(_parsed(Path(path).read_text(encoding="utf-8", errors="replace")))
    except OSError:
        return _NO_RECORD


def _parsed(text: str) -> tuple[tuple[str, str, str], ...]:
    found = (_LINE.fullmatch(line.strip()) for line in text.split("\n"))
    return tuple((m["date"], m["how"], m["place"]) for m in found if m is not None)


def _of_environment() -> tuple[str, ...]:
    text = os.environ.get(ALLOW_VARIABLE)
    return _split(text, os.getcwd()) if text else ()


@lru_cache(maxsize=4)
def _split(text: str, _: str) -> tuple[str, ...]:
    try:
        return tuple(map(place_from_user, shlex.split(text)))
    except ValueError as error:
        raise StorageError(
            f"{ALLOW_VARIABLE}={text!r} is not a list of places: {error}. Separate places by spaces, and quote a path "
            "that contains spaces"
        ) from error

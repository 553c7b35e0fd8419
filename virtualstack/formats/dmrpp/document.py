"""DMR++ documents as trees of elements; this module does not interpret the elements.

DMR++ is a DAP4 DMR with elements of the namespace ``dmrpp`` (OPeNDAP's BES, modules/dmrpp_module: DMZ.cc and the
"DMR++ Documentation for the dmrpp Namespace").
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal
from xml.parsers import expat

import numpy as np
from numpy.typing import NDArray

from virtualstack.errors import MalformedFileError, Remedy


class BadValueError(Exception):
    """The document contradicts itself; the message is half a sentence."""


class RefusedError(Exception):
    """The variable is legal, but no known byte ranges hold its values; the message is the reason."""

    def __init__(self, message: str, *, inline_size: int = 0) -> None:
        super().__init__(message)
        self.inline_size = inline_size


# dmrpp.xsd, ChunkType and BlockType; `trust` marks a URL that needs no separate credentials
_KNOWN = frozenset({"offset", "nBytes", "chunkPositionInArray", "fm", "href", "trust", "dmrpp:trust"})
_LINKED = "LinkedBlockIndex"
_MAX_NUMBER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Chunks of a variable in the order of the document; all arrays have ``n`` rows.

    Parameters
    ----------
    offset, length
        Offsets and lengths in bytes, shape ``(n,)``.
    position
        First element of each chunk, shape ``(n, axes)``; ``None`` if the document does not have it.
    mask
        Shape ``(n,)``: bit i is set if filter i was skipped; ``None`` if no filter was skipped.
    source
        Shape ``(n,)``: row of ``hrefs``, or -1 for the source of the document; ``None`` if all chunks are in that
        source.
    hrefs
        URLs as written in the document.
    """

    offset: NDArray[np.int64]
    length: NDArray[np.int64]
    position: NDArray[np.int64] | None
    mask: NDArray[np.int64] | None = None
    source: NDArray[np.int64] | None = None
    hrefs: tuple[str, ...] = ()


class Rows:
    """Collector of the attributes of consecutive elements, which become columns.

    Parameters
    ----------
    kind
        ``"dmrpp:chunk"`` or ``"dmrpp:block"``.
    short_names
        Function that returns an attribute's name without its namespace.
    """

    __slots__ = ("_fault", "_hrefs", "_parts", "_pending", "_short_names", "append", "kind", "unknown")

    def __init__(self, kind: str, short_names: Callable[[str], str]) -> None:
        self.kind = kind
        self.unknown: set[str] = set()
        self._short_names = short_names
        self._pending: list[dict[str, str]] = []
        self._parts: list[Columns] = []
        self._hrefs: dict[str, int] = {}
        self._fault: BadValueError | None = None
        self.append = self._pending.append

    def add(self, columns: Columns, /) -> None:
        """Add rows that are numbers already."""
        self._parts.append(columns)

    def flush(self) -> None:
        """Convert the collected text to numbers, which need a tenth of the memory."""
        if not self._pending:
            return
        try:
            self._parts.append(self._columns(self._pending))
        except BadValueError as error:
            self._fault = self._fault or error
        self._pending.clear()

    def columns(self) -> Columns:
        """Return all rows."""
        self.flush()
        if self._fault is not None:
            raise self._fault
        if not self._parts:
            none = np.zeros(0, np.int64)
            return Columns(offset=none, length=none, position=None)
        if len(self._parts) == 1:
            return replace(self._parts[0], hrefs=tuple(self._hrefs))
        positions = [part.position for part in self._parts if part.position is not None]
        if len(positions) not in (0, len(self._parts)) or len({x.shape[1] for x in positions}) > 1:
            raise BadValueError("its chunks have chunkPositionInArray of different lengths")
        return Columns(
            offset=np.concatenate([part.offset for part in self._parts]),
            length=np.concatenate([part.length for part in self._parts]),
            position=np.concatenate(positions) if positions else None,
            mask=self._joined("mask", 0),
            source=self._joined("source", -1),
            hrefs=tuple(self._hrefs),
        )

    def _joined(self, name: Literal["mask", "source"], usual: int) -> NDArray[np.int64] | None:
        """Join a column that some parts may lack."""
        columns: list[NDArray[np.int64] | None] = [getattr(part, name) for part in self._parts]
        if all(column is None for column in columns):
            return None
        lengths = [len(part.offset) for part in self._parts]
        return np.concatenate([np.full(n, usual) if x is None else x for x, n in zip(columns, lengths, strict=True)])

    def _columns(self, rows: list[dict[str, str]]) -> Columns:
        names = {self._short_names(name) for name in set[str]().union(*rows)}
        self.unknown |= names - _KNOWN
        try:
            offset = _numbers([row["offset"] for row in rows], "offset")
            length = _numbers([row["nBytes"] for row in rows], "nBytes")
            position = None
            if "chunkPositionInArray" in names:
                position = _positions([row["chunkPositionInArray"] for row in rows])
        except KeyError as error:
            raise BadValueError(f"a {self.kind} has no attribute {error}") from None
        if (offset > _MAX_NUMBER - length).any():
            raise BadValueError(f"a {self.kind} ends at 2^63 bytes or more")
        mask = _numbers([row.get("fm", "0") for row in rows], "fm") if "fm" in names else None
        source = None
        if "href" in names:
            known = self._hrefs
            hrefs = [row.get("href", "") for row in rows]
            source = np.array([known.setdefault(href, len(known)) if href else -1 for href in hrefs], np.int64)
        return Columns(offset=offset, length=length, position=position, mask=mask, source=source)

    @property
    def is_linked(self) -> bool:
        """True if several elements make up one chunk, as in HDF4."""
        return _LINKED in self.unknown


def read_number(text: str | None, what: str, /) -> int:
    """Read a whole number that is not negative."""
    if text is None:
        raise BadValueError(f"it has no {what}")
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or int(text) >= 1 << 63:
        raise BadValueError(f"{what} is '{text[:40]}', which is not a whole number below 2^63")
    return int(text)


def _numbers(texts: Sequence[str], what: str) -> NDArray[np.int64]:
    """Read one whole number from each text."""
    return np.array([read_number(text, what) for text in texts], np.int64)


def _positions(texts: Sequence[str]) -> NDArray[np.int64]:
    """Read positions such as ``[0,720]`` from each text: shape ``(n, axes)``."""
    what = "chunkPositionInArray"
    rows = [text[1:-1].replace(", ", ",").split(",") for text in texts]
    n_axes = len(rows[0])
    if not all(text[:1] + text[-1:] == "[]" and len(row) == n_axes for text, row in zip(texts, rows, strict=True)):
        raise BadValueError(f"{what} is not a list of {n_axes} numbers such as '{texts[0]}' everywhere")
    return np.array([[read_number(x, what) for x in row] for row in rows], np.int64)


_RUN = "dmrpp:run"
"""Element that replaces a run; its attribute ``n`` is the number of the run."""

_MIN_RUN_BYTES = 1 << 12  # some 40 chunks
_BLOCK_BYTES = 1 << 20
_TAG = b"<dmrpp:chunk "
_NUMBER = rb"[0-9]{1,18}"  # less than 2^62, so that the sum of two fits
_FIRST = re.compile(_TAG + rb'offset="%b" nBytes="%b" chunkPositionInArray="\[([0-9,]{1,640})\]"' % (_NUMBER, _NUMBER))
_ENCODING = re.compile(rb"""encoding=["']([^"']*)["']""")
_ASCII_BASED = frozenset({b"utf-8", b"iso-8859-1", b"us-ascii"})
_NO_DIGITS = bytes(i if i in b"0123456789" else 0x20 for i in range(256))


def take_runs(data: bytes, /) -> tuple[bytes, list[Columns]]:
    """Cut the long runs of chunks out of a document."""
    encoding = _ENCODING.search(data, 0, 200)
    is_plain = encoding is None or encoding[1].lower() in _ASCII_BASED
    if not is_plain or b"<!" in data or data.count(b"<?") > 1 or b":run" in data or b"<run" in data:
        return data, []
    runs: list[Columns] = []
    pieces: list[bytes] = []
    at = after = 0
    while (at := data.find(_TAG, at)) >= 0:
        first = _FIRST.match(data, at)
        run = None if first is None else _run_pattern(first[1].count(b",") + 1).match(data, at)
        end = at + len(_TAG) if run is None else run.end()
        if end - at >= _MIN_RUN_BYTES and first is not None:
            pieces += data[after:at], b'<%b n="%d"/>' % (_RUN.encode(), len(runs))
            runs.append(_columns(data, at, end, first[1].count(b",") + 1))
            after = end
        at = end
    return b"".join([*pieces, data[after:]]) if runs else data, runs


@functools.lru_cache(maxsize=32)
def _run_pattern(n_axes: int) -> re.Pattern[bytes]:
    """Return the pattern of consecutive chunks with positions of ``n_axes`` numbers."""
    position = rb",".join([_NUMBER] * n_axes)
    chunk = _TAG + rb'offset="%b" nBytes="%b" chunkPositionInArray="\[%b\]" ?/>' % (_NUMBER, _NUMBER, position)
    return re.compile(rb"(?:%b[ \t\r\n]*+)++" % chunk)


def _columns(data: bytes, at: int, end: int, n_axes: int) -> Columns:
    """Read the numbers of a run, about ten thousand chunks at a time, since their text needs more memory."""
    parts = []
    while at < end:
        cut = data.rfind(b">", at, min(at + _BLOCK_BYTES, end)) + 1
        parts.append(np.fromstring(data[at:cut].translate(_NO_DIGITS), np.int64, sep=" ").reshape(-1, 2 + n_axes))
        at = cut if data.find(_TAG, cut, end) >= 0 else end
    numbers = np.concatenate(parts)
    return Columns(offset=numbers[:, 0], length=numbers[:, 1], position=numbers[:, 2:])


MAX_DOCUMENT_BYTES = 1 << 30
"""Maximum bytes of a document: about ten million chunks."""

_MAX_ELEMENTS = 1 << 22  # without chunks; each element takes about 500 bytes
_MAX_DEPTH = 100

_ROWS = frozenset({"dmrpp:chunk", "dmrpp:block"})
_WITH_TEXT = frozenset({"Value", "dmrpp:chunkDimensionSizes", "dmrpp:compact", "dmrpp:missingdata", "v", "dmrpp:v"})


@dataclass(slots=True)
class Element:
    """An element of a document. Chunks and blocks are not elements but ``rows`` of their parent.

    Parameters
    ----------
    name
        Name of the element: without a prefix for DAP, as ``dmrpp:name`` for DMR++, else with its namespace.
    attributes
        Attributes by name, in the same form.
    children
        Child elements in the order of the document.
    text
        Text of the element; empty for elements without text.
    rows
        Chunks or blocks in the element.
    """

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    text: str = ""
    rows: Rows | None = None

    def named(self, *names: str) -> Iterator[Element]:
        """Yield the children with certain names."""
        return (child for child in self.children if child.name in names)


class _ShortNames(dict[str, str]):
    """Mapping from names in expat (namespace, ``}``, name) to names as in :class:`Element`."""

    def __missing__(self, name: str) -> str:
        namespace, _, local = name.rpartition("}")
        is_dap = not namespace or "/DAP/" in namespace
        self[name] = f"dmrpp:{local}" if "dmrpp" in namespace else local if is_dap else name
        return self[name]


def parse_document(data: bytes, /, *, where: str) -> Element:
    """Read a document. This takes about a microsecond for each chunk, and more if chunks have unusual attributes."""
    if len(data) > MAX_DOCUMENT_BYTES:
        raise _malformed(where, f"it has {len(data)} bytes; at most {MAX_DOCUMENT_BYTES} are read")
    rest, runs = take_runs(data)
    if runs:
        with contextlib.suppress(MalformedFileError):
            return _parse(rest, runs, where)
    return _parse(data, [], where)  # parse all of a damaged document, so that the error names the right position


def _parse(data: bytes, runs: list[Columns], where: str) -> Element:
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    names = _ShortNames()
    stack = [Element("", {})]
    texts: list[str] = []
    open_rows: list[Rows] = []
    n_elements = 0
    are_rows = _ROWS | {_RUN} if runs else _ROWS

    def rows_for(kind: str) -> Rows:
        parent = stack[-1]
        rows = parent.rows
        if rows is None:
            rows = parent.rows = Rows(kind, names.__getitem__)
            open_rows.append(rows)
        elif rows.kind != kind:
            raise _malformed(where, "chunks and blocks are in one element")
        return rows

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal n_elements
        short = names[name]
        if short in are_rows:
            if short == _RUN:
                rows_for("dmrpp:chunk").add(runs[int(attributes["n"])])
            else:
                rows_for(short).append(attributes)
            return
        n_elements += 1
        if n_elements > _MAX_ELEMENTS or len(stack) > _MAX_DEPTH:
            raise _malformed(
                where, f"it has more than {_MAX_ELEMENTS} elements, or more than {_MAX_DEPTH} nested in each other"
            )
        element = Element(short, {names[key]: value for key, value in attributes.items()})
        stack[-1].children.append(element)
        stack.append(element)
        if short in _WITH_TEXT:
            parser.CharacterDataHandler = texts.append

    def end(name: str) -> None:
        short = names[name]
        if short in are_rows:
            return
        element = stack.pop()
        if short in _WITH_TEXT:
            parser.CharacterDataHandler = None
            element.text = "".join(texts)
            texts.clear()

    def doctype(*_: object) -> None:
        raise _malformed(where, "it has a document type declaration, which DMR++ does not use")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        for first in range(0, len(data), _BLOCK_BYTES):
            parser.Parse(data[first : first + _BLOCK_BYTES], False)
            for rows in open_rows:
                rows.flush()
            del open_rows[:-1]  # chunks of a variable are consecutive, so only the last rows may continue
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the latter for unknown encodings
        if isinstance(error, MalformedFileError):
            raise
        raise _malformed(where, f"{error}", offset=parser.ErrorByteIndex) from error
    root = stack[0].children[0]
    if root.name != "Dataset":
        raise _malformed(where, f"its root is '{root.name}', not 'Dataset'")
    return root


def _malformed(where: str, reason: str, *, offset: int | None = None) -> MalformedFileError:
    return MalformedFileError(
        f"'{where}' is not a DMR++ document, is cut off or damaged: {reason}",
        Remedy("fetch it again"),
        url=where,
        offset=offset,
    )

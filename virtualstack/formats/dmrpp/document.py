"""DMR++ documents as trees of elements; what those mean is not known here.

DMR++ is a DAP4 DMR with elements of the namespace ``dmrpp`` (OPeNDAP's BES, modules/dmrpp_module: DMZ.cc and the
"DMR++ Documentation for the dmrpp Namespace").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from virtualstack.errors import MalformedFileError
from virtualstack.formats.dmrpp.rows import RUN, Columns, Rows, take_runs

__all__ = ["MAX_BYTES", "Element", "parse_document"]

MAX_BYTES = 1 << 30
"""Bytes of a document: ten million chunks."""

_MAX_ELEMENTS = 1 << 22  # but for chunks; each takes some 500 bytes
_MAX_DEPTH = 100
_BLOCK_BYTES = 1 << 20
_ROWS = frozenset({"dmrpp:chunk", "dmrpp:block"})
_WITH_TEXT = frozenset({"Value", "dmrpp:chunkDimensionSizes", "dmrpp:compact", "dmrpp:missingdata", "v", "dmrpp:v"})


@dataclass(slots=True)
class Element:
    """An element of a document, but for chunks and blocks, which are ``rows`` of their parent.

    Parameters
    ----------
    name
        Without a prefix where it is DAP's, as ``dmrpp:`` and a name where it is DMR++'s, else with its namespace.
    attributes
        By name, in the same form.
    children
        In the order of the document.
    text
        Of elements that have some.
    rows
        The chunks or blocks in it.
    """

    name: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    text: str = ""
    rows: Rows | None = None

    def named(self, *names: str) -> Iterator[Element]:
        """Give the children of certain names."""
        return (child for child in self.children if child.name in names)


class _ShortNames(dict[str, str]):
    """Names as expat gives them (namespace, ``}``, name) to names as in :class:`Element`."""

    def __missing__(self, name: str) -> str:
        namespace, _, local = name.rpartition("}")
        is_dap = not namespace or "/DAP/" in namespace
        self[name] = f"dmrpp:{local}" if "dmrpp" in namespace else local if is_dap else name
        return self[name]


def parse_document(data: bytes, /, *, where: str) -> Element:
    """Read a document; it takes about a microsecond a chunk, and some more where chunks have attributes of their own.

    Parameters
    ----------
    data
        The document.
    where
        Its URL.

    Returns
    -------
    Element
        The root, ``Dataset``.

    Raises
    ------
    MalformedFileError
        It is no XML, is cut off, has a document type declaration, or is larger or deeper than documents are.
    """
    if len(data) > MAX_BYTES:
        raise _malformed(where, f"it has {len(data)} bytes; at most {MAX_BYTES} are read")
    rest, runs = take_runs(data)
    if runs:
        with contextlib.suppress(MalformedFileError):
            return _parse(rest, runs, where)
    return _parse(data, [], where)  # of a damaged document all of it, so that the place is right


def _parse(data: bytes, runs: list[Columns], where: str) -> Element:
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    names = _ShortNames()
    stack = [Element("", {})]
    texts: list[str] = []
    open_rows: list[Rows] = []
    n_elements = 0
    are_rows = _ROWS | {RUN} if runs else _ROWS

    def rows_for(kind: str) -> Rows:
        parent = stack[-1]
        rows = parent.rows
        if rows is None:
            rows = parent.rows = Rows(kind, names.__getitem__)
            open_rows.append(rows)
        elif rows.kind != kind:
            raise _malformed(where, "chunks and blocks stand in one element")
        return rows

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal n_elements
        short = names[name]
        if short in are_rows:
            if short == RUN:
                rows_for("dmrpp:chunk").add(runs[int(attributes["n"])])
            else:
                rows_for(short).append(attributes)
            return
        n_elements += 1
        if n_elements > _MAX_ELEMENTS or len(stack) > _MAX_DEPTH:
            raise _malformed(
                where, f"it has more than {_MAX_ELEMENTS} elements, or more than {_MAX_DEPTH} in each other"
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
        raise _malformed(where, "it has a document type declaration, which DMR++ has no use for")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        for first in range(0, len(data), _BLOCK_BYTES):
            parser.Parse(data[first : first + _BLOCK_BYTES], False)
            for rows in open_rows:
                rows.flush()
            del open_rows[:-1]  # chunks of a variable follow each other, so the last ones may go on
        parser.Parse(b"", True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the latter of encodings that are unknown
        if isinstance(error, MalformedFileError):
            raise
        raise _malformed(where, f"{error}", offset=parser.ErrorByteIndex) from error
    root = stack[0].children[0]
    if root.name != "Dataset":
        raise _malformed(where, f"its root is '{root.name}', not 'Dataset'")
    return root


def _malformed(where: str, reason: str, *, offset: int | None = None) -> MalformedFileError:
    return MalformedFileError(
        f"'{where}' is no DMR++ document, is cut off or damaged: {reason}; fetch it again", url=where, offset=offset
    )

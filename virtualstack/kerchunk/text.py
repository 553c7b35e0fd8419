"""Splitting of plain references, ``"key":["url",offset,length]``, from the text of a JSON document, as columns.

The JSON library would take seconds and millions of Python objects for a million references. Here they are found by
their quotation marks. The JSON library parses the rest of the document, with a marker ``"name":0`` in place of each run
of references. The result for the marker is valid for the run:

- A marker inside a text would end the text and continue with a bare word, which the library refuses.
- So the marker is a member of an object, and the references of the run, each in JSON syntax, are members as well.
- The name of the marker is random, so no document can contain it.

If this does not hold for a document, or cannot be shown, the library parses the whole document.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.kerchunk.table import PlainReferences, are_metadata, narrow
from virtualstack.zarr.metadata.chunk_keys import whole_numbers

_BLOCK_BYTES = 1 << 20  # bytes searched at a time, so that intermediate arrays stay in the processor's cache
_MAX_RUNS = 1 << 16
_MAX_KEY_BYTES = 1 << 8
_WORD_BYTES = 8
_LONG_NUMBER = re.compile(rb"[0-9]{20}")
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(_WORD_BYTES + 1)], np.uint64)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no hash of a word is lost; 2^64 divided by the golden ratio

type Positions = NDArray[np.int64]
type ByteArray = NDArray[np.uint8]


class _Found(NamedTuple):
    """Positions of plain references: quotation marks, the closing bracket, and the start of the next member."""

    key: Positions
    key_end: Positions
    url: Positions
    url_end: Positions
    bracket: Positions
    stop: Positions


class _Block(NamedTuple):
    """Text of a document from a position on, and the plain references newly found in it.

    The text before the position ``settled`` is final: no reference found later begins in it.
    """

    start: int
    text: bytes
    found: _Found
    settled: int


class _Part(NamedTuple):
    """Plain references of a block as columns."""

    keys: pa.Array
    urls: pa.DictionaryArray
    offsets: NDArray[np.int64]
    lengths: NDArray[np.integer]


def load_json(text: bytes | bytearray, /) -> Any:
    """Parse JSON as :mod:`json` does, except that NaN may be refused."""
    if _LONG_NUMBER.search(text):  # orjson would turn whole numbers from 2^64 on into floats
        try:
            return json.loads(text)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
    return orjson.loads(text)


def split_text(pieces: Iterable[bytes], /) -> tuple[dict[str, Any], PlainReferences] | None:
    """Return a parsed reference set of version 0 or 1 without its plain references, and the plain references.

    ``None`` is returned if the JSON library has to parse the whole text: it has no plain reference, duplicate keys or
    generators, or is not JSON. This is also so if a seemingly plain reference has a feature that :mod:`json`,
    ``orjson`` and ``ujson`` do not write.
    """
    parts, rest = list[_Part](), _Rest()
    hashes = bytearray()  # hashes of keys, in one piece of memory that is freed as a whole
    for block in _find(pieces):
        if block.found.key.size:
            part = _read(block.text, block.found, hashes)
            if part is None:
                return None
            parts.append(part)
        if not rest.take(block):
            return None
    parsed = rest.parse() if parts else None
    if parsed is None:
        return None
    data, others = parsed
    of_others = _hashes(pa.array(others, pa.large_string()))
    if of_others is None:
        return None
    hashes += of_others.tobytes()
    if not _are_distinct(np.frombuffer(hashes, np.uint64)):
        return None
    del hashes
    urls = pa.chunked_array([part.urls for part in parts]).combine_chunks()
    names = _unescaped(urls.dictionary).dictionary_encode()
    rows = names.indices.to_numpy()[urls.indices.to_numpy()]
    ends = np.cumsum([len(part.keys) for part in parts])
    plain = PlainReferences.from_columns(
        (
            (part.keys, at, part.offsets, part.lengths)
            for part, at in zip(parts, np.split(rows, ends[:-1]), strict=True)
        ),
        names.dictionary.to_pylist(),
    )
    if any("/" not in stem for stem in plain.stems) or are_metadata(pa.array(plain.stems, pa.large_string())).any():
        return None  # such as "version", or metadata in another file
    return data, plain


def _find(pieces: Iterable[bytes]) -> Iterator[_Block]:
    """Yield blocks with their plain references, found by quotation marks and the characters between them.

    References that are much longer than a block are not found.
    """
    quotes = odd = np.zeros(0, np.int64)
    held, start = b"", 0
    for block in _blocks(pieces):
        seen = max(len(held) - 1, 0)  # the last byte is examined together with the byte after it
        text = held + block
        new = np.frombuffer(text, np.uint8)[seen:]
        is_odd = (new[:-1] < ord(" ")) | ((new[:-1] == ord("\\")) & (new[1:] != ord("/")))
        quotes = np.append(quotes, np.flatnonzero(new[:-1] == ord('"')) + seen)
        odd = np.append(odd, np.flatnonzero(is_odd) + seen)
        settled = max(len(text) - 1 - _BLOCK_BYTES, 0)
        yield _Block(start, text, _between(quotes, odd, np.frombuffer(text, np.uint8)), settled)
        held, start = text[settled:], start + settled
        quotes, odd = (x[np.searchsorted(x, settled) :] - settled for x in (quotes[-4:], odd))
    yield _Block(start, held, _Found(*[np.zeros(0, np.int64)] * 6), len(held))


def _blocks(pieces: Iterable[bytes]) -> Iterator[memoryview]:
    for piece in pieces:
        view = memoryview(piece)
        yield from (view[at : at + _BLOCK_BYTES] for at in range(0, len(piece), _BLOCK_BYTES))


def _between(quotes: Positions, odd: Positions, text: ByteArray) -> _Found:
    gaps = np.diff(quotes)[1:-2]
    first = np.flatnonzero((gaps == 3) | (gaps == 4))  # then the second gap may be ":[" or ": ["
    key, key_end, url, url_end, stop = (quotes[first + i] for i in range(5))
    comma = stop - 1 - (text[stop - 1] == ord(" "))
    good = (text[key_end + 1] == ord(":")) & (text[url - 1] == ord("["))
    good &= (url == key_end + 3) | (text[key_end + 2] == ord(" "))
    good &= (text[url_end + 1] == ord(",")) & (text[comma - 1] == ord("]")) & (text[comma] == ord(","))
    good &= np.searchsorted(odd, key) == np.searchsorted(odd, stop)
    return _Found(*(x[good] for x in (key, key_end, url, url_end, comma - 1, stop)))


def _read(text: bytes, found: _Found, hashes: bytearray) -> _Part | None:
    """Return the references of a text, and add hashes of their keys to ``hashes``; ``None`` if one is not plain."""
    if (found.key[1:] < found.stop[:-1]).any():
        return None  # some text looks like the middle of a reference
    try:
        keys = _cut(text, found.key + 1, found.key_end)
        urls = _cut(text, found.url + 1, found.url_end)
        spans = _cut(text, found.url_end + 2, found.bracket)
    except pa.ArrowInvalid:  # not UTF-8
        return None
    numbers = whole_numbers(spans, 2, delimiter=",", blanks=True)
    if numbers is None:
        return None
    offsets, lengths = numbers
    keys = _unescaped(keys)
    of_keys = _hashes(keys)
    if of_keys is None:
        return None
    hashes += of_keys.tobytes()
    return _Part(keys.cast(pa.string()), urls.dictionary_encode(), offsets.copy(), narrow(lengths))


def _cut(text: bytes, starts: Positions, stops: Positions) -> pa.Array:
    """Return every other piece of a text that is cut at all bounds."""
    bounds = np.stack([starts, stops], axis=1)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
    pieces = pa.Array.from_buffers(pa.large_binary(), bounds.size - 1, buffers)
    return pieces.take(pa.array(np.arange(0, bounds.size, 2))).cast(pa.large_string())


def _unescaped(texts: pa.Array) -> pa.Array:
    return pc.replace_substring(texts, "\\/", "/")


class _Rest:
    """The rest of a document, with a marker instead of each run of references."""

    def __init__(self) -> None:
        self._name = f"references {uuid4().hex} "
        self._markers: list[str] = []
        self._text = bytearray()
        self._end = 0

    def take(self, block: _Block) -> bool:
        """Add the settled text of a block; return false if there are too many runs, or if runs overlap."""
        at, found = self._end - block.start, block.found
        if found.key.size:
            breaks = np.flatnonzero(found.key[1:] != found.stop[:-1])
            starts, stops = found.key[np.append(0, breaks + 1)], found.stop[np.append(breaks, -1)]
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
                if start < at:
                    return False
                self._markers.append(f"{self._name}{len(self._markers)}")
                self._text += block.text[at:start] + f'"{self._markers[-1]}":0,'.encode()
                at = stop
        if at < block.settled:
            self._text += block.text[at : block.settled]
            at = block.settled
        self._end = block.start + at
        return len(self._markers) <= _MAX_RUNS

    def parse(self) -> tuple[dict[str, Any], list[str]] | None:
        """Return the reference set, and the remaining keys of its references; ``None`` if it is not valid."""
        try:
            data = load_json(self._text)
        except ValueError:
            return None
        references = data.get("refs") if isinstance(data, dict) and "version" in data else data
        if not isinstance(references, dict) or "gen" in data:
            return None
        if any(references.pop(marker, None) != 0 for marker in self._markers):
            return None
        return data, list(references)


def _are_distinct(hashes: NDArray[np.uint64]) -> bool:
    """Return whether texts are distinct by their hashes, which are sorted in place: equal texts have equal hashes."""
    hashes.sort()
    return bool((hashes[1:] != hashes[:-1]).all())


def _hashes(texts: pa.Array) -> NDArray[np.uint64] | None:
    """Return hashes of texts, or ``None`` if a text is long."""
    starts = np.frombuffer(texts.buffers()[1], np.int64)[: len(texts) + 1]
    lengths = np.diff(starts)
    if int(lengths.max(initial=0)) > _MAX_KEY_BYTES:
        return None
    padded = np.append(np.frombuffer(texts.buffers()[2], np.uint8), np.zeros(_WORD_BYTES, np.uint8))
    words = np.ndarray((padded.size - _WORD_BYTES + 1,), "<u8", padded, strides=(1,))
    hashes = lengths.astype(np.uint64) * _FACTOR
    for i in range(0, int(lengths.max(initial=0)), _WORD_BYTES):
        n_bytes = np.clip(lengths - i, 0, _WORD_BYTES)
        word = words[np.minimum(starts[:-1] + i, words.size - 1)] & _FIRST_BYTES[n_bytes]
        mixed = (hashes ^ word) * _FACTOR
        mixed ^= mixed >> np.uint64(32)
        hashes = np.where(lengths > i, mixed, hashes)  # a hash does not depend on the longest text
    return hashes

"""Plain references, ``"key":["url",offset,length]``, taken out of the text of a JSON document as columns.

A million of them are millions of objects of Python, and seconds.
Here they are found by their quotation marks, and what is left of the document goes through the JSON library, with a
marker ``"name":0`` in place of each run of them. What the library makes of the marker holds for the run:

- a marker inside of a text would end it and go on with a bare word, which the library refuses;
- so it is a member of an object, and the references of the run, each written as JSON has it, are members as well;
- its name is random: no document can bring it along.

A document for which that does not hold, or of which it is not seen here, is left to the library as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from virtualstack.formats.plain_references import PlainReferences, are_metadata
from virtualstack.formats.whole_numbers import whole_numbers

__all__ = ["split_text"]

_BLOCK = 1 << 20  # bytes looked at together: what is found in them stays in the processor's cache
_MAX_RUNS = 1 << 16
_MAX_KEY = 1 << 8
_WORD = 8
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], np.uint64)
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no hash of a word is lost; 2^64 by the golden ratio

type Positions = NDArray[np.int64]
type Bytes = NDArray[np.uint8]


class _Found(NamedTuple):
    """Where plain references stand: quotation marks, the closing bracket, and where the next member begins."""

    key: Positions
    key_end: Positions
    url: Positions
    url_end: Positions
    bracket: Positions
    stop: Positions


class _Part(NamedTuple):
    """Plain references of a block of text: where runs of them begin and end, and columns."""

    starts: Positions
    stops: Positions
    keys: pa.Array
    urls: pa.DictionaryArray
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]


def split_text(text: bytes | bytearray, /) -> tuple[dict[str, Any], PlainReferences] | None:
    """Give a reference set of version 0 or 1 without its plain references, as parsed, and these.

    ``None`` if the JSON library has to read it as a whole: no reference is plain, one that seems to be has a feature
    beyond what :mod:`json`, ``orjson`` and ``ujson`` write for such, a key stands there twice, there are generators,
    or it is not JSON.
    """
    parts = []
    for found in _find(np.frombuffer(text, np.uint8)):
        part = _read(text, found)
        if part is None:
            return None
        parts.append(part)
    rest = _rest(text, parts) if parts else None
    if rest is None:
        return None
    data, others = rest
    if not _are_distinct([*(part.keys for part in parts), pa.array(others, pa.large_string())]):
        return None
    urls = pa.chunked_array([part.urls for part in parts]).combine_chunks()
    names = _unescaped(urls.dictionary).dictionary_encode()
    plain = PlainReferences.of(
        pa.concat_arrays([part.keys for part in parts]),
        names.indices.to_numpy().astype(np.int64)[urls.indices.to_numpy()],
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        names.dictionary.to_pylist(),
    )
    if any("/" not in stem for stem in plain.stems) or are_metadata(pa.array(plain.stems, pa.large_string())).any():
        return None  # "version", or metadata in another file
    return data, plain


def _find(text: Bytes) -> Iterator[_Found]:
    """Find plain references, none much longer than a block, by the quotation marks and what stands between them."""
    quotes = odd = np.zeros(0, np.int64)
    for start in range(0, text.size - 1, _BLOCK):
        block, after = text[start : start + _BLOCK + 1][:-1], text[start + 1 : start + _BLOCK + 1]
        is_odd = (block < ord(" ")) | ((block == ord("\\")) & (after != ord("/")))
        quotes, odd = (x[np.searchsorted(x, start - _BLOCK) :] for x in (quotes[-4:], odd))
        quotes = np.append(quotes, np.flatnonzero(block == ord('"')) + start)
        odd = np.append(odd, np.flatnonzero(is_odd) + start)
        found = _between(quotes, odd, text)
        if found.key.size:
            yield found


def _between(quotes: Positions, odd: Positions, text: Bytes) -> _Found:
    gaps = np.diff(quotes)[1:-2]
    first = np.flatnonzero((gaps == 3) | (gaps == 4))  # then the second gap may be ":[" or ": ["
    key, key_end, url, url_end, stop = (quotes[first + i] for i in range(5))
    comma = stop - 1 - (text[stop - 1] == ord(" "))
    good = (text[key_end + 1] == ord(":")) & (text[url - 1] == ord("["))
    good &= (url == key_end + 3) | (text[key_end + 2] == ord(" "))
    good &= (text[url_end + 1] == ord(",")) & (text[comma - 1] == ord("]")) & (text[comma] == ord(","))
    good &= np.searchsorted(odd, key) == np.searchsorted(odd, stop)
    return _Found(*(x[good] for x in (key, key_end, url, url_end, comma - 1, stop)))


def _read(text: bytes | bytearray, found: _Found) -> _Part | None:
    if (found.key[1:] < found.stop[:-1]).any():
        return None  # a text that looks like the middle of a reference
    try:
        keys = _cut(text, found.key + 1, found.key_end)
        urls = _cut(text, found.url + 1, found.url_end)
        spans = _cut(text, found.url_end + 2, found.bracket)
    except pa.ArrowInvalid:  # no UTF-8
        return None
    numbers = whole_numbers(spans, 2, delimiter=",", blanks=True)
    if numbers is None:
        return None
    offsets, lengths = numbers
    breaks = np.flatnonzero(found.key[1:] != found.stop[:-1])
    starts, stops = found.key[np.append(0, breaks + 1)], found.stop[np.append(breaks, -1)]
    return _Part(starts, stops, _unescaped(keys), urls.dictionary_encode(), offsets, lengths)


def _cut(text: bytes | bytearray, starts: Positions, stops: Positions) -> pa.Array:
    """Copy pieces that follow each other: every other one of those that lie between all the bounds."""
    bounds = np.stack([starts, stops], axis=1)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(text)]
    pieces = pa.Array.from_buffers(pa.large_binary(), bounds.size - 1, buffers)
    return pieces.take(pa.array(np.arange(0, bounds.size, 2))).cast(pa.large_string())


def _unescaped(texts: pa.Array) -> pa.Array:
    return pc.replace_substring(texts, "\\/", "/")


def _rest(text: bytes | bytearray, parts: Sequence[_Part]) -> tuple[dict[str, Any], list[str]] | None:
    """Parse what is not plain: the reference set, and the keys that are left in its references."""
    starts, stops = np.concatenate([part.starts for part in parts]), np.concatenate([part.stops for part in parts])
    if starts.size > _MAX_RUNS or (starts[1:] < stops[:-1]).any():
        return None
    name, at = f"references {uuid4().hex} ", 0
    view, pieces, markers = memoryview(text), list[bytes | memoryview](), list[str]()
    for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
        markers.append(f"{name}{start}")
        pieces += [view[at:start], f'"{markers[-1]}":0,'.encode()]
        at = stop
    try:
        data = orjson.loads(b"".join([*pieces, view[at:]]))
    except orjson.JSONDecodeError:
        return None
    references = data.get("refs") if isinstance(data, dict) and "version" in data else data
    if not isinstance(references, dict) or "gen" in data:
        return None
    if any(references.pop(marker, None) != 0 for marker in markers):
        return None
    return data, list(references)


def _are_distinct(parts: Sequence[pa.Array]) -> bool:
    """Say whether texts are provably distinct: those that are equal have equal hashes."""
    if any(pc.max(pc.binary_length(part)).as_py() > _MAX_KEY for part in parts if len(part)):
        return False
    hashes = np.concatenate([_hashes(part) for part in parts])
    hashes.sort()
    return bool((hashes[1:] != hashes[:-1]).all())


def _hashes(texts: pa.Array) -> NDArray[np.uint64]:
    starts = np.frombuffer(texts.buffers()[1], np.int64)[: len(texts) + 1]
    lengths = np.diff(starts)
    padded = np.append(np.frombuffer(texts.buffers()[2], np.uint8), np.zeros(_WORD, np.uint8))
    words = np.ndarray((padded.size - _WORD + 1,), "<u8", padded, strides=(1,))
    hashes = lengths.astype(np.uint64) * _FACTOR
    for i in range(0, int(lengths.max(initial=0)), _WORD):
        n_bytes = np.clip(lengths - i, 0, _WORD)
        word = words[np.minimum(starts[:-1] + i, words.size - 1)] & _FIRST_BYTES[n_bytes]
        mixed = (hashes ^ word) * _FACTOR
        mixed ^= mixed >> np.uint64(32)
        hashes = np.where(lengths > i, mixed, hashes)  # whatever the longest of these texts
    return hashes

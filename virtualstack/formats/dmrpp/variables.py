"""A variable of a document as a virtual array, or the reason why it is none; values that the document itself holds."""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import CodecError, decode
from virtualstack.errors import StorageError
from virtualstack.formats.dmrpp.chunks import DmrppChunkedLayout, Locate, place_blocks, place_chunks, read_filters
from virtualstack.formats.dmrpp.dap import (
    PADDINGS,
    TEXT,
    parse_fill,
    read_attributes,
    stored_dtype,
    text_elements,
)
from virtualstack.formats.dmrpp.document import BadValueError, Element, RefusedError, Rows, read_number
from virtualstack.formats.dmrpp.tree import Axis, DmrppGroup
from virtualstack.formats.hdf5.datatypes import packed
from virtualstack.manifests import Fill, ManifestArray, Refusal, inline_array, value_changing

_TEXT = np.dtypes.StringDType()
_MAX_COMPACT_BYTES = 1 << 16  # bytes of a compact dataset of HDF5; any document may hold them


def compact_values(
    element: Element, dtype: np.dtype[Any], shape: tuple[int, ...], codecs: tuple[Codec, ...] = (), /
) -> NDArray[Any]:
    """Read ``dmrpp:compact``: base64 of values of the machine that wrote them, which is little-endian.

    Parameters
    ----------
    element
        Element whose text holds the values.
    dtype, shape
        Dtype and shape of the values.
    codecs
        Elementwise codecs.

    Raises
    ------
    BadValueError
        The text is not base64, or has a different length than the values.
    """
    return _values(_decoded(element), dtype, shape, codecs)


def compact_text(element: Element, /) -> NDArray[Any]:
    """Read ``dmrpp:compact`` of one text.

    Raises
    ------
    BadValueError
        The text is not base64, or not UTF-8.
    """
    return np.array(_text(_decoded(element).rstrip(b"\0")), _TEXT)


def missing_values(element: Element, dtype: np.dtype[Any], shape: tuple[int, ...], limit: int, /) -> NDArray[Any]:
    """Read ``dmrpp:missingdata``: base64 of zlib of several values, or base64 of a single value.

    Raises
    ------
    BadValueError
        The text is not base64 or zlib, or has a different length than the values.
    RefusedError
        The values have more bytes than the limit.
    """
    length = math.prod(shape) * dtype.itemsize
    _check_limit(length, limit)
    raw = _decoded(element)
    return _values(raw if math.prod(shape) == 1 else _inflated(raw, length), dtype, shape)


def vlsa_texts(element: Element, shape: tuple[int, ...], limit: int, /) -> NDArray[Any]:
    """Read ``dmrpp:vlsa``: each text has an element ``v`` with a count ``c``; it is compressed if it has a size ``s``.

    Raises
    ------
    BadValueError
        The element holds more or fewer texts than the array.
    RefusedError
        The texts have more bytes than the limit.
    """
    texts: list[str] = []
    size = math.prod(shape)
    n_texts = n_bytes = 0
    values = []
    for value in element.named("v", "dmrpp:v"):
        count = read_number(value.attributes.get("c", "1"), "count of a text")
        is_packed = "s" in value.attributes
        length = read_number(value.attributes["s"], "size of a text") if is_packed else len(value.text.encode())
        n_bytes += count * (length + 4)
        values.append((value, count, length if is_packed else None))
    _check_limit(n_bytes, limit)
    for value, count, packed_length in values:
        text = value.text if packed_length is None else _text(_inflated(_decoded(value), packed_length))
        n_texts += count
        if n_texts <= size:
            texts += [text] * count
    if n_texts != size:
        raise BadValueError(f"its dmrpp:vlsa holds {n_texts} texts, its shape {shape}")
    return np.array(texts, _TEXT).reshape(shape)


def _values(raw: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], codecs: tuple[Codec, ...] = ()) -> NDArray[Any]:
    try:
        return decode(raw, codecs, dtype.newbyteorder("<"), shape)
    except CodecError as error:
        raise BadValueError(f"its values in the document are not those of its shape {shape}: {error}") from error


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadValueError(f"its text is not UTF-8: {error}") from error


def _decoded(element: Element) -> bytes:
    try:
        return base64.b64decode("".join(element.text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadValueError(f"its {element.name} is not base64: {error}") from error


def _inflated(raw: bytes, length: int) -> bytes:
    try:
        data = zlib.decompressobj().decompress(raw, length + 1)
    except zlib.error as error:
        raise BadValueError(f"its values in the document are not a zlib stream: {error}") from error
    if len(data) != length:
        raise BadValueError(f"its values in the document are not {length} bytes")
    return data


def _check_limit(length: int, limit: int) -> None:
    if length > max(limit, _MAX_COMPACT_BYTES):
        what = f"its {length} bytes in the document are more than the inline limit of {limit}"
        raise RefusedError(what, inline_size=length)


# dmrpp.xsd, ChunksType; old documents have `deflate_level`
_KNOWN = frozenset(
    {"compressionType", "deflateLevel", "deflate_level", "fillValue", "byteOrder", "structOffset", "LBChunk", "DIO"}
)
_INLINE = "dmrpp:compact", "dmrpp:missingdata", "dmrpp:vlsa", "dmrpp:specialstructuredata"
_FIXED_TEXTS = "dmrpp:FixedLengthStringArray"
_PARTS = frozenset({"dmrpp:chunks", "dmrpp:chunkDimensionSizes", _FIXED_TEXTS, *_INLINE})


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentContext:
    """Properties of a document that are needed to read a variable.

    Parameters
    ----------
    locate
        Function that makes locations from URLs as written in the document.
    values
        Function that reads the values of an array.
    inline_limit
        Maximum bytes of values that one variable may put into the manifest.
    is_ordered
        If true, the names of filters are in the order of encoding.
    """

    locate: Locate
    values: Callable[[ManifestArray], NDArray[Any]]
    inline_limit: int
    is_ordered: bool


def read_variable(
    element: Element, path: str, axes: tuple[Axis, ...], group: DmrppGroup, context: DocumentContext, /
) -> tuple[ManifestArray | None, list[Refusal]]:
    """Describe a variable.

    Parameters
    ----------
    element
        Element of a DAP4 type.
    path
        Absolute path of the variable.
    axes
        Dimensions of the variable.
    group
        Group that holds the variable.
    context
        Context of the document of the variable.

    Returns
    -------
    array
        The array; ``None`` if the variable is refused.
    refusals
        Reasons why it was refused or inlined, and notes on its attributes.

    Raises
    ------
    BadValueError
        The document contradicts itself.
    """
    attributes, notes = read_attributes(element, path, is_char=element.name in {*TEXT, "Char"})
    variable = _Variable(
        element=element,
        path=path,
        axes=axes,
        attributes=attributes,
        group=group,
        context=context,
        rows=_rows(element),
        layout=next((x.attributes for x in element.named("dmrpp:chunks")), {}),
    )
    try:
        array, reason = variable.read()
    except RefusedError as error:
        return None, [*notes, Refusal(path=path, reason=str(error), inline_size=error.inline_size)]
    return array, [*notes, Refusal(path=path, reason=reason, kind="inlined")] if reason else notes


def _rows(element: Element) -> Rows | None:
    """Return the chunks of a variable: children of ``dmrpp:chunks``, or in old documents one child of the variable."""
    found = [x.rows for x in (element, *element.named("dmrpp:chunks")) if x.rows is not None]
    if len(found) + sum(1 for _ in element.named(*_INLINE)) > 1 or len(list(element.named("dmrpp:chunks"))) > 1:
        raise BadValueError("its values are in several places")
    return found[0] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    element: Element
    path: str
    axes: tuple[Axis, ...]
    attributes: dict[str, Any]
    group: DmrppGroup
    context: DocumentContext
    rows: Rows | None
    layout: dict[str, str]
    """The attributes of ``dmrpp:chunks``."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(length for _, length in self.axes)

    def read(self) -> tuple[ManifestArray, str]:
        """Return the array, and why its values are inlined: ``""`` if they are not, or if the format inlines them."""
        parts = [x for holder in self.element.named("dmrpp:chunks") for x in holder.children] + self.element.children
        unknown = [x.name for x in parts if x.name.startswith("dmrpp:") and x.name not in _PARTS]
        unknown += [f"{name} of dmrpp:chunks" for name in sorted(self.layout.keys() - _KNOWN)]
        if unknown:
            raise RefusedError(f"'{unknown[0]}' is not known, and may change what is read")
        part = next(self.element.named(*_INLINE), None)
        if part is not None:
            return self._inlined(part)
        if self.rows is None and not any(self.element.named("dmrpp:chunks")):
            raise RefusedError("the document does not say where its values are")
        fill = self._fill_text()
        if self.element.name in TEXT:
            return self._texts(fill)
        byte_order, offsets = self.layout.get("byteOrder", ""), self.layout.get("structOffset")
        dtype = stored_dtype(self.element, byte_order, offsets, self.group.enumeration)
        return self._placed(dtype, fill), ""

    def _fill_text(self) -> str | None:
        """Return ``fillValue``, which also marks variables that get_dmrpp cannot describe."""
        fill = self.layout.get("fillValue")
        if fill is None or not fill.startswith("unsupported-"):
            return fill
        # BES, DMZ.cc, flagged_as_unsupported_type: text of a fixed length was marked, too
        if fill == "unsupported-string" and (not self.shape or any(self.element.named(_FIXED_TEXTS))):
            return ""
        raise RefusedError(f"OPeNDAP's get_dmrpp could not describe it ({fill})")

    def _placed(self, dtype: np.dtype[Any], fill_text: str | None, codecs: tuple[Codec, ...] = ()) -> ManifestArray:
        """Place chunks; ``codecs`` turn stored elements into ``dtype``, and ``fill_text`` is ``fillValue``."""
        value_dtype = packed(dtype)
        fill, no_fill = Fill.zero(value_dtype), None
        if fill_text is not None:
            fill, no_fill = parse_fill(fill_text, value_dtype, self.attributes.get("_FillValue"))
        elif self.element.name not in {*TEXT, "Enum"}:  # get_dmrpp leaves out empty text, and the value 0 of enums
            no_fill = "the document does not say what they read as (fillValue)"
        levels = self.layout.get("deflateLevel", self.layout.get("deflate_level", ""))
        layout = DmrppChunkedLayout(
            dtype=dtype,
            codecs=codecs,
            shape=self.shape,
            chunks=self._chunk_shape(),
            filters=read_filters(
                self.layout.get("compressionType", ""), levels, dtype.itemsize, is_ordered=self.context.is_ordered
            ),
            fill=fill,
            no_fill=no_fill,
        )
        if self.rows is not None and self.rows.kind == "dmrpp:block":
            manifest, grid = place_blocks(self.rows, layout, self.context.locate)
        else:
            manifest, grid = place_chunks(self.rows, layout, self.context.locate)
        return ManifestArray(
            manifest=manifest,
            grid=grid,
            dtype=value_dtype,
            name=self.path,
            dimension_names=tuple(name for name, _ in self.axes),
            attributes=self.attributes,
            cf=value_changing(self.attributes),
        )

    def _chunk_shape(self) -> tuple[int, ...] | None:
        holders = self.element.named("dmrpp:chunks")
        sizes = {tuple(x.text.split()) for holder in holders for x in holder.named("dmrpp:chunkDimensionSizes")} - {()}
        if len(sizes) > 1:
            raise BadValueError("it has several chunkDimensionSizes")
        return tuple(read_number(x, "chunkDimensionSizes") for x in sizes.pop()) if sizes else None

    # -- texts ------------------------------------------------------------------------------------------------

    def _texts(self, fill_text: str | None) -> tuple[ManifestArray, str]:
        """Place text of a fixed length. If the document does not name the padding, the values are read."""
        found = self._fixed_texts()
        if found is not None and found[1] in PADDINGS:
            dtype, codecs = text_elements(*found)
            return self._placed(dtype, fill_text, codecs), ""
        if self.shape:
            raise RefusedError("texts whose length or padding the document does not say")
        n_bytes = int(self.rows.columns().length.max(initial=0)) if self.rows is not None else 0
        dtype, codecs = text_elements(n_bytes or max(len((fill_text or "").encode()), 1), "null_term")
        array = self._placed(dtype, fill_text, codecs)
        if dtype.itemsize == 1:
            return array, ""
        reason = "a fixed string whose padding the document does not say"
        if dtype.itemsize > self.context.inline_limit:
            what = f"{reason}; its {dtype.itemsize} bytes are more than the inline limit"
            raise RefusedError(what, inline_size=dtype.itemsize)
        try:
            values = self.context.values(array)
        except StorageError as error:
            raise RefusedError(f"{reason}, and it cannot be read: {error}") from error
        text = bytes(values[()])
        if len(text) == dtype.itemsize and text.endswith(b" "):
            raise RefusedError(f"{reason}, and it ends in spaces")
        return self._inline(values), reason

    def _fixed_texts(self) -> tuple[int, str] | None:
        """Return length and padding of text of a fixed length."""
        for fixed in self.element.named(_FIXED_TEXTS):
            return read_number(fixed.attributes.get("string_length"), "string_length"), fixed.attributes.get("pad", "")
        return None

    # -- values in the document -------------------------------------------------------------------------------

    def _inlined(self, part: Element) -> tuple[ManifestArray, str]:
        kind, is_text = part.name.removeprefix("dmrpp:"), self.element.name in TEXT
        fixed = self._fixed_texts()
        if is_text and kind == "vlsa":
            texts = vlsa_texts(part, self.shape, self.context.inline_limit)
            return self._inline(texts), "strings of variable length, which are in the document"
        if is_text and kind == "compact" and fixed is not None:
            dtype, codecs = text_elements(*fixed)
            return self._inline(compact_values(part, dtype, self.shape, codecs)), ""
        if is_text and kind == "compact" and not self.shape:
            return self._inline(compact_text(part)), "a string of variable length, which is in the document"
        if is_text or self.element.name == "Structure" or kind not in ("compact", "missingdata"):
            raise RefusedError(f"'{self.element.name}' of {len(self.shape)} axes in {part.name}")
        dtype = packed(stored_dtype(self.element, "LE", None, self.group.enumeration))
        if kind == "compact":
            return self._inline(compact_values(part, dtype, self.shape)), ""
        return self._inline(missing_values(part, dtype, self.shape, self.context.inline_limit)), ""

    def _inline(self, values: NDArray[Any]) -> ManifestArray:
        dims = [name for name, _ in self.axes]
        return inline_array(values, name=self.path, dims=dims, attributes=self.attributes)

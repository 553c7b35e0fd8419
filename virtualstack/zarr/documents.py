"""Describe arrays and groups as zarr v3: metadata documents, and which chunks exist in which form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numcodecs.vlen import VLenUTF8
from numpy.typing import NDArray
from xarray.backends.zarr import FillValueCoder
from zarr.dtype import NullTerminatedBytes, RawBytes, Struct, ZDType, parse_dtype
from zarr.errors import UnknownCodecError
from zarr.registry import get_codec_class

from virtualstack.codecs.codec import Codec
from virtualstack.codecs.pipeline import n_array_codecs, split_elementwise, stored_dtype
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError, WriterError
from virtualstack.manifests import (
    ABSENT,
    EMPTY,
    ChunkEncoding,
    ChunkManifest,
    ManifestArray,
    ManifestGroup,
    PlainArray,
    unnamed_coordinates,
    value_changing,
)
from virtualstack.reading import OnAbsent
from virtualstack.zarr.chunk_key_encoding import ManifestKeys
from virtualstack.zarr.metadata.attributes import json_attributes
from virtualstack.zarr.uniform import UniformArray

__all__ = [
    "ServedArray",
    "attributes_document",
    "codec_documents",
    "decoded_document",
    "dump_document",
    "encode_chunk",
    "fill_attribute",
    "finite_attributes",
    "group_document",
    "serve",
    "stored_document",
    "virtual_document",
    "why_refused",
]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ServedArray:
    """An array in the form in which zarr reads it.

    Parameters
    ----------
    document
        ``zarr.json``.
    present
        Mask of the chunks that exist; shape of the chunk grid.
    plain
        Form in which stored chunks are zarr's chunks, or ``None`` if they are served decoded.
    uniform
        Form in which chunks are decoded, or ``None`` if they are served in stored form.
    """

    document: Mapping[str, Any]
    present: NDArray[np.bool_]
    plain: PlainArray | None = None
    uniform: UniformArray | None = None


def serve(array: ManifestArray, /, *, name: str, absent: OnAbsent = "fill") -> ServedArray:
    """Choose the form of an array for zarr: chunks in stored form if zarr understands them, else decoded chunks.

    Chunks of a manifest that is not in memory are served decoded, and all are reported to exist: the manifest is
    looked up only when a chunk is read.

    Raises
    ------
    UnsupportedFeatureError
        Zarr has no data type for the values.
    """
    dtype, zdtype = _dtypes(array, name)
    is_known = isinstance(array.manifest, ChunkManifest)
    plain = PlainArray.from_array(array) if is_known else None
    if isinstance(plain, PlainArray) and (codecs := _plain_codecs(plain, dtype)) is not None:
        code = plain.manifest.entries["location"]
        present = code != EMPTY if absent == "raise" else (code != EMPTY) & (code != ABSENT)
        return ServedArray(document=_document(array, zdtype, plain.chunks, codecs), present=present, plain=plain)
    uniform = UniformArray.from_array(array)
    return ServedArray(
        document=_document(array, zdtype, uniform.chunks, _decoded_codecs(dtype)),
        present=uniform.present(absent=absent) if is_known else np.broadcast_to(np.True_, uniform.grid.shape),
        uniform=uniform,
    )


def decoded_document(
    array: ManifestArray, /, *, name: str, chunks: tuple[int, ...], compressors: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return ``zarr.json`` of an array whose chunks are made by :func:`encode_chunk` and then compressed.

    Raises
    ------
    UnsupportedFeatureError
        Zarr has no data type for the values.
    """
    dtype, zdtype = _dtypes(array, name)
    return _document(array, zdtype, chunks, [*_decoded_codecs(dtype), *map(dict, compressors)])


def virtual_document(array: ManifestArray, /, *, name: str) -> dict[str, Any]:
    """Return ``zarr.json`` of an array whose chunks are not under keys of zarr; no entry of its manifest is read.

    The document describes the source's chunks and codecs if, by the tables, all chunks have the same ones, and the
    codecs are zarr's or virtualstack's. Otherwise the chunks are those of
    :class:`~virtualstack.zarr.uniform.UniformArray`.

    Raises
    ------
    UnsupportedFeatureError
        Zarr has no data type for the values.
    """
    dtype, zdtype = _dtypes(array, name)
    plain = PlainArray.of_tables(array)
    codecs = _plain_codecs(plain, dtype) if plain is not None and _are_ours(plain.codecs()) else None
    if plain is None or codecs is None:
        document = _document(array, zdtype, UniformArray.from_array(array).chunks, _decoded_codecs(dtype))
    else:
        document = _document(array, zdtype, plain.chunks, codecs)
    return {**document, "chunk_key_encoding": {"name": ManifestKeys.name}}


def stored_document(
    array: ManifestArray, /, *, name: str, chunks: tuple[int, ...], codecs: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """Return ``zarr.json`` of an array whose chunks are stored unchanged under keys of zarr.

    Parameters
    ----------
    array
        The array; its entries are not read.
    name
        Name of the variable for messages.
    chunks
        Shape of the chunks in elements.
    codecs
        Codecs as :func:`codec_documents` returns them; ``None`` if the array has no chunks.

    Raises
    ------
    UnsupportedFeatureError
        Zarr has no data type for the values.
    """
    dtype, zdtype = _dtypes(array, name)
    return _document(array, zdtype, chunks, _decoded_codecs(dtype) if codecs is None else codecs)


def encode_chunk(values: NDArray[Any], /) -> bytes:
    """Return the bytes of a chunk as the ``bytes`` codec, or ``vlen-utf8``, writes them."""
    if values.dtype.kind == "T":
        return bytes(VLenUTF8().encode(values.astype(object)))
    return np.ascontiguousarray(values, _packed(values.dtype).newbyteorder("<")).tobytes()


def why_refused(array: ManifestArray, /, *, name: str) -> str | None:
    """Return why zarr cannot have an array (no data type, or a reserved name), or ``None`` if it can."""
    if name.rpartition("/")[2] == "zarr.json":
        return (
            f"variable '{name}' has the name of a metadata file of zarr: rename it, or read it with vds.virtual.open()"
        )
    if "\\" in name or name.rpartition("/")[2] in (".", ".."):
        return (
            f"variable '{name}' has a name that zarr would read as a path: rename it, or read it with "
            "vds.virtual.open()"
        )
    if _is_known(array.dtype):
        return None
    try:
        _dtypes(array, name)
    except UnsupportedFeatureError as error:
        return str(error)
    return None


@lru_cache(maxsize=1024)
def _is_known(dtype: np.dtype[Any]) -> bool:
    try:
        _zarr_dtype(_packed(dtype), name="")
    except UnsupportedFeatureError:
        return False
    return True


def _dtypes(array: ManifestArray, name: str) -> tuple[np.dtype[Any], ZDType[Any, Any]]:
    """Return the dtype of the values in zarr, as numpy's dtype and as zarr's."""
    dtype = _packed(array.dtype)
    return dtype, _zarr_dtype(dtype, name=name)


def _packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a structured dtype without gaps between its fields, as zarr has no gaps."""
    if dtype.names is None or dtype.fields is None:
        return dtype
    return np.dtype([(name, _packed(dtype.fields[name][0])) for name in dtype.names])


def _zarr_dtype(dtype: np.dtype[Any], *, name: str) -> ZDType[Any, Any]:
    try:
        if dtype.kind == "V" and not dtype.itemsize:
            raise ValueError("it has no bytes")
        return parse_dtype(dtype, zarr_format=3)
    except (ValueError, TypeError) as error:
        raise UnsupportedFeatureError(
            f"variable '{name}' has dtype '{dtype}', for which zarr has no data type: {error}. Read it with "
            "vds.virtual.open()",
            variable=name,
            feature=str(dtype),
        ) from error


def _data_type(zdtype: ZDType[Any, Any]) -> Any:
    """Return the document of a data type; types outside the specification are written here, as zarr would warn."""
    if isinstance(zdtype, NullTerminatedBytes):
        return {"name": "null_terminated_bytes", "configuration": {"length_bytes": zdtype.length}}
    if isinstance(zdtype, RawBytes):
        return {"name": "raw_bytes", "configuration": {"length_bytes": zdtype.length}}
    if isinstance(zdtype, Struct):
        fields = [{"name": name, "data_type": _data_type(kind)} for name, kind in zdtype.fields]
        return {"name": "struct", "configuration": {"fields": fields}}
    return zdtype.to_json(zarr_format=3)


def _bytes_codec(dtype: np.dtype[Any], endian: str) -> dict[str, Any]:
    if dtype.newbyteorder("<") == dtype.newbyteorder(">"):
        return {"name": "bytes"}
    return {"name": "bytes", "configuration": {"endian": endian}}


def _decoded_codecs(dtype: np.dtype[Any]) -> list[dict[str, Any]]:
    """Return the codecs of :func:`encode_chunk`."""
    return [{"name": "vlen-utf8"}] if dtype.kind == "T" else [_bytes_codec(dtype, "little")]


def _are_ours(codecs: Sequence[Codec]) -> bool:
    """Return whether all codecs come with zarr or virtualstack, so that every reader of the array has them."""
    try:
        return all(get_codec_class(x.name).__module__.partition(".")[0] in ("zarr", "virtualstack") for x in codecs)
    except (UnknownCodecError, ImportError):
        return False


def _plain_codecs(plain: PlainArray, dtype: np.dtype[Any]) -> list[dict[str, Any]] | None:
    """Return the codecs of zarr metadata, or ``None`` if zarr would decode the chunks differently than `reading`."""
    if plain.encoding is None:
        return _decoded_codecs(dtype)
    return _read_codecs(plain.encoding, plain.chunks, plain.codecs(), dtype)


def codec_documents(
    encoding: ChunkEncoding, chunks: tuple[int, ...], order: tuple[int, ...] | None, /
) -> list[dict[str, Any]] | None:
    """Return the codecs of zarr metadata for chunks of an encoding, as :class:`PlainArray` describes them.

    The result is ``None`` if zarr would decode the chunks differently than virtualstack.
    """
    codecs = encoding.codecs if order is None else (Codec.from_config("transpose", order=list(order)), *encoding.codecs)
    stored = encoding.dtype
    return _read_codecs(encoding, chunks, codecs, _packed(stored if stored.kind == "T" else stored.newbyteorder("=")))


def _read_codecs(
    encoding: ChunkEncoding, chunks: tuple[int, ...], codecs: tuple[Codec, ...], dtype: np.dtype[Any]
) -> list[dict[str, Any]] | None:
    stored = encoding.dtype
    if dtype.kind != "T" and stored not in (dtype, dtype.newbyteorder(">")):
        return None
    if dtype.kind in "mM" and split_elementwise(codecs, stored).steps:
        return None  # numbers beyond the edge of the array need not be dates, and zarr would decode them
    try:
        first = stored_dtype(codecs, stored, chunks)
        n_first, is_listed = n_array_codecs(codecs, stored, chunks)
        for codec in codecs:
            get_codec_class(codec.name)
    except (UnknownCodecError, UnsupportedFeatureError, MissingDependencyError):
        return None  # decoding in virtualstack reports what is missing when the chunk is read
    if not _shuffles_as_in_zarr(codecs, encoding.size * first.itemsize):
        return None
    documents = [codec.to_json() for codec in codecs]
    if not is_listed:
        is_big = dtype.kind != "T" and first != first.newbyteorder("=")
        documents.insert(n_first, _bytes_codec(first, "big" if is_big else "little"))
    return documents


def _shuffles_as_in_zarr(codecs: Sequence[Codec], nbytes: int) -> bool:
    """Return whether every shuffle has whole elements: HDF5 leaves the rest unchanged, numcodecs raises an error."""
    for codec in codecs:
        if codec.name == "numcodecs.shuffle" and nbytes % int(codec.options().get("elementsize", 4)):
            return False
        if codec.name == "numcodecs.fletcher32":
            nbytes += 4
    return True


def _document(
    array: ManifestArray, zdtype: ZDType[Any, Any], chunks: tuple[int, ...], codecs: list[dict[str, Any]]
) -> dict[str, Any]:
    fill = array.manifest.tables.fill
    dtype = zdtype.to_native_dtype()
    value = np.array(fill.value, array.dtype).astype(dtype)[()] if dtype.names else fill.value
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": _data_type(zdtype),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": zdtype.to_json_scalar(value, zarr_format=3),
        "codecs": codecs,
        "attributes": attributes_document(array),
        "storage_transformers": [],
    }
    if array.dimension_names is not None:
        document["dimension_names"] = list(array.dimension_names)
    return document


def attributes_document(array: ManifestArray, /) -> dict[str, Any]:
    """Return the attributes of an array; attributes that decode values come from its ``cf``."""
    return _attributes({**array.attributes, **array.cf}, array.dtype)


def _attributes(attributes: Mapping[str, Any], dtype: np.dtype[Any] | None) -> dict[str, Any]:
    """Return attributes as xarray reads them from zarr v3; values that JSON cannot hold become text."""
    written: dict[str, Any] = {}
    for name, value in attributes.items():
        if name == "_FillValue" and dtype is not None:
            if (coded := fill_attribute(value, dtype)) is not None:
                written[name] = coded
            continue
        try:
            written |= json_attributes({name: value}, variable="")
        except WriterError:
            written[name] = str(value)
    return written


def fill_attribute(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return ``_FillValue`` as xarray writes it; ``None`` if xarray could not read it back, or it equals no value."""
    array = np.asarray(value)
    if array.size != 1:
        return None
    try:
        scalar: Any = array.reshape(())[()]
        coded = FillValueCoder.encode(int(scalar) if dtype.kind in "iu" else scalar, dtype)
        decoded = FillValueCoder.decode(coded, dtype)
    except (ValueError, TypeError, OverflowError):
        return None
    return coded if decoded == scalar or (decoded != decoded and scalar != scalar) else None


def group_document(group: ManifestGroup, /) -> dict[str, Any]:
    """Return ``zarr.json`` of a group; coordinates that no variable names are listed as xarray does it."""
    attributes = _attributes(group.attributes, None)
    present = str(attributes.get("coordinates", "")).split()
    if extra := [name for name in unnamed_coordinates(group) if " " not in name]:
        attributes["coordinates"] = " ".join([*present, *(name for name in extra if name not in present)])
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes}


def dump_document(document: Mapping[str, Any], /) -> bytes:
    """Return a document as JSON for all parsers; see :func:`finite_attributes`."""
    return json.dumps({**document, "attributes": finite_attributes(document["attributes"])}).encode()


def finite_attributes(attributes: Mapping[str, Any], /) -> dict[str, Any]:
    """Return attributes as all JSON parsers take them: NaN and infinities become text, as in fill values.

    Attributes that decode values stay unchanged, although strict parsers then reject the document: as text they would
    decode values differently. But a NaN in ``missing_value`` changes nothing, and is left out.
    """
    attributes = dict(attributes)
    if isinstance(missing := attributes.get("missing_value"), float | list):
        kept = [x for x in (missing if isinstance(missing, list) else [missing]) if x == x]
        attributes["missing_value"] = kept if isinstance(missing, list) else kept[0] if kept else None
        if not kept:
            del attributes["missing_value"]
    try:
        json.dumps(attributes, allow_nan=False)
    except ValueError:  # some are not finite
        changing = value_changing(attributes)
        return {name: value if name in changing else _finite(value) for name, value in attributes.items()}
    return attributes


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case list():
            return [_finite(x) for x in value]
        case dict():
            return {key: _finite(x) for key, x in value.items()}
    return value

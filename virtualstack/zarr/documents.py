"""Describe arrays and groups as zarr v3: metadata documents and bytes of chunks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
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
from virtualstack.manifests import ChunkEncoding, ManifestArray, ManifestGroup, value_changing
from virtualstack.manifests.encoding import native
from virtualstack.zarr.metadata.attributes import json_attributes, with_coordinates


def array_document(
    array: ManifestArray,
    /,
    *,
    name: str,
    chunks: tuple[int, ...],
    codecs: Sequence[Mapping[str, Any]] | None = None,
    compressors: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Return ``zarr.json`` of an array."""
    dtype, fill, zdtype = _packed(array.dtype), array.manifest.tables.fill, _zarr_dtype(array.dtype)
    if isinstance(zdtype, str):
        raise UnsupportedFeatureError(_without_dtype(array, name, zdtype), variable=name, feature=str(array.dtype))
    if codecs is None:
        codecs = [{"name": "vlen-utf8"}] if dtype.kind == "T" else [_bytes_codec(dtype, "little")]
    value = np.array(fill.value, array.dtype).astype(zdtype.to_native_dtype())[()] if dtype.names else fill.value
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(array.shape),
        "data_type": _data_type(zdtype),
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": zdtype.to_json_scalar(value, zarr_format=3),
        "codecs": [*codecs, *compressors],
        "attributes": attributes_document(array),
        "storage_transformers": [],
    }
    if array.dimension_names is not None:
        document["dimension_names"] = list(array.dimension_names)
    return document


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
    zdtype = _zarr_dtype(array.dtype)
    return _without_dtype(array, name, zdtype) if isinstance(zdtype, str) else None


def _packed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a structured dtype without gaps between its fields, as zarr has no gaps."""
    if dtype.names is None or dtype.fields is None:
        return dtype
    return np.dtype([(name, _packed(dtype.fields[name][0])) for name in dtype.names])


@lru_cache(maxsize=1024)
def _zarr_dtype(dtype: np.dtype[Any]) -> ZDType[Any, Any] | str:
    """Return the data type of zarr, or why there is none."""
    try:
        if dtype.kind == "V" and not dtype.itemsize:
            raise ValueError("it has no bytes")
        return parse_dtype(_packed(dtype), zarr_format=3)
    except (ValueError, TypeError) as error:
        return str(error)


def _without_dtype(array: ManifestArray, name: str, reason: str) -> str:
    return (
        f"variable '{name}' has dtype '{array.dtype}', for which zarr has no data type: {reason}. Read it with "
        "vds.virtual.open()"
    )


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


def codec_documents(
    encoding: ChunkEncoding, chunks: tuple[int, ...], order: tuple[int, ...] | None, /
) -> list[dict[str, Any]] | None:
    """Return the codecs of zarr metadata for chunks of an encoding, as :class:`PlainArray` describes them.

    The result is ``None`` if zarr would decode the chunks differently than virtualstack.
    """
    codecs = encoding.codecs if order is None else (Codec.from_config("transpose", order=list(order)), *encoding.codecs)
    stored, dtype = encoding.dtype, _packed(native(encoding.dtype))
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
    attributes = with_coordinates(_attributes(group.attributes, None), group)
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

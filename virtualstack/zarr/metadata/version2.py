"""Convert arrays and groups to zarr v2 metadata and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from virtualstack.codecs.codec import Codec
from virtualstack.errors import READ_VALUES, Remedy, WriterError
from virtualstack.manifests import ChunkEncoding, ChunkManifest, Fill, Manifest, ManifestArray, ManifestGroup
from virtualstack.manifests.plain import PlainArray
from virtualstack.zarr.metadata.array import (
    ArrayMetadata,
    check_name,
    malformed,
    ordered_encoding,
    read_counts,
    read_names,
)
from virtualstack.zarr.metadata.attributes import (
    json_attributes,
    keep_unwritable_attributes,
    restore_cf,
    with_coordinates,
    with_dtypes,
)
from virtualstack.zarr.metadata.holes import (
    FillBudget,
    can_hold_fill,
    check_budget,
    choose_fill,
    encode_fill_chunk,
    inline_holes,
)
from virtualstack.zarr.metadata.version2_codecs import (
    codecs_from_zarr2,
    codecs_to_zarr2,
    dtype_from_zarr2,
    dtype_to_zarr2,
    fill_from_zarr2,
    fill_to_zarr2,
)

_DIMENSIONS = "_ARRAY_DIMENSIONS"
"""Attribute with the names of dimensions, as xarray writes it to zarr v2."""


type ZarrFormat = Literal[2, 3]


@dataclass(frozen=True, slots=True, kw_only=True)
class ZarrHierarchy:
    """A group in the terms of zarr: metadata by key, and the manifest of each array by path."""

    metadata: Mapping[str, Mapping[str, Any]]
    manifests: Mapping[str, Manifest]
    zarr_format: ZarrFormat = 2


def make_hierarchy(
    group: ManifestGroup, /, *, fill_budget: FillBudget = 1 << 24, shares_chunks: bool = False
) -> ZarrHierarchy:
    """Describe a group, and everything below it, by zarr v2 metadata.

    Zarr cannot express refusals, or declared dimensions without an array: they are left out.
    """
    metadata: dict[str, Mapping[str, Any]] = {}
    manifests: dict[str, Manifest] = {}
    for path, node in group.walk():
        prefix = f"{path[1:]}/" if path else ""
        metadata[f"{prefix}.zgroup"] = {"zarr_format": 2} | keep_unwritable_attributes(node.attributes)
        metadata[f"{prefix}.zattrs"] = group_attributes(node, path or "/")
        for name, array in node.arrays.items():
            key = prefix + name
            check_name(name, key, 2)
            zarray, zattrs, manifests[key] = _array(array, key, fill_budget, shares_chunks)
            metadata[f"{key}/.zarray"], metadata[f"{key}/.zattrs"] = zarray, zattrs
        for name in node.groups:
            check_name(name, prefix + name, 2)
    return ZarrHierarchy(metadata=metadata, manifests=manifests)


def group_attributes(group: ManifestGroup, path: str, /) -> dict[str, Any]:
    """Return the attributes of a group as JSON values; they list coordinates that nothing else names."""
    return with_coordinates(json_attributes(group.attributes, variable=path), group)


def takes_holes(array: ManifestArray, plain: PlainArray, /) -> bool:
    """Return whether chunks without bytes of a plain array can be left out or written; nothing is read."""
    if not plain.n_holes:
        return True
    try:
        raw = restore_cf(array.attributes, array.cf, variable="")
        _, is_written_out = choose_fill(plain.fill, raw, array.dtype, has_holes=True)
    except WriterError:  # another reason, which `make_hierarchy` reports
        return True
    return not is_written_out or can_hold_fill(plain.fill, _encoding(array, plain.chunks, plain))


def _array(
    array: ManifestArray, variable: str, fill_budget: FillBudget, shares_chunks: bool
) -> tuple[dict[str, Any], dict[str, Any], Manifest]:
    plain = PlainArray.from_array(array)
    assert isinstance(plain, PlainArray), "`fitting` changes arrays that are not plain"
    raw = restore_cf(array.attributes, array.cf, variable=variable)
    extra = keep_unwritable_attributes(raw, array.dtype)
    fill, is_written_out = choose_fill(plain.fill, raw, array.dtype, has_holes=plain.n_holes > 0)
    zarray, attributes = _documents(array, raw, variable, plain.chunks, plain, fill)
    manifest = array.manifest
    if isinstance(manifest, ChunkManifest):
        manifest = manifest.compact()
    if is_written_out:
        encoding = _encoding(array, plain.chunks, plain)
        chunk = encode_fill_chunk(plain.fill, encoding, variable=variable)
        n_copies = 1 if shares_chunks else plain.n_holes
        check_budget(plain.n_holes, n_copies, len(chunk), fill_budget, variable=variable)
        manifest = inline_holes(array.in_memory().compact(), chunk)
    return zarray | extra, attributes, manifest  # readers of zarr v2 ignore keys that they do not know


def describe_array(
    array: ManifestArray, variable: str, chunks: tuple[int, ...], plain: PlainArray | None, /
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Return ``.zarray`` and ``.zattrs`` of an array that a program serves, whatever its manifest.

    Returns
    -------
    tuple
        The two documents, and whether chunks without bytes must be served as chunks full of the fill value.
    """
    check_name(variable.rpartition("/")[2], variable, 2)
    raw = restore_cf(array.attributes, array.cf, variable=variable)
    own = array.manifest.tables.fill
    fill, _ = choose_fill(own, raw, array.dtype, has_holes=False)
    writes_fill = fill is not None and fill != own  # no chunk is ever missing then, so that the value has no other use
    if fill is None:
        fill, writes_fill = choose_fill(own, raw, array.dtype, has_holes=True)
    return *_documents(array, raw, variable, chunks, plain, fill), writes_fill


def _documents(
    array: ManifestArray,
    raw: dict[str, Any],
    variable: str,
    chunks: tuple[int, ...],
    plain: PlainArray | None,
    fill: Fill | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``.zarray`` and ``.zattrs`` with the attributes ``raw``."""
    encoding = _encoding(array, chunks, plain)
    if fill is not None:
        raw.pop("_FillValue", None)
    attributes = json_attributes(raw, variable=variable)
    attributes[_DIMENSIONS] = list(array.dimension_names or ())
    zarray = {
        "zarr_format": 2,
        "shape": list(array.shape),
        "chunks": list(chunks),
        **encoding_to_zarr2(encoding, chunks, None if plain is None else plain.order, variable=variable),
        "fill_value": None if fill is None else fill_to_zarr2(fill, encoding.dtype),
        "dimension_separator": ".",
    }
    return zarray, attributes


def _encoding(array: ManifestArray, chunks: tuple[int, ...], plain: PlainArray | None) -> ChunkEncoding:
    """Return the encoding of stored chunks; without any, that of decoded ones."""
    if plain is None or plain.encoding is None:
        return ChunkEncoding.c_order(array.dtype, chunks, (Codec("vlen-utf8"),) if array.dtype.kind == "T" else ())
    return plain.encoding


def encoding_to_zarr2(
    encoding: ChunkEncoding, chunks: tuple[int, ...], order: tuple[int, ...] | None, /, *, variable: str
) -> dict[str, Any]:
    """Return the members of ``.zarray`` that say how chunks are decoded."""
    if encoding.dtype.kind == "T" and not encoding.codecs:
        raise WriterError(
            f"variable '{variable}' has strings, but no codec that makes bytes of them ('vlen-utf8')",
            variable=variable,
            feature=str(encoding.dtype),
        )
    # Axes with one element in each chunk may be at any position.
    long = [axis for axis in order or () if chunks[axis] > 1]
    if long != sorted(long, reverse=True):
        raise WriterError(
            f"variable '{variable}' has chunks stored with axes in the order {order}; zarr v2 metadata can express "
            "C and Fortran order only",
            Remedy("transpose the variable to the order of its file"),
            READ_VALUES,
            variable=variable,
            feature="transpose",
        )
    filters, compressor = codecs_to_zarr2(encoding.codecs, variable=variable)
    return {
        "dtype": dtype_to_zarr2(encoding.dtype, variable=variable),
        "order": "C" if order is None else "F",
        "compressor": compressor,
        "filters": filters,
    }


def parse_zarr2(
    zarray: Mapping[str, Any], zattrs: Mapping[str, Any], /, *, where: str, masks_fill_value: bool = True
) -> ArrayMetadata:
    """Read ``.zarray`` and ``.zattrs``."""
    if zarray.get("zarr_format", 2) != 2:
        raise malformed(where, "zarr_format", zarray["zarr_format"], "2 in .zarray")
    shape = read_counts(zarray, "shape", least=0, where=where)
    chunks = read_counts(zarray, "chunks", least=1, where=where, n=len(shape))
    order, separator = zarray.get("order", "C"), zarray.get("dimension_separator", ".")
    if order not in ("C", "F"):
        raise malformed(where, "order", order, "'C' or 'F'")
    if separator not in (".", "/"):
        raise malformed(where, "dimension_separator", separator, "'.' or '/'")
    codecs = codecs_from_zarr2(zarray.get("filters"), zarray.get("compressor"), where=where, chunks=chunks)
    dtype = dtype_from_zarr2(zarray.get("dtype"), codecs, where=where)
    fill = fill_from_zarr2(zarray.get("fill_value"), dtype, where=where)
    attributes = {name: value for name, value in zattrs.items() if name != _DIMENSIONS and not is_nczarr(name)}
    if masks_fill_value and zarray.get("fill_value") is not None:
        attributes["_FillValue"] = fill.value
    attributes = with_dtypes(attributes, zarray)
    reverse = tuple(range(len(shape)))[::-1] if order == "F" and len(shape) > 1 else None
    return ArrayMetadata(
        shape=shape,
        chunks=chunks,
        encoding=ordered_encoding(dtype, chunks, codecs, reverse),
        fill=fill,
        dimension_names=read_names(
            zattrs.get(_DIMENSIONS, _nczarr_names(zarray, zattrs)), len(shape), key=_DIMENSIONS, where=where
        ),
        attributes=attributes,
        separator=separator,
    )


def is_nczarr(name: str, /) -> bool:
    """Return whether an attribute, or a key of ``.zarray``, belongs to netCDF's own zarr (NCZarr)."""
    return name.lower().startswith("_nczarr") or name == "_NCProperties"


def _nczarr_names(zarray: Mapping[str, Any], zattrs: Mapping[str, Any]) -> list[str] | None:
    """Return the names of dimensions in NCZarr metadata (paths such as ``"/group/x"``); keys depend on the version."""
    for key, value in (*zarray.items(), *zattrs.items()):
        if is_nczarr(key) and isinstance(value, Mapping):
            for references in (value.get("dimrefs"), value.get("dimension_references")):
                if isinstance(references, list) and all(isinstance(x, str) for x in references):
                    return [x.rpartition("/")[2] for x in references]
    return None

"""Virtual groups of small netCDF-4 files by h5py's own chunk index, so that writers are tested without our reader."""

from pathlib import Path

import h5py
import numpy as np

from virtualstack.codecs.codec import Codec
from virtualstack.location import absolute_url
from virtualstack.manifests import ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray, ManifestGroup
from virtualstack.manifests import value_changing as cf_of

_OF_HDF5 = {
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "CLASS",
    "NAME",
    "_Netcdf4Dimid",
    "_Netcdf4Coordinates",
    "_NCProperties",
}
_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"


def virtual_group(path: Path, *, url: str | None = None) -> ManifestGroup:
    """Describe a file that has chunked, contiguous or unwritten datasets of fixed-size types."""
    with h5py.File(path) as file:
        return _group(file, url or absolute_url(path))


def _group(node, url):
    arrays = {name: _array(x, name, url) for name, x in node.items() if isinstance(x, h5py.Dataset) and _is_variable(x)}
    groups = {name: _group(x, url) for name, x in node.items() if isinstance(x, h5py.Group)}
    return ManifestGroup(arrays=arrays, groups=groups, attributes=_attributes(node), url=url)


def _is_variable(dataset):
    return not dataset.attrs.get("NAME", b"").startswith(_NO_VARIABLE)


def _attributes(node):
    values = {name: value for name, value in node.attrs.items() if name not in _OF_HDF5}
    return {k: v[0] if isinstance(v, np.ndarray) and v.shape == (1,) else v for k, v in values.items()}


def _array(dataset, name, url):
    chunks = dataset.chunks or dataset.shape
    properties = dataset.id.get_create_plist()
    codecs = [_codec(*properties.get_filter(i)) for i in range(properties.get_nfilters())]
    grid = ChunkGrid.regular(dataset.shape, [max(n, 1) for n in chunks])
    offsets, lengths = np.zeros(grid.shape, np.int64), np.full(grid.shape, -1, np.int64)
    if dataset.chunks:
        for i in range(dataset.id.get_num_chunks()):
            info = dataset.id.get_chunk_info(i)
            cell = tuple(o // n for o, n in zip(info.chunk_offset, chunks, strict=True))
            offsets[cell], lengths[cell] = info.byte_offset, info.size
    elif dataset.id.get_offset() is not None:
        offsets[...], lengths[...] = dataset.id.get_offset(), dataset.id.get_storage_size()
    native = dataset.dtype.newbyteorder("=")
    manifest = ChunkManifest.from_arrays(
        offsets,
        lengths,
        location=url,
        encoding=ChunkEncoding.c_order(dataset.dtype, chunks, codecs),
        fill=Fill.from_value(dataset.fillvalue, native),
    )
    attributes = _attributes(dataset)
    return ManifestArray(
        manifest=manifest,
        grid=grid,
        dtype=native,
        name=name,
        dimension_names=_dims(dataset, name),
        attributes=attributes,
        cf=cf_of(attributes),
    )


def _codec(number, flags, values, name):
    match number:
        case h5py.h5z.FILTER_SHUFFLE:
            return Codec.from_config("numcodecs.shuffle", elementsize=values[0])
        case h5py.h5z.FILTER_DEFLATE:
            return Codec.from_config("numcodecs.zlib", level=values[0])
        case h5py.h5z.FILTER_FLETCHER32:
            return Codec.from_config("numcodecs.fletcher32")
    raise NotImplementedError(name)


def _dims(dataset, name):
    if dataset.is_scale and dataset.ndim == 1:
        return (name,)
    return tuple(dim[0].name.rpartition("/")[2] if len(dim) else f"d{i}" for i, dim in enumerate(dataset.dims))

"""Manifests, encodings, grids, arrays and groups: the data model. Nothing here reads or writes."""

import virtualstack.manifests.functions  # noqa: F401 - registers what numpy functions do
from virtualstack.manifests.agreement import other_meaning, reads_as, stored_number
from virtualstack.manifests.array import ManifestArray
from virtualstack.manifests.cells import CellBox, ManifestSummary
from virtualstack.manifests.cf import (
    CF_KEYS,
    PER_BAND,
    RASTER_DECODING,
    can_cast_floats,
    decoding_keys,
    differing_key,
    is_nan,
    same_dates_in,
    same_value,
    value_changing,
)
from virtualstack.manifests.characters import join_characters
from virtualstack.manifests.chunk_manifest import ABSENT, EMPTY, ENTRY, FIRST, INLINE, ChunkManifest
from virtualstack.manifests.counted import count_states
from virtualstack.manifests.encoding import ChunkEncoding, Fill
from virtualstack.manifests.filling import reindex
from virtualstack.manifests.grid import ChunkAxis, ChunkGrid
from virtualstack.manifests.group import (
    ManifestGroup,
    ManifestNode,
    Refusal,
    inheriting,
    labels_of,
    text_arrays,
    unnamed_coordinates,
    with_inherited,
)
from virtualstack.manifests.indexing import Chunks
from virtualstack.manifests.inline import inline_array, inlined
from virtualstack.manifests.manifest import Manifest
from virtualstack.manifests.mosaic import Mosaic, Runs, Tile, place_tiles, take_runs
from virtualstack.manifests.paged import PagedManifest, PageSource
from virtualstack.manifests.unify import unify
from virtualstack.manifests.unpacking import Unpacked, packed_encoding, repack, unpack

__all__ = [
    "ABSENT",
    "CF_KEYS",
    "EMPTY",
    "ENTRY",
    "FIRST",
    "INLINE",
    "PER_BAND",
    "RASTER_DECODING",
    "CellBox",
    "ChunkAxis",
    "ChunkEncoding",
    "ChunkGrid",
    "ChunkManifest",
    "Chunks",
    "Fill",
    "Manifest",
    "ManifestArray",
    "ManifestGroup",
    "ManifestNode",
    "ManifestSummary",
    "Mosaic",
    "PageSource",
    "PagedManifest",
    "Refusal",
    "Runs",
    "Tile",
    "Unpacked",
    "can_cast_floats",
    "count_states",
    "decoding_keys",
    "differing_key",
    "inheriting",
    "inline_array",
    "inlined",
    "is_nan",
    "join_characters",
    "labels_of",
    "other_meaning",
    "packed_encoding",
    "place_tiles",
    "reads_as",
    "reindex",
    "repack",
    "same_dates_in",
    "same_value",
    "stored_number",
    "take_runs",
    "text_arrays",
    "unify",
    "unnamed_coordinates",
    "unpack",
    "value_changing",
    "with_inherited",
]

"""Read names of dimensions from the StructMetadata of HDF-EOS5, for datasets without dimension scales."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from virtualstack.child.errors import LibraryError
from virtualstack.formats.hdf5.fetch import MetadataSource
from virtualstack.formats.hdf5.library import Library
from virtualstack.formats.hdf5.structures.layout_message import ContiguousLayout
from virtualstack.formats.hdf5.tree import HDF5Group, HDF5Variable, decode_text

EOS_INFORMATION = "HDFEOS INFORMATION"
"""Group of the root that every HDF-EOS5 file has."""

_MAX_TEXT_BYTES = 1 << 20  # products have about 100 KB
_TOKEN = re.compile(r'"[^"]*"|[^\s=(),"]+|[=(),"]')

# ESDS-RFC-008 (HDF-EOS5 data model), 5: groups of each kind of structure, and of its fields
_STRUCTURES = {"SwathName": "SWATHS", "GridName": "GRIDS", "ZaName": "ZAS"}
_FIELDS = {
    "DataFieldName": "Data Fields",
    "GeoFieldName": "Geolocation Fields",
    "ProfileFieldName": "Profile Fields",
}


@dataclass(slots=True, kw_only=True)
class EosStructure:
    """A swath, a grid or a zonal average."""

    path: str
    sizes: dict[str, int] = field(default_factory=dict)
    fields: dict[str, tuple[str, ...]] = field(default_factory=dict)


def parse_structures(text: str, /) -> list[EosStructure]:
    """Parse the text of StructMetadata in the Object Description Language; all but dimensions is skipped.

    The parser reads the text once, and raises no error for any text.

    Examples
    --------
    >>> parse_structures('GridName="G" XDim=4 YDim=2 DataFieldName="t" DimList=("YDim","XDim")')[0].fields
    {'/HDFEOS/GRIDS/G/Data Fields/t': ('YDim', 'XDim')}
    """
    found: list[EosStructure] = []
    here, dim, path = EosStructure(path=""), "", ""
    for key, values in statements(text):
        value = values[0] if values else ""
        if key in ("GROUP", "OBJECT"):
            dim = path = ""
            if value.endswith("Structure"):
                here = EosStructure(path="")
        elif key in _STRUCTURES:
            here = EosStructure(path=f"/HDFEOS/{_STRUCTURES[key]}/{value}")
            found.append(here)
        elif key in ("XDim", "YDim"):
            here.sizes[key] = _size(value)
        elif key == "DimensionName":
            dim = value
        elif key == "Size" and dim:
            here.sizes[dim] = _size(value)
        elif key in _FIELDS:
            path = f"{here.path}/{_FIELDS[key]}/{value}"
        elif key == "DimList" and path:
            here.fields[path] = tuple(values)
    return found


def statements(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the word before and the words after each ``=``."""
    tokens = _TOKEN.findall(text)
    marks = [n for n, token in enumerate(tokens) if token == "="]
    for mark, following in pairwise([*marks, len(tokens) + 1]):
        values = tokens[mark + 1 : following - 1]
        yield tokens[mark - 1] if mark else "", [x.strip('"') for x in values if x not in ("(", ")", ",")]


def _size(word: str) -> int:
    """Return a number of elements; 0 for text that cannot be the length of an axis."""
    return int(word) if word.isascii() and word.isdigit() and len(word) < 20 else 0


def _read_struct_metadata(root: HDF5Group, metadata: MetadataSource, library: Library, /) -> str:
    """Read the text of StructMetadata from all its parts; return ``""`` if it does not exist or cannot be read.

    If the text cannot be read, the root group gets a note.
    """
    group = root.groups[EOS_INFORMATION]
    texts: list[bytes] = []
    while (variable := group.variables.get(f"StructMetadata.{len(texts)}")) is not None:
        try:
            texts.append(_read_text(variable, metadata, library))
        except (_NoTextError, LibraryError) as error:
            root.note(variable.path, f"it names no dimensions: {error}")
            return ""
        if sum(map(len, texts)) > _MAX_TEXT_BYTES:
            root.note(variable.path, f"it names no dimensions: it has more than {_MAX_TEXT_BYTES} bytes")
            return ""
    return decode_text(b"".join(texts))


class _NoTextError(Exception):
    """A dataset is not text; the message states the reason."""


def _read_text(variable: HDF5Variable, metadata: MetadataSource, library: Library) -> bytes:
    if variable.shape is None:
        raise _NoTextError("it has no value")
    length = math.prod(variable.shape) * variable.element.size
    if length > _MAX_TEXT_BYTES:
        raise _NoTextError(f"it has {length} bytes, and more than {_MAX_TEXT_BYTES} are not read")
    layout, stored = variable.layout, variable.element.stored
    is_plain = stored is not None and stored.kind == "S" and variable.shape == () and not variable.external
    if is_plain and isinstance(layout, ContiguousLayout) and layout.address is not None:
        offset = layout.address + metadata.base
        if not 0 <= offset <= metadata.size - length:
            raise _NoTextError("it lies outside of the file")
        return metadata.read(offset, length).split(b"\0")[0]
    is_text = variable.element.kind == "text" or (stored is not None and stored.kind == "S")
    if not is_text or math.prod(variable.shape) != 1:
        raise _NoTextError("it is not one text")
    _, (text,) = library.texts(variable.raw_path)
    return text.split(b"\0")[0]


def eos_axis_names(root: HDF5Group, metadata: MetadataSource, library: Library, /) -> dict[str, tuple[str, ...]]:
    """Return the names of the axes of datasets by path; ``""`` for an axis that the StructMetadata cannot name.

    A name is used if its size is the length of the axis. If its size may grow, the name is used if all axes with this
    name have one length. The root group gets a note for each contradiction, and if the StructMetadata cannot be read.
    """
    structures = parse_structures(_read_struct_metadata(root, metadata, library))
    top = root.groups.get("HDFEOS")
    variables = {x.path: x for group in top.walk() for x in group.variables.values()} if top is not None else {}
    found: dict[str, tuple[str, ...]] = {}
    ambiguous: set[str] = set()
    for structure in structures:
        known = {path: dims for path, dims in structure.fields.items() if path in variables}
        sizes = _sizes(structure, known, variables)
        for path, dims in known.items():
            names = _names(root, variables[path], dims, sizes)
            if found.setdefault(path, names) != names:
                ambiguous.add(path)
    for path in ambiguous:
        root.note(
            path, "its dimensions have no names: the StructMetadata describes it several times, in different ways"
        )
        del found[path]
    return found


def _sizes(
    structure: EosStructure, known: Mapping[str, tuple[str, ...]], variables: Mapping[str, HDF5Variable]
) -> dict[str, int]:
    lengths: dict[str, set[int]] = {}
    for path, dims in known.items():
        for dim, length in zip(dims, variables[path].shape or (), strict=False):
            lengths.setdefault(dim, set()).add(length)
    sizes = {dim: structure.sizes.get(dim, 0) for dim in lengths}
    return {dim: size or (max(lengths[dim]) if len(lengths[dim]) == 1 else -1) for dim, size in sizes.items()}


def _names(root: HDF5Group, variable: HDF5Variable, dims: Sequence[str], sizes: Mapping[str, int]) -> tuple[str, ...]:
    shape = variable.shape or ()
    if len(dims) != len(shape):
        root.note(variable.path, f"its dimensions have no names: the StructMetadata has {len(dims)} for {len(shape)}")
        return ("",) * len(shape)
    names = []
    for axis, (dim, length) in enumerate(zip(dims, shape, strict=True)):
        is_name = bool(dim) and "/" not in dim and not dim.startswith("phony_dim_")
        if not is_name or sizes[dim] != length:
            size = f"{sizes[dim]}" if sizes[dim] >= 0 else "any size"
            reason = f"axis {axis} of length {length} is not '{dim}' of {size}, as the StructMetadata has it"
            root.note(variable.path, reason)
            dim = ""
        names.append(dim)
    return tuple(names)

"""Write DMR++ documents for HDF5 files, in the form of OPeNDAP's ``get_dmrpp``.

Names of dimensions and attributes are those of our HDF5 reader; where the bytes lie is h5py's word.
The form follows BES, modules/dmrpp_module (build_dmrpp_util.cc, DmrppCommon::print_chunks_element, vlsa_util.cc).
"""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import h5py
import numpy as np
from h5py import h5d, h5t

from virtualstack.location import absolute_url
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.readers import HDF5, ReadOptions
from virtualstack.storage import Storage

PLACEHOLDER = "OPeNDAP_DMRpp_DATA_ACCESS_URL"
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32"}
NUMBERS = {
    "u1": "Byte",
    "i1": "Int8",
    "u2": "UInt16",
    "i2": "Int16",
    "u4": "UInt32",
    "i4": "Int32",
    "u8": "UInt64",
    "i8": "Int64",
    "f4": "Float32",
    "f8": "Float64",
}
_PADS = {h5t.STR_NULLTERM: "null_term", h5t.STR_NULLPAD: "null_pad", h5t.STR_SPACEPAD: "space_pad"}
_ORDERS = {h5t.ORDER_LE: "LE", h5t.ORDER_BE: "BE"}
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class NotDescribedError(Exception):
    """get_dmrpp cannot describe a variable; it gives up on the whole file then."""


def write(path: Path, **options: Any) -> Path:
    """Write the document beside a file, and give its path."""
    document = path.with_name(f"{path.name}.dmrpp")
    document.write_text(describe(path, **options)[0], encoding="utf-8")
    return document


def describe(path: Path, *, href: str = PLACEHOLDER, version: str | None = "3.21.0-46") -> tuple[str, set[str]]:
    """Give the document of a file, and the paths of variables that it leaves out."""
    group = HDF5().read(absolute_url(path), Storage.from_option(None), ReadOptions())
    left_out: set[str] = set()
    with h5py.File(path) as file:
        body = "\n".join(_group_lines(group, "", file, [], left_out))
    given = f" dmrpp:version={quoteattr(version)}" if version else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" '
        f'dapVersion="4.0" dmrVersion="1.0" name={quoteattr(path.name)} dmrpp:href={quoteattr(href)}{given}>\n'
        f"{body}\n</Dataset>\n"
    ), left_out


def _group_lines(
    group: ManifestGroup, path: str, file: h5py.File, scope: list[tuple[str, ManifestGroup]], left_out: set[str]
) -> Iterator[str]:
    scope = [(path, group), *scope]
    for name, length in group.dimensions.items():
        if not name.startswith("phony_dim_"):
            yield f'<Dimension name={quoteattr(name)} size="{length}"/>'
    for name, array in group.arrays.items():
        try:
            yield "\n".join(_variable_lines(name, array, _dataset_in(file, path, array), scope))
        except NotDescribedError:
            left_out.add(f"{path}/{name}")
    yield from _attribute_lines(group.attributes)
    if not path:
        yield '<Attribute name="build_dmrpp_metadata" type="Container">'
        yield from _attribute_lines({"created": "2026-01-01T00:00:00Z"})
        yield "</Attribute>"
    for name, child in group.groups.items():
        yield f"<Group name={quoteattr(name)}>"
        yield from _group_lines(child, f"{path}/{name}", file, scope, left_out)
        yield "</Group>"


def _dataset_in(file: h5py.File, path: str, array: ManifestArray) -> h5py.Dataset:
    """Give the dataset of an array of a group; one that an external link leads to is in no document of this file."""
    is_here = str(array.name).rpartition("/")[0] == path
    dataset = file[array.name] if is_here else None
    if dataset is None or dataset.file.filename != file.filename:
        raise NotDescribedError("an external link")
    return dataset


def _variable_lines(
    name: str, array: ManifestArray, dataset: h5py.Dataset, scope: list[tuple[str, ManifestGroup]]
) -> list[str]:
    if dataset.shape is None:
        raise NotDescribedError("null dataspace")
    tid = dataset.id.get_type()
    if array.ndim != dataset.ndim:
        raise NotDescribedError("array type")
    kind, attributes, before, members = _type(name, tid)
    lines = [*before, f"<{kind} name={quoteattr(name)}{attributes}>", *members]
    for dim, length in zip(array.dimension_names or (), array.shape, strict=True):
        where = next((path for path, group in scope if group.dimensions.get(dim) == length), None)
        is_named = where is not None and not dim.startswith("phony_dim_")
        lines.append(f"<Dim name={quoteattr(f'{where}/{dim}')}/>" if is_named else f'<Dim size="{length}"/>')
    lines += _attribute_lines(array.attributes)
    lines += _storage_lines(dataset, tid)
    return [*lines, f"</{kind}>"]


def _type(name: str, tid: h5t.TypeID) -> tuple[str, str, list[str], list[str]]:
    """Give the name of a type, attributes of its element, and lines before and in it."""
    kind = tid.get_class()
    if kind in (h5t.INTEGER, h5t.FLOAT):
        is_whole = tid.get_precision() == 8 * tid.get_size() and tid.get_order() in _ORDERS
        code = np.dtype(tid.dtype).str[1:] if is_whole and tid.get_size() in (1, 2, 4, 8) else ""
        if code in NUMBERS and int(code[1]) == tid.get_size():
            return NUMBERS[code], "", [], []
    if kind == h5t.STRING:
        return "String", "", [], []
    if kind == h5t.ENUM:
        base = _type("", tid.get_super())[0]
        lines = [f'<Enumeration name={quoteattr(f"{name}_enum")} basetype="{base}">']
        for i in range(tid.get_nmembers()):
            label = quoteattr(tid.get_member_name(i).decode())
            lines.append(f'<EnumConst name={label} value="{tid.get_member_value(i)}"/>')
        return "Enum", f" enum={quoteattr(f'{name}_enum')}", [*lines, "</Enumeration>"], []
    if kind == h5t.COMPOUND:
        return "Structure", "", [], list(_members(tid))
    raise NotDescribedError(f"class {kind}")


def _members(tid: h5t.TypeID) -> Iterator[str]:
    if len({tid.get_member_type(i).get_class() for i in range(tid.get_nmembers())} & {h5t.STRING, h5t.ENUM}):
        raise NotDescribedError("a compound of texts")
    for i in range(tid.get_nmembers()):
        member, dims = tid.get_member_type(i), ()
        if member.get_class() == h5t.ARRAY:
            member, dims = member.get_super(), member.get_array_dims()
        if member.get_class() not in (h5t.INTEGER, h5t.FLOAT):
            raise NotDescribedError("a compound in a compound")
        name = tid.get_member_name(i)
        label = quoteattr(name if isinstance(name, str) else name.decode())
        kind = _type("", member)[0]
        sizes = "".join(f'<Dim size="{n}"/>' for n in dims)
        yield f"<{kind} name={label}>{sizes}</{kind}>"


def _attribute_lines(attributes: Any) -> list[str]:
    lines = []
    for name, value in attributes.items():
        if isinstance(value, str | bytes | list):
            texts = value if isinstance(value, list) else [value]
            texts = [x.decode("latin-1") if isinstance(x, bytes) else x for x in texts]
            if not texts or any(_NO_XML.search(x) for x in texts):
                continue
            kind = "String"
        else:
            numbers = np.asarray(value)
            if numbers.dtype.str[1:] not in NUMBERS or not numbers.size or numbers.ndim > 1:
                continue
            kind = NUMBERS[numbers.dtype.str[1:]]
            # libdap: as many digits as make the number again
            form = {"f4": "%.9g", "f8": "%.17g"}.get(numbers.dtype.str[1:], "%d")
            texts = [form % x for x in numbers.reshape(-1)]
        lines.append(f'<Attribute name={quoteattr(name)} type="{kind}">')
        lines += [f"<Value>{escape(x)}</Value>" for x in texts]
        lines.append("</Attribute>")
    return lines


# -- where values are -----------------------------------------------------------------------------------------


def _storage_lines(dataset: h5py.Dataset, tid: h5t.TypeID) -> list[str]:
    dcpl = dataset.id.get_create_plist()
    layout = dcpl.get_layout()
    if layout == h5d.VIRTUAL or dcpl.get_external_count():
        raise NotDescribedError("values in other files")
    is_text = tid.get_class() == h5t.STRING
    if is_text and tid.is_variable_str():
        return _vlen_lines(dataset)
    lines = []
    fixed = []
    if is_text and dataset.shape:
        pad = _PADS[tid.get_strpad()]
        fixed = [f'<dmrpp:FixedLengthStringArray string_length="{tid.get_size()}" pad="{pad}"/>']
    if layout == h5d.COMPACT:
        if tid.get_class() == h5t.COMPOUND:
            raise NotDescribedError("a compact compound")
        values = np.ascontiguousarray(dataset[()])
        values = values if is_text else values.astype(values.dtype.newbyteorder("<"))
        return [*fixed, f"<dmrpp:compact>{base64.b64encode(values.tobytes()).decode()}</dmrpp:compact>"]
    attributes = {}
    filters = [dcpl.get_filter(i) for i in range(dcpl.get_nfilters())]
    if any(code not in _FILTERS for code, *_ in filters):
        raise NotDescribedError("a filter")
    if filters:
        attributes["compressionType"] = " ".join(_FILTERS[code] for code, *_ in filters)
    levels = [str(values[0]) for code, _, values, _ in filters if code == 1]
    if levels:
        attributes["deflateLevel"] = " ".join(levels)
    if tid.get_class() == h5t.COMPOUND:
        offsets = [tid.get_member_offset(i) for i in range(1, tid.get_nmembers())]
        attributes["structOffset"] = " ".join(map(str, [*offsets, tid.get_size()]))
    fill = _fill_text(dataset, tid)
    if fill:
        attributes["fillValue"] = fill
    order = _byte_order(tid)
    if order:
        attributes["byteOrder"] = order
    given = "".join(f" {key}={quoteattr(value)}" for key, value in attributes.items())
    lines.append(f"<dmrpp:chunks{given}>")
    lines += _contiguous_lines(dataset) if layout == h5d.CONTIGUOUS else _chunk_lines(dataset)
    return [*lines, "</dmrpp:chunks>", *fixed]


def _byte_order(tid: h5t.TypeID) -> str:
    if tid.get_class() == h5t.COMPOUND:
        orders = {_byte_order(tid.get_member_type(i)) for i in range(tid.get_nmembers())} - {""}
        if len(orders) > 1:
            raise NotDescribedError("mixed byte orders")
        return orders.pop() if orders else ""
    if tid.get_class() in (h5t.ARRAY, h5t.ENUM):
        return _byte_order(tid.get_super())
    return _ORDERS.get(tid.get_order(), "") if tid.get_class() in (h5t.INTEGER, h5t.FLOAT) else ""


def _fill_text(dataset: h5py.Dataset, tid: h5t.TypeID) -> str:
    dcpl = dataset.id.get_create_plist()
    defined = dcpl.fill_value_defined()
    if defined == h5d.FILL_VALUE_UNDEFINED:
        return ""
    if tid.get_class() == h5t.ENUM and defined == h5d.FILL_VALUE_DEFAULT:
        return ""
    if tid.get_class() == h5t.ENUM:
        raise NotDescribedError("the fill value of an enum")
    if tid.get_class() == h5t.COMPOUND and defined == h5d.FILL_VALUE_DEFAULT:
        return "0"
    cell = np.zeros((), dataset.dtype)
    dcpl.get_fill_value(cell)
    if dataset.dtype.names is not None:
        return " ".join(_number_text(x) for name in dataset.dtype.names for x in np.ravel(cell[name]))
    if cell.dtype.kind == "c":
        return f"{_number_text(cell.real)} {_number_text(cell.imag)}"
    return cell[()].decode("latin-1") if cell.dtype.kind == "S" else _number_text(cell)


def _number_text(value: Any) -> str:
    return f"{float(value):.6g}" if np.asarray(value).dtype.kind == "f" else str(int(value))


def _contiguous_lines(dataset: h5py.Dataset) -> list[str]:
    size = dataset.id.get_storage_size()
    offset = dataset.id.get_offset()
    return [f'<dmrpp:chunk offset="{offset}" nBytes="{size}"/>'] if size and offset is not None else []


def _chunk_lines(dataset: h5py.Dataset) -> list[str]:
    lines = [f"<dmrpp:chunkDimensionSizes>{' '.join(map(str, dataset.chunks))}</dmrpp:chunkDimensionSizes>"]
    for position, offset, size, mask in sorted(_chunks(dataset)):
        where = ",".join(map(str, position))
        fm = f' fm="{mask}"' if mask else ""
        lines.append(f'<dmrpp:chunk offset="{offset}" nBytes="{size}" chunkPositionInArray="[{where}]"{fm}/>')
    return lines


def _chunks(dataset: h5py.Dataset) -> Iterator[tuple[tuple[int, ...], int, int, int]]:
    if None in dataset.maxshape[1:]:
        # HDF5 up to 2.0 lists wrong places, and so does get_dmrpp
        raise NotDescribedError("an unlimited axis that is not the first")
    found: list[Any] = []
    dataset.id.chunk_iter(found.append)
    return ((x.chunk_offset, x.byte_offset, x.size, x.filter_mask) for x in found)


def _vlen_lines(dataset: h5py.Dataset) -> list[str]:
    try:
        texts = [x.decode() if isinstance(x, bytes) else str(x or "") for x in np.ravel(dataset[()])]
    except (OSError, UnicodeDecodeError) as error:
        raise NotDescribedError("texts") from error
    if any(_NO_XML.search(x) for x in texts):
        raise NotDescribedError("texts that are no XML")
    if not dataset.shape:
        return [f"<dmrpp:compact>{base64.b64encode(texts[0].encode()).decode()}</dmrpp:compact>"]
    lines = ["<dmrpp:vlsa>"]
    for text, run in itertools.groupby(texts):
        count = len(list(run))
        lines.append(f"<v{f' c="{count}"' if count > 1 else ''}>{escape(text)}</v>")
    return [*lines, "</dmrpp:vlsa>"]

"""The reader of DMR++ documents, and the location of the data of a document.

The steps from a document to a group:

1. `document` parses XML into elements. It does not interpret them.
2. `tree` finds groups, variables and dimensions. `dap` reads types, attributes and text values.
3. `variables` makes virtual arrays, and `chunks` their manifests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from virtualstack.errors import Code, MalformedFileError, ReaderError, Remedy, SourceNotFoundError
from virtualstack.formats.base import ReadOptions
from virtualstack.formats.dmrpp.dap import read_attributes
from virtualstack.formats.dmrpp.document import MAX_DOCUMENT_BYTES, BadValueError, parse_document
from virtualstack.formats.dmrpp.tree import DmrppGroup, read_tree
from virtualstack.formats.dmrpp.variables import DocumentContext, read_variable
from virtualstack.location import Location, absolute_url, join_url, split_query
from virtualstack.manifests import ManifestArray, ManifestGroup
from virtualstack.reading import read_array
from virtualstack.storage import Source, Storage

_SUFFIX = ".dmrpp"
# get_dmrpp writes this text, and servers replace it
_PLACEHOLDER = "OPeNDAP_DMRpp_DATA_ACCESS_URL"


def sidecar_url(url: str, /) -> str:
    """Return the URL of the document beside a file.

    >>> sidecar_url("s3://bucket/a.nc"), sidecar_url("https://host/a.nc?token=1")
    ('s3://bucket/a.nc.dmrpp', 'https://host/a.nc.dmrpp?token=1')
    """
    path, query = split_query(url)
    return f"{path}{_SUFFIX}{query}"


def data_url(url: str, /) -> str | None:
    """Return the URL of the file beside a document, or ``None`` if its name does not end in ``.dmrpp``.

    >>> data_url("https://host/a.nc.dmrpp?token=1"), data_url("file:///a.xml")
    ('https://host/a.nc?token=1', None)
    """
    path, query = split_query(url)
    return path.removesuffix(_SUFFIX) + query if path.endswith(_SUFFIX) else None


def source_url(href: str, document: str, /) -> str:
    """Return the absolute URL of a location in a document.

    >>> source_url("OPeNDAP_DMRpp_DATA_ACCESS_URL", "s3://bucket/a.nc.dmrpp")
    's3://bucket/a.nc'
    """
    if href in ("", _PLACEHOLDER):
        beside = data_url(document)
        if beside is None:
            raise ReaderError(
                f"'{document}' does not say where its data is, and its name is not that of a file and '{_SUFFIX}'",
                Remedy("give", reader=Code("virtualstack.readers.DMRPP(data_url=...)")),
                url=document,
            )
        return beside
    return join_url(split_query(document)[0].rpartition("/")[0] + "/", href)


_HEAD_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class DMRPP:
    """Reader of DMR++ documents of OPeNDAP, which list the byte ranges of the chunks of an HDF5 or HDF4 file.

    The file itself is opened only for text whose padding must be removed. If a URL does not end in ``.dmrpp``, the
    document beside it is read: ``file.nc.dmrpp`` for ``file.nc``.

    When to use: a DMR++ document exists for a file, because its byte ranges are then known without reading the file.
    Alternatives: :class:`~virtualstack.readers.HDF5` reads the HDF5 file itself,
    ``KerchunkDriver("kerchunk.hdf4:HDF4ToZarr")`` reads an HDF4 file without a document, and
    :class:`~virtualstack.readers.Kerchunk` reads references.

    Parameters
    ----------
    data_url
        URL of the file. By default, the document names it, or it is beside the document.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> import virtualstack as vs
    >>> n_bytes = Path("rain.nc").write_bytes(np.array([1.0, 2.0], "<f8").tobytes())
    >>> document = '''<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" name="rain.nc"
    ...     xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" dmrpp:href="rain.nc">
    ...   <Dimension name="time" size="2"/>
    ...   <Float64 name="rain"><Dim name="/time"/>
    ...     <dmrpp:chunks byteOrder="LE"><dmrpp:chunk offset="0" nBytes="16"/></dmrpp:chunks></Float64>
    ... </Dataset>'''
    >>> n_characters = Path("rain.nc.dmrpp").write_text(document)
    >>> vds = vs.open_virtual_dataset("rain.nc", reader=vs.readers.DMRPP())
    >>> vds.virtual.open()["rain"].values
    array([1., 2.])
    """

    name: ClassVar[str] = "dmrpp"

    data_url: str | os.PathLike[str] | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """The URL of ``data_url``, if it was given. A document may refer to it, because the user has named it."""
        return () if self.data_url is None else (absolute_url(self.data_url),)

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return the variables of the file that a document describes as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The document is not DMR++, is cut off, or contradicts itself.
        ForbiddenLocationError
            A document from a network refers to a local file or a private host.
        StorageError
            The document could not be read.
        """
        source, asked_for = _open(url, storage)
        document = source.location.url
        if source.size > MAX_DOCUMENT_BYTES:
            raise _damaged(document, f"it has {source.size} bytes; at most {MAX_DOCUMENT_BYTES} are read")
        root = parse_document(source.read(0, source.size), where=document)
        href = root.attributes.get("dmrpp:href", "")
        own = asked_for if self.data_url is None else absolute_url(self.data_url)
        locations: dict[str, Location] = {}

        def locate(location: str) -> Location:
            if location not in locations:
                is_own = location in ("", href)
                found = own if is_own and own is not None else source_url(location or href, document)
                locations[location] = Location(found)
            return locations[location]

        context = DocumentContext(
            locate=locate,
            values=lambda array: read_array(array, (), storage),
            inline_limit=options.inline_limit,
            is_ordered="dmrpp:version" in root.attributes,
        )
        try:
            tree = read_tree(root)
        except BadValueError as error:
            raise _damaged(document, str(error)) from error
        return _group(tree, document, context, options)


def _open(url: str, storage: Storage) -> tuple[Source, str | None]:
    """Open a document; also return the URL of the data, if the user asked for the data."""
    if data_url(url) is not None:
        return storage.source(url), None
    try:
        return storage.source(sidecar_url(url)), url
    except SourceNotFoundError as error:
        source = storage.source(url)
        if b"dmrpp" in source.read(0, min(source.size, _HEAD_BYTES)):
            return source, None  # a document with another suffix
        raise SourceNotFoundError(
            f"there is no '{sidecar_url(url)}' beside '{url}'",
            Remedy("write one with OPeNDAP's get_dmrpp"),
            Remedy("leave out", reader="dmrpp"),
            url=url,
        ) from error


def _group(tree: DmrppGroup, document: str, context: DocumentContext, options: ReadOptions) -> ManifestGroup:
    try:
        attributes, refusals = read_attributes(tree.element, tree.path or "/")
    except BadValueError as error:
        raise _damaged(document, f"'{tree.path or '/'}': {error}") from error
    arrays: dict[str, ManifestArray] = {}
    for name, element in tree.variables.items():
        path = f"{tree.path}/{name}"
        if not options.wants(path):
            continue
        try:
            array, found = read_variable(element, path, tree.axes[name], tree, context)
        except BadValueError as error:
            raise _damaged(document, f"'{path}': {error}") from error
        refusals += found
        if array is not None:
            arrays[name] = array
    return ManifestGroup(
        arrays=arrays,
        groups={name: _group(child, document, context, options) for name, child in tree.groups.items()},
        attributes=attributes,
        dimensions=tree.dimensions,
        refusals=tuple(refusals),
        url=document,
    )


def _damaged(document: str, what: str) -> MalformedFileError:
    return MalformedFileError(
        f"'{document}' is damaged or not a DMR++ document: {what}", Remedy("fetch or write it again"), url=document
    )

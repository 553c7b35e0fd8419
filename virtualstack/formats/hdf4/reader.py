"""The reader of HDF4 files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from virtualstack.formats.base import ReadOptions
from virtualstack.formats.hdf4.grids import grid_axes
from virtualstack.formats.hdf4.structure import VG, VH, HDF4File, NotReadError
from virtualstack.formats.hdf4.variables import Variable, place, read_variable
from virtualstack.formats.rows import RowReader
from virtualstack.manifests import ManifestArray, ManifestGroup, Refusal, inline_array, value_changing
from virtualstack.storage import Storage

_STRUCTURE = "StructMetadata."


@dataclass(frozen=True, slots=True, kw_only=True)
class HDF4(RowReader):
    """Reader of HDF4 files, also of HDF-EOS2. It needs no other library, and reads only the descriptions of objects.

    Each scientific data set is a variable, with the dimensions and attributes that the HDF4 library shows. Grids of
    HDF-EOS2 get coordinates: degrees for geographic grids, otherwise metres of the projection.

    When to use: the reader is chosen by the first bytes of a file. Name it to set the size of chunks. Alternatives: a
    DMR++ document beside the file, which :class:`~virtualstack.readers.DMRPP` reads.

    Parameters
    ----------
    chunk_size
        Maximum bytes of a chunk of values without compression, as a number or text such as ``"4 MiB"``. ``"auto"``:
        16 MiB. ``None`` makes all contiguous values one chunk.

    Raises
    ------
    ValueError
        ``chunk_size`` is not a positive number of bytes.

    Examples
    --------
    >>> import virtualstack as vs
    >>> vds = vs.open_virtual_dataset("MOD09GA.hdf", reader=vs.readers.HDF4(chunk_size="1 MiB"))  # doctest: +SKIP
    """

    name: ClassVar[str] = "hdf4"

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return the scientific data sets of a file as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The file is not an HDF4 file, contradicts itself, or is truncated.
        StorageError
            The bytes could not be read.
        """
        file = HDF4File(storage.source(url))
        arrays: dict[str, ManifestArray] = {}
        attributes: dict[str, Any] = {}
        refusals: list[Refusal] = []
        lengths: dict[str, int] = {}
        for ref in file.refs(VG):
            try:
                group = file.group(ref)
                if group.kind == "CDF0.0":
                    found = [file.attribute(x) for tag, x in group.members if tag == VH]
                    attributes |= dict(x for x in found if x is not None)
                if group.kind != "Var0.0" or options.drops(group.name):
                    continue
            except NotReadError as error:
                refusals.append(Refusal(path="/", reason=f"attributes are left out: {error}", kind="noted"))
                continue
            try:
                if "/" in group.name or not group.name or group.name in arrays:
                    raise NotReadError("its name is empty, has a '/', or is that of another data set")
                arrays[group.name] = self._array(file, read_variable(file, group), lengths)
            except NotReadError as error:
                refusals.append(Refusal(path=f"/{group.name}", reason=str(error)))
        text = "".join(str(attributes.get(f"{_STRUCTURE}{n}", "")) for n in range(10))
        for dim, values, more in grid_axes(text):
            if lengths.get(dim) == values.size and dim not in arrays:
                arrays[dim] = inline_array(values, name=f"/{dim}", dims=[dim], attributes=more)
        return ManifestGroup(arrays=arrays, attributes=attributes, refusals=tuple(refusals), url=file.url)

    def _array(self, file: HDF4File, variable: Variable, lengths: dict[str, int]) -> ManifestArray:
        chunks = place(file, variable, file.source.location, self._most_bytes())
        dims: list[str] = []
        for dim, length in zip(variable.dims, variable.shape, strict=True):
            is_free = lengths.setdefault(dim, length) == length and dim not in dims
            name = dim if is_free else f"{dim}_{len(dims)}_{length}"
            lengths[name] = length
            dims.append(name)
        return ManifestArray(
            manifest=chunks.manifest,
            grid=chunks.grid,
            dtype=variable.stored.newbyteorder("="),
            name=f"/{variable.name}",
            dimension_names=tuple(dims),
            attributes=variable.attributes,
            cf=value_changing(variable.attributes),
        )

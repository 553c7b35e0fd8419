"""The reader of netCDF-3 files.

The steps from a file to a group: `header` reads dimensions, attributes and variables. `chunks` finds the bytes of each
variable, and `virtualstack/formats/rows.py` divides them into chunks of useful size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from virtualstack.formats.base import ReadOptions, netcdf_fill
from virtualstack.formats.netcdf3.chunks import DataLayout, Extent, check_inside, chunk_shape, lay_out
from virtualstack.formats.netcdf3.header import read_header
from virtualstack.formats.rows import RowReader, place_rows
from virtualstack.manifests import ManifestArray, ManifestGroup, Refusal, value_changing
from virtualstack.storage import Storage

MAX_CELLS = 1 << 26
"""Maximum number of chunks of all variables of one file; they take 1.6 GB."""

_MAX_NDIM = 64
"""Maximum number of axes of a variable, which is the limit of numpy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetCDF3(RowReader):
    """Reader of netCDF-3 files: the classic format, 64-bit offset, and CDF-5. It reads only the header.

    The values of a variable are consecutive. They are referenced as chunks of whole rows, so that reading one row or
    one chunk does not fetch all values. In a file with several record variables, their records alternate; then each
    record is at least one chunk.

    When to use: the reader is chosen by the first bytes of a file. Pass it as ``reader=`` to set the size of chunks.
    Alternatives: netCDF-4 files are HDF5 files, which :class:`~virtualstack.readers.HDF5` reads.

    Parameters
    ----------
    chunk_size
        Maximum bytes of a chunk, as a number or text such as ``"4 MiB"``; the last chunk may be shorter. ``"auto"``
        cuts variables of more than 16 MiB into equal chunks, which kerchunk references need. If the lengths of a
        variable have no suitable divisor, it stays whole. ``None`` makes all contiguous values one chunk.

    Raises
    ------
    ValueError
        ``chunk_size`` is not a positive number of bytes.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> rain = xr.Dataset({"rain": ("time", [1.0, 2.0, 3.0, 4.0])})
    >>> rain.to_netcdf("rain.nc", format="NETCDF3_CLASSIC", engine="netcdf4")
    >>> vds = vs.open_virtual_dataset("rain.nc", reader=vs.readers.NetCDF3(chunk_size=16))
    >>> vds.virtual.nrefs
    2
    """

    name: ClassVar[str] = "netcdf3"

    def read(self, url: str, storage: Storage, options: ReadOptions) -> ManifestGroup:
        """Return the variables of a file as a group of virtual arrays.

        :func:`virtualstack.open_virtual_dataset` and ``vs.scan`` call it; call it yourself in a reader of your own.

        Raises
        ------
        MalformedFileError
            The file is not a netCDF-3 file, contradicts itself, or is truncated.
        UnsupportedFeatureError
            The header is longer than `MAX_HEADER_BYTES`.
        StorageError
            The bytes could not be read.
        """
        source = storage.source(url)
        location = source.location
        header = read_header(source.read, source.size, location.url)
        layout = lay_out(header, source.size)
        extents = [extent for extent in layout.extents if not options.drops(extent.variable.name)]
        check_inside(extents, source.size, location.url)
        refusals = _notes(layout)
        arrays: dict[str, ManifestArray] = {}
        n_cells = 0
        for extent in extents:
            variable = extent.variable
            chunks = chunk_shape(extent, self._most_bytes(), is_equal=self.chunk_size == "auto")
            n_cells += math.prod(-(-n // max(c, 1)) for n, c in zip(extent.shape, chunks, strict=True))
            reason = _obstacle(extent, n_cells)
            if reason is not None:
                refusals.append(Refusal(path=f"/{variable.name}", reason=reason))
                continue
            dtype = variable.dtype.newbyteorder("=")
            manifest, grid = place_rows(
                location,
                variable.begin,
                variable.dtype,
                extent.shape,
                chunks,
                netcdf_fill(variable.attributes, dtype),
                record_step=extent.record_step,
            )
            arrays[variable.name] = ManifestArray(
                manifest=manifest,
                grid=grid,
                dtype=dtype,
                name=f"/{variable.name}",
                dimension_names=tuple(header.dimensions[number].name for number in variable.dimensions),
                attributes=variable.attributes,
                cf=value_changing(variable.attributes),
            )
        return ManifestGroup(
            arrays=arrays,
            attributes=header.attributes,
            dimensions={x.name: layout.n_records if x.length is None else x.length for x in header.dimensions},
            unlimited=frozenset(x.name for x in header.dimensions if x.length is None),
            refusals=tuple(refusals),
            url=location.url,
        )


def _notes(layout: DataLayout) -> list[Refusal]:
    if not layout.n_left:
        return []
    reason = (
        f"the file does not say how many records it has: there are {layout.n_records} whole ones, and {layout.n_left} "
        "bytes behind them are left out"
    )
    return [Refusal(path="/", reason=reason, kind="noted")]


def _obstacle(extent: Extent, n_cells: int) -> str | None:
    """Return why a variable cannot be referenced; ``n_cells`` counts the cells of all variables up to this one."""
    if "/" in extent.variable.name:
        return "a '/' in its name, which paths of groups have"
    if len(extent.shape) > _MAX_NDIM:
        return f"{len(extent.shape)} axes; numpy has at most {_MAX_NDIM}"
    if n_cells > MAX_CELLS:
        return (
            f"with it the file has {n_cells} chunks, one at least for each record; a file is referenced by at most "
            f"{MAX_CELLS}"
        )
    return None

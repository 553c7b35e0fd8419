"""Decode rasters as rioxarray does: what GDAL masks and scales, and CF has no attributes for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from virtualstack.errors import ReaderError, Remedy
from virtualstack.manifests import PER_BAND, RASTER_DECODING


class _RasterArray(BackendArray):  # type: ignore[misc, unused-ignore]
    """Values of a raster as rioxarray decodes them: by nodata, scale and offset of each band, and by a mask.

    Parameters
    ----------
    values
        Values, as CF attributes decode them.
    bands
        Number of the band of each element, from 1.
    mask
        Zero where values are missing, to which CF attributes may have added an offset.
    alpha
        Number of the band that is the mask, and is not masked itself.
    nodata, scales, offsets
        One number for each band.
    """

    def __init__(
        self,
        values: xr.Variable,
        bands: xr.Variable,
        mask: xr.Variable | None,
        alpha: int,
        nodata: NDArray[Any] | None,
        scales: NDArray[Any] | None,
        offsets: NDArray[Any] | None,
    ) -> None:
        self.values, self.bands, self.mask, self.alpha = values, bands, mask, alpha
        self.nodata, self.scales, self.offsets = nodata, scales, offsets
        self.shape = values.shape
        is_small = values.dtype.kind in "iu" and values.dtype.itemsize <= 2
        self.dtype = values.dtype if values.dtype.kind in "fc" else np.dtype(np.float32 if is_small else np.float64)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self._read)

    async def async_getitem(self, key: indexing.ExplicitIndexer) -> Any:
        """Read values in another thread, for ``load_async()``."""
        return await asyncio.to_thread(self.__getitem__, key)

    def _read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        by_dim = dict(zip(self.values.dims, key, strict=True))
        kept = [dim for dim, part in by_dim.items() if not isinstance(part, int | np.integer)]

        def part_of(variable: xr.Variable) -> NDArray[Any]:
            part = variable[tuple(by_dim[dim] for dim in variable.dims)].transpose(
                *(x for x in kept if x in variable.dims)
            )
            return part.values[tuple(slice(None) if dim in part.dims else None for dim in kept)]

        stored, band = part_of(self.values), part_of(self.bands) - 1
        found = stored.astype(self.dtype)
        if self.nodata is not None:
            found = np.where(stored == self.nodata[band], np.nan, found)
        if self.scales is not None:
            found = found * self.scales.astype(self.dtype)[band]
        if self.offsets is not None:
            found = found + self.offsets.astype(self.dtype)[band]
        if self.mask is not None:
            zero = self.mask.dtype.type(self.mask.encoding.get("add_offset", 0))
            found = np.where((part_of(self.mask) == zero) & (band + 1 != self.alpha), np.nan, found)
        return found.astype(self.dtype, copy=False)


def raster_variable(dataset: xr.Dataset, name: Any, /) -> xr.Variable | None:
    """Return a variable of a raster decoded as rioxarray decodes it; ``None`` if its attributes ask for nothing.

    Raises
    ------
    ReaderError
        The mask, or the numbers of the bands, are not in the dataset.
    """
    variable = dataset.variables[name]
    wanted = variable.attrs.get(RASTER_DECODING)
    if not isinstance(wanted, str):
        return None
    parts = dict(part.partition("=")[::2] for part in wanted.split())
    bands = dataset.variables.get("band")
    alpha = int(parts["alpha"]) if parts.get("alpha", "").isdecimal() else 0
    per_band = {key: np.asarray(variable.attrs.get(key)) for key in parts if key in PER_BAND}
    if (per_band or alpha) and not _are_bands(bands, variable, per_band):
        raise _undecodable(dataset, name, "the numbers of its bands, the coordinate 'band'")
    bands = xr.Variable((), 1) if bands is None or bands.dims not in ((), ("band",)) else bands
    mask = dataset.variables.get(parts.get("mask"))
    if alpha and bands.ndim and alpha in bands.values:
        mask = variable.isel(band=int(np.flatnonzero(bands.values == alpha)[0]))
    if mask is None and ("mask" in parts or alpha):
        missing = f"'{parts.get('mask')}', its mask" if "mask" in parts else f"band {alpha}, its alpha band"
        raise _undecodable(dataset, name, missing)
    array = _RasterArray(
        variable, bands, mask, alpha, per_band.get("nodatavals"), per_band.get("scales"), per_band.get("offsets")
    )
    left = {key: x for key, x in variable.attrs.items() if key not in (RASTER_DECODING, *per_band)}
    moved = {key: variable.attrs[key] for key in (RASTER_DECODING, *per_band)}
    return xr.Variable(variable.dims, indexing.LazilyIndexedArray(array), left, {**variable.encoding, **moved})


def _are_bands(bands: xr.Variable | None, variable: xr.Variable, per_band: Mapping[str, NDArray[Any]]) -> bool:
    """Return whether a coordinate has the number of the band of each element, from 1."""
    if bands is None or bands.dtype.kind not in "iu" or bands.dims != tuple(x for x in variable.dims if x == "band"):
        return False
    n = min((len(x) if x.ndim == 1 and x.dtype.kind in "iuf" else 0 for x in per_band.values()), default=1 << 32)
    return bool(((bands.values >= 1) & (bands.values <= n)).all())


def _undecodable(dataset: xr.Dataset, name: Any, what: str) -> ReaderError:
    url = dataset.encoding.get("source")
    return ReaderError(
        f"'{name}' of '{url}' cannot be masked or scaled without {what}",
        Remedy("keep it"),
        Remedy("open with", mask_and_scale=False),
        url=url,
    )

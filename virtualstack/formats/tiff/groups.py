"""Series of images to groups of arrays: one dataset, or a tree of resolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from virtualstack.errors import Remedy, advised
from virtualstack.formats.tiff.arrays import (
    AUTO_CHUNK_BYTES,
    Axes,
    ImageMetadata,
    image_array,
    nodata_value,
    read_metadata,
    with_pam,
)
from virtualstack.formats.tiff.georeference import (
    Transform,
    control_points,
    crs_attributes,
    geo_keys,
    polynomials,
    read_crs,
    read_transform,
)
from virtualstack.formats.tiff.image import Image, Level, Series
from virtualstack.formats.tiff.structure import TiffStructure
from virtualstack.location import Location
from virtualstack.manifests import (
    ABSENT,
    PER_BAND,
    RASTER_DECODING,
    ManifestArray,
    ManifestGroup,
    Refusal,
    inline_array,
    value_changing,
)

_BANDS, _STACK, _MASK = "band_data", "image", "mask"
_MAX_AXIS_PIXELS = 1 << 24
_EXTRA_SAMPLES, _OPACITIES = 338, (1, 2)
_AREA_OR_POINT, _RASTER_TYPE, _POINT = "AREA_OR_POINT", 1025, 2
_WGS84 = "EPSG:4326"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """How images become variables; see :class:`~virtualstack.formats.tiff.reader.TIFF`."""

    band_as_variable: bool = False
    most_bytes: int | None = AUTO_CHUNK_BYTES
    dropped: frozenset[str] = frozenset()
    inline_limit: int = 1 << 20
    pam: bytes | None = None
    mask: ManifestArray | None = None


def dataset_group(
    structure: TiffStructure, series: Sequence[Series], choices: Choices, location: Location
) -> ManifestGroup:
    """Make a group of the first series, at full resolution."""
    group = _Resolution(structure, series[0], 0, choices, location).group()
    if len(series) == 1:
        return group
    n = len(series) - 1
    reason = advised(
        f"{n} more image{'s, which have' if n > 1 else ', which has'} another shape or another form of storage, "
        f"{'are' if n > 1 else 'is'} left out",
        Remedy("open it as a tree, with", "open_virtual_datatree"),
    )
    return replace(group, refusals=(*group.refusals, Refusal(path="/", reason=reason, kind="noted")))


def tree_group(
    structure: TiffStructure, series: Sequence[Series], choices: Choices, location: Location
) -> ManifestGroup:
    """Make a group for each resolution of each series; one image alone is the root itself."""
    if len(series) == 1:
        return _series_group(structure, series[0], choices, location)
    groups = {f"image_{n}": _series_group(structure, x, choices, location) for n, x in enumerate(series)}
    return ManifestGroup(groups=groups, url=location.url)


def _series_group(structure: TiffStructure, series: Series, choices: Choices, location: Location) -> ManifestGroup:
    levels = [_Resolution(structure, series, n, choices, location) for n in range(len(series.levels))]
    if len(levels) == 1:
        return levels[0].group(with_masks=True)
    groups = {str(n): level.group(with_masks=True) for n, level in enumerate(levels)}
    return ManifestGroup(groups=groups, attributes={"multiscales": [_multiscales(levels, groups)]}, url=location.url)


def _multiscales(levels: Sequence[_Resolution], groups: Mapping[str, ManifestGroup]) -> dict[str, Any]:
    """Describe resolutions by the attributes of OME-NGFF 0.4."""
    name = levels[0].variable
    first = next(iter(groups.values())).arrays.get(name)
    dims = () if first is None else first.dimension_names or ()
    kinds = {"t": "time", "c": "channel", "band": "channel", "page": "channel"}
    datasets = []
    for path, level in zip(groups, levels, strict=True):
        down, across = level.factors
        scale = [{"y": down, "x": across}.get(dim, 1.0) for dim in dims]
        datasets.append({"path": f"{path}/{name}", "coordinateTransformations": [{"type": "scale", "scale": scale}]})
    return {
        "version": "0.4",
        "axes": [{"name": dim, "type": kinds.get(dim, "space")} for dim in dims],
        "datasets": datasets,
    }


class _Resolution:
    """One resolution of a series."""

    def __init__(
        self, structure: TiffStructure, series: Series, number: int, choices: Choices, location: Location
    ) -> None:
        self._structure, self._series, self._number = structure, series, number
        self._choices, self._location = choices, location
        self._level: Level = series.levels[number]
        self._layout = self._level.image.layout
        self.variable = _STACK if series.is_stack else _BANDS

    @property
    def _by_band(self) -> bool:
        return self._choices.band_as_variable and not self._series.is_stack

    @property
    def factors(self) -> tuple[float, float]:
        """Number of rows and columns of the full resolution for one row and one column of this resolution."""
        whole = self._series.levels[0].image.layout
        return whole.height / self._layout.height, whole.width / self._layout.width

    def group(self, *, with_masks: bool = False) -> ManifestGroup:
        """Make the group."""
        directory = self._series.levels[0].image.directory
        metadata = read_metadata(self._structure, directory)
        if self._choices.pam is not None:
            metadata = with_pam(metadata, self._choices.pam)
        reasons = (*self._series.notes, metadata.note)
        refusals = [Refusal(path="/", reason=reason, kind="noted") for reason in reasons if reason is not None]
        coordinates, notes = self._coordinates(metadata)
        refusals += notes
        is_mapped = "spatial_ref" in coordinates
        metadata = self._with_area_or_point(metadata)
        arrays, refused = self._arrays(metadata, is_mapped=is_mapped)
        refusals += refused
        if (with_masks or not self._series.is_stack) and _MASK not in self._choices.dropped:
            mask, refused = self._masks()
            arrays |= mask
            refusals += refused
        coordinates = {name: array for name, array in coordinates.items() if name not in self._choices.dropped}
        return ManifestGroup(
            arrays={**coordinates, **arrays},
            attributes=metadata.dataset_attributes(),
            coordinates=frozenset(coordinates),
            loaded=frozenset(coordinates),
            refusals=tuple(refusals),
            url=self._location.url,
        )

    # -- variables ----------------------------------------------------------------------------------------------

    def _arrays(self, metadata: ImageMetadata, *, is_mapped: bool) -> tuple[dict[str, ManifestArray], list[Refusal]]:
        layout, name = self._layout, self.variable
        names = [f"band_{n + 1}" for n in range(layout.samples)] if self._by_band else [name]
        names = [name for name in names if name not in self._choices.dropped]
        if not names:
            return {}, []
        if layout.obstacle is not None:
            image = self._level.image
            reason = f"{image.name} has {layout.obstacle}. Write the file again with other software to read it"
            return {}, [Refusal(path=f"/{name}", reason=reason) for name in names]
        attributes = self._attributes(metadata, range(layout.samples), is_mapped)
        whole = self._image_array(name, self._level.images, attributes)
        if not self._by_band:
            if RASTER_DECODING not in attributes:
                return {name: whole}, []
            words = ", ".join(part.partition("=")[0] for part in attributes[RASTER_DECODING].split())
            reason = (
                f"{words} of its bands: applied when xarray's engine 'virtualstack' decodes values, and by no other "
                "reader of its references"
            )
            return {name: whole}, [Refusal(path=f"/{name}", reason=reason, kind="noted")]
        found: dict[str, ManifestArray] = {}
        for name in names:
            band = int(name.removeprefix("band_")) - 1
            own = self._attributes(metadata, range(band, band + 1), is_mapped)
            found[name] = replace(
                whole[band], name=f"/{name}", dimension_names=("y", "x"), attributes=own, cf=value_changing(own)
            )
        return found, []

    def _image_array(
        self, name: str, images: Sequence[Image | None], attributes: Mapping[str, Any], *, is_mask: bool = False
    ) -> ManifestArray:
        there = [image if image is not None else _absent(self._level.image) for image in images]
        layout = there[0].layout
        band: str | None = "first"
        if self._series.is_stack or is_mask:
            band = "last" if layout.samples > 1 else None
        array = image_array(
            there,
            Axes(pages=self._series.pages, band=band),
            name=name,
            location=self._location,
            attributes=attributes,
            most_bytes=self._choices.most_bytes,
            nodata=None if is_mask else self._nodata(),
        )
        return _with_missing(array, images) if None in images else array

    def _nodata(self) -> Any:
        """Return the value of pixels without data; overviews without one use that of the image."""
        own = nodata_value(self._layout)
        whole = self._series.levels[0].image.layout
        return nodata_value(replace(self._layout, nodata=whole.nodata)) if own is None else own

    def _attributes(self, metadata: ImageMetadata, bands: range, is_mapped: bool) -> dict[str, Any]:
        attributes = metadata.attributes(bands, with_tags=not self._by_band)
        if self._series.is_stack:  # in OME-TIFF, tags are XML of the whole file, which is an attribute of the dataset
            attributes.pop("TIFFTAG_IMAGEDESCRIPTION", None)
        attributes |= self._missing(metadata, bands, attributes.pop(RASTER_DECODING, ""))
        if any(key in attributes for key in PER_BAND):  # CF's one number of all bands would count before those of each
            for one, many in (("scale_factor", "scales"), ("add_offset", "offsets")):
                if one in attributes:
                    attributes[many] = np.full(len(bands), attributes.pop(one))
                    attributes[RASTER_DECODING] += f" {many}"
        if is_mapped:
            attributes["grid_mapping"] = "spatial_ref"
        return attributes

    def _missing(self, metadata: ImageMetadata, bands: range, decoding: str) -> dict[str, Any]:
        """Return the attributes of missing pixels: of a mask, else of nodata, else of an alpha band, as in GDAL."""
        found: dict[str, Any] = {}
        layout, own = self._layout, self._nodata()
        texts = metadata.texts("nodatavalue")
        nodata = [nodata_value(replace(layout, nodata=texts[n])) if n in texts else own for n in bands]
        has_nodata = any(x is not None for x in nodata)
        is_one = len({str(x) for x in nodata}) == 1
        alpha = layout.samples if self._has_alpha else 0
        if self._has_mask:
            decoding += f" mask={_MASK}"
            if own is not None:
                found["nodata"] = own
        elif has_nodata and is_one:
            found["_FillValue"] = nodata[0]
        elif has_nodata:
            decoding += " nodatavals"
            found["nodatavals"] = np.array([np.nan if x is None else x for x in nodata], np.float64)
        elif alpha and not self._by_band:
            decoding += f" alpha={alpha}"
        elif alpha and alpha - 1 not in bands:
            decoding += f" mask=band_{alpha}"
        if decoding:
            found[RASTER_DECODING] = decoding.strip()
        return found

    @property
    def _has_mask(self) -> bool:
        """Whether a mask decides which pixels of a single image are missing."""
        if self._series.is_stack or _MASK in self._choices.dropped:
            return False
        masks = self._level.masks
        return self._external_mask() is not None or (bool(masks) and masks[0].layout.obstacle is None)

    def _external_mask(self) -> ManifestArray | None:
        mask, layout = self._choices.mask, self._layout
        if mask is None or self._number or self._series.is_stack:
            return None
        fits = mask.shape[-2:] == (layout.height, layout.width) and mask.shape[:-2] in ((), (layout.samples,))
        return mask if fits and not (self._by_band and mask.ndim > 2) else None

    @property
    def _has_alpha(self) -> bool:
        """Whether the last sample of a single image is opacity (TIFF 6.0, tag 338), in a form that GDAL masks by."""
        extra = self._structure.values(self._level.image.directory, _EXTRA_SAMPLES)
        is_opacity = extra is not None and extra.size > 0 and int(extra[-1]) in _OPACITIES
        is_usual = self._layout.dtype in (np.uint8, np.uint16) and self._layout.samples > 1
        return is_opacity and is_usual and not self._series.is_stack

    def _with_area_or_point(self, metadata: ImageMetadata) -> ImageMetadata:
        keys = geo_keys(self._structure, self._series.levels[0].image.directory)
        if keys is None or _RASTER_TYPE not in keys:
            return metadata
        word = "Point" if keys[_RASTER_TYPE] == _POINT else "Area"
        return replace(metadata, tags={_AREA_OR_POINT: word, **metadata.tags})

    def _masks(self) -> tuple[dict[str, ManifestArray], list[Refusal]]:
        masks = self._level.masks
        if (external := self._external_mask()) is not None:
            return {_MASK: external}, []
        if not masks:
            return {}, []
        obstacle = masks[0].layout.obstacle
        if obstacle is not None:
            return {}, [Refusal(path=f"/{_MASK}", reason=f"{masks[0].name} has {obstacle}")]
        return {_MASK: self._image_array(_MASK, masks, {}, is_mask=True)}, []

    # -- coordinates --------------------------------------------------------------------------------------------

    def _coordinates(self, metadata: ImageMetadata) -> tuple[dict[str, ManifestArray], list[Refusal]]:
        found: dict[str, ManifestArray] = {}
        layout, series = self._layout, self._series
        if not series.is_stack and not self._by_band:
            values = np.arange(1, layout.samples + 1)
            found["band"] = inline_array(values, name="/band", dims=("band",), attributes={})
        factors = dict(zip("yx", self.factors, strict=True))
        for name, (values, attributes) in series.coordinates.items():
            factor = factors.get(name, 1.0)
            if factor != 1:
                values = np.arange({"y": layout.height, "x": layout.width}[name]) * (values[1] * factor)
            dims = (name,) if values.ndim else ()
            found[name] = inline_array(values, name=f"/{name}", dims=dims, attributes=attributes)
        directory = series.levels[0].image.directory
        keys = geo_keys(self._structure, directory)
        transform = read_transform(self._structure, directory, keys)
        if transform is not None:
            down, across = self.factors
            transform = transform if self._number == 0 else transform.scaled(across, down)
            notes = self._add_places(found, transform)
        else:
            notes = []
        mapping: dict[str, Any] = {}
        if keys is not None:
            system, reason = read_crs(keys, self._structure, directory)
            mapping |= system
            if reason is not None:
                notes.append(Refusal(path="/spatial_ref", reason=reason, kind="noted"))
        if (rational := polynomials(self._structure, directory)) is not None:
            # coordinates are longitudes and latitudes
            mapping = {**(mapping if transform is not None else crs_attributes(_WGS84)), "rpcs": rational}
        if transform is not None:
            mapping["GeoTransform"] = transform.text()
        elif (points := control_points(self._structure, directory, keys)) is not None:
            mapping["gcps"] = points
        if mapping:
            found["spatial_ref"] = inline_array(np.array(0), name="/spatial_ref", dims=(), attributes=mapping)
        return found, notes

    def _add_places(self, found: dict[str, ManifestArray], transform: Transform) -> list[Refusal]:
        layout = self._layout
        size = layout.height * layout.width * 8 if transform.is_rotated else 0
        is_long = max(layout.height, layout.width) > _MAX_AXIS_PIXELS
        if is_long or size > max(self._choices.inline_limit, 1 << 16):
            names = "'xc' and 'yc'" if transform.is_rotated else "'x' and 'y'"
            reason = advised(
                f"the coordinates {names} of {layout.height} x {layout.width} pixels are left out",
                Remedy("compute them from the GeoTransform of 'spatial_ref'"),
                *([] if is_long else [Remedy("put them into the references with", inline_limit=size)]),
            )
            return [Refusal(path="/", reason=reason, kind="noted")]
        for name, (dims, values) in transform.coordinates(layout.height, layout.width).items():
            found[name] = inline_array(values, name=f"/{name}", dims=dims, attributes={})
        return []


def _absent(image: Image) -> Image:
    zeros = np.zeros(image.layout.n_segments, np.int64)
    return Image(image.directory, image.layout, zeros, zeros)


def _with_missing(array: ManifestArray, images: Sequence[Image | None]) -> ManifestArray:
    """Mark the chunks of images in other files as ABSENT."""
    manifest = array.in_memory()
    entries = manifest.entries.copy()
    flat = entries.reshape(len(images), -1)
    flat["location"][[image is None for image in images]] = ABSENT
    return replace(array, manifest=replace(manifest, entries=entries))

"""TIFF files of many kinds, written by tifffile and rasterio."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import rasterio
import tifffile
from rasterio.transform import from_origin

type Maker = Callable[[Path], Path]

TRANSFORM = from_origin(500000, 5000000, 30, 30)


def ramp(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Smooth numbers that are all different along rows and columns."""
    kind = np.dtype(dtype)
    values = np.add.outer(3 * np.arange(shape[0]), np.arange(shape[1])) % 251
    if len(shape) == 3:
        values = values[..., None] + np.arange(shape[2])
    return (values * (0.37 if kind.kind in "fc" else 1)).astype(kind)


def tiff(array: np.ndarray, **options) -> Maker:
    """A file of tifffile."""

    def make(path: Path) -> Path:
        tifffile.imwrite(path, array, **{"metadata": None, **options})
        return path

    return make


def gdal(array: np.ndarray, *, overviews: tuple[int, ...] = (), mask: bool = False, **options) -> Maker:
    """A file of GDAL."""
    tags, scales, offsets = options.pop("tags", {}), options.pop("scales", None), options.pop("offsets", None)
    names, units = options.pop("descriptions", None), options.pop("units", None)
    array = array if array.ndim == 3 else array[None]
    options = {"driver": "GTiff", "crs": "EPSG:32633", "transform": TRANSFORM, **options}

    def make(path: Path) -> Path:
        size = {"count": array.shape[0], "height": array.shape[1], "width": array.shape[2], "dtype": array.dtype}
        with (
            warnings.catch_warnings(),
            rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
            rasterio.open(path, "w", **size, **options) as file,
        ):
            warnings.simplefilter("ignore")
            file.write(array)
            file.update_tags(**tags)
            for name, values in (("scales", scales), ("offsets", offsets), ("descriptions", names), ("units", units)):
                if values is not None:
                    setattr(file, name, values)
            if mask:
                file.write_mask(array[0] > 50)
            if overviews:
                file.build_overviews(overviews)
        return path

    return make


GRAY, RGB = ramp((100, 130), "u2"), ramp((100, 130, 3), "u1")
TILE, TILES = (32, 48), {"tiled": True, "blockxsize": 64, "blockysize": 64}
COMPRESSIONS = (None, "zlib", "lzw", "zstd", "packbits", "lzma", "lerc", "jpeg", "jpeg2000", "webp", "jpegxl")
PREDICTORS = tuple((2, x) for x in ("u1", "u2", "i4", "u8")) + tuple((3, x) for x in ("f2", "f4", "f8"))
DTYPES = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16", "?")


def combinations() -> Iterator[tuple[str, Maker]]:
    """Files of one image: compressions, predictors, dtypes, layouts, byte orders and edges."""
    yield from _of_compressions()
    for predictor, dtype in PREDICTORS:
        options = {"compression": "zlib", "predictor": predictor}
        name = f"predictor{predictor}_{dtype}"
        yield f"{name}_tiles", tiff(ramp((100, 130), dtype), tile=TILE, **options)
        yield f"{name}_strips", tiff(ramp((100, 130), dtype), rowsperstrip=30, **options)
        yield f"{name}_big", tiff(ramp((100, 130), dtype), tile=TILE, byteorder=">", **options)
        pixels = {"photometric": "rgb", "planarconfig": "contig"}
        yield f"{name}_rgb", tiff(ramp((100, 130, 3), dtype), tile=TILE, **pixels, **options)
        yield f"{name}_rgb_big", tiff(ramp((100, 130, 3), dtype), tile=TILE, byteorder=">", **pixels, **options)
    for order in "<>":
        options = {"compression": "zlib", "predictor": 3, "byteorder": order}
        yield f"predictor3_complex_{order}", tiff(ramp((100, 130), "c8"), tile=TILE, **options)
    for dtype in DTYPES:
        yield f"plain_{dtype}", tiff(ramp((100, 130), dtype), tile=TILE)
        yield f"plain_big_{dtype}", tiff(ramp((100, 130), dtype), rowsperstrip=7, byteorder=">")
        yield f"zlib_{dtype}", tiff(ramp((100, 130), dtype), tile=TILE, compression="zlib")
    yield from _of_layouts()
    yield from _of_gdal()


def _of_compressions() -> Iterator[tuple[str, Maker]]:
    for compression in COMPRESSIONS:
        array: np.ndarray = {"jpeg": RGB[..., 0], "webp": RGB}.get(compression or "", GRAY)
        options: dict = {"compression": compression}
        if compression == "webp":
            options |= {"photometric": "rgb", "compressionargs": {"lossless": True}}
        yield f"{compression}_tiles", tiff(array, tile=TILE, **options)
        yield f"{compression}_strips", tiff(array, rowsperstrip=25, **options)
        yield f"{compression}_short_strip", tiff(array, rowsperstrip=30, **options)
        yield f"{compression}_one_strip", tiff(array, rowsperstrip=100, **options)
        if compression not in ("lerc", "jpeg2000"):  # which tifffile does not write so
            yield f"{compression}_big", tiff(array, tile=TILE, byteorder=">", **options)


def _of_layouts() -> Iterator[tuple[str, Maker]]:
    for layout, compression in itertools.product(("contig", "separate"), (None, "zlib", "lzw")):
        array = RGB if layout == "contig" else np.moveaxis(RGB, -1, 0).copy()
        options: dict = {"photometric": "rgb", "planarconfig": layout, "compression": compression}
        yield f"{layout}_{compression}_tiles", tiff(array, tile=TILE, **options)
        yield f"{layout}_{compression}_strips", tiff(array, rowsperstrip=30, **options)
    ycbcr = {"photometric": "ycbcr", "compression": "jpeg", "compressionargs": {"level": 90}}
    yield "ycbcr_tiles", tiff(ramp((128, 128, 3), "u1"), tile=(64, 64), **ycbcr)
    yield "ycbcr_strips", tiff(ramp((100, 130, 3), "u1"), rowsperstrip=32, **ycbcr)
    yield "bigtiff", tiff(GRAY, bigtiff=True, tile=TILE, compression="zlib")
    yield "bigtiff_big", tiff(GRAY, bigtiff=True, rowsperstrip=30, byteorder=">")
    yield "one_row_strips", tiff(GRAY, rowsperstrip=1)
    yield "one_row_strips_zlib", tiff(GRAY, rowsperstrip=1, compression="zlib")
    yield "one_pixel", tiff(GRAY[:1, :1])
    yield "extra_sample", tiff(ramp((100, 130, 4), "u1"), photometric="rgb", extrasamples=["unassalpha"], tile=TILE)


def _of_gdal() -> Iterator[tuple[str, Maker]]:
    floats = ramp((300, 260), "f4")
    floats[:3, :3] = -9999
    bands = np.stack([GRAY, GRAY + 1, GRAY + 2, GRAY + 3])
    yield "gdal_tiles", gdal(GRAY, **TILES, compress="deflate", predictor=2, nodata=5)
    yield "gdal_predictor2_floats", gdal(floats, **TILES, compress="deflate", predictor=2)
    yield "gdal_predictor2_big", gdal(floats, **TILES, compress="deflate", predictor=2, ENDIANNESS="BIG")
    for order in ("LITTLE", "BIG"):
        options = {"compress": "deflate", "predictor": 2, "ENDIANNESS": order}
        yield f"gdal_predictor2_complex_{order}", gdal((floats * (1 + 0.5j)).astype("c8"), **TILES, **options)
    yield "gdal_jpeg_int8", gdal((GRAY % 100).astype("i1"), **TILES, compress="jpeg")
    yield (
        "gdal_jpeg_planes",
        gdal(np.stack([GRAY] * 3).astype("u1"), **TILES, compress="jpeg", photometric="RGB", interleave="band"),
    )
    three = np.stack([GRAY, GRAY[::-1], 0 * GRAY + 77]).astype("u1")
    yield "gdal_jpeg_no_colors", gdal(three, **TILES, compress="jpeg", photometric="MINISBLACK", interleave="pixel")
    yield "gdal_lerc_big", gdal(floats, **TILES, compress="lerc", ENDIANNESS="BIG")
    yield "gdal_predictor3", gdal(floats, **TILES, compress="lzw", predictor=3, nodata=float("nan"))
    scaled = {"scales": (0.1,), "offsets": (20.0,), "descriptions": ("temp",), "units": ("K",), "tags": {"TITLE": "x"}}
    yield "gdal_scale", gdal(ramp((100, 130), "i2"), **TILES, compress="deflate", nodata=-32768, **scaled)
    yield "gdal_pixels", gdal(bands, **TILES, interleave="pixel", compress="deflate", predictor=2, nodata=0)
    more = {"scales": (1.0, 2.0, 1.0, 1.0), "offsets": (0.0,) * 4, "descriptions": ("a", "b", "c", "")}
    yield "gdal_bands", gdal(bands, **TILES, interleave="band", compress="lzw", **more)
    yield "gdal_band_strips", gdal(bands[:3], interleave="band", compress="lzw", blockysize=17)
    sparse = np.zeros((300, 260), "u2")
    sparse[:64, :64] = 7
    yield "gdal_sparse", gdal(sparse, **TILES, compress="deflate", SPARSE_OK=True, nodata=0)
    yield "gdal_sparse_plain", gdal(sparse, **TILES, SPARSE_OK=True)
    degrees = {"crs": "EPSG:4326", "transform": from_origin(10, 50, 0.01, 0.01)}
    yield "gdal_point", gdal(floats, **degrees, tags={"AREA_OR_POINT": "Point"}, compress="deflate")
    yield "gdal_rotated", gdal(floats, transform=rasterio.Affine(30, 5, 500000, 4, -30, 5e6), compress="deflate")
    for name, text in (
        ("lcc", "+proj=lcc +lat_1=30 +lat_2=60 +lat_0=40 +lon_0=-100 +datum=WGS84"),
        ("laea", "+proj=laea +lat_0=52 +lon_0=10 +x_0=4321000 +y_0=3210000 +ellps=GRS80"),
        ("axes", "EPSG:3035"),
        ("ellipsoid", "EPSG:4979"),
        ("mercator", "+proj=merc +lat_ts=30 +datum=WGS84"),
        ("polar", "+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +datum=WGS84"),
        ("stereographic", "+proj=stere +lat_0=52 +lon_0=5"),
        ("oblique", "+proj=sterea +lat_0=52 +lon_0=5 +k=0.9999 +ellps=bessel"),
        ("cassini", "+proj=cass +lat_0=10"),
        ("equal_area", "+proj=cea +lat_ts=30"),
        ("robinson", "+proj=robin"),
        ("equidistant", "+proj=aeqd +lat_0=50 +lon_0=20"),
        ("conic", "+proj=lcc +lat_1=45 +lat_0=45 +lon_0=10 +k_0=0.9 +datum=WGS84"),
        ("plate", "+proj=eqc +lat_ts=20 +R=3396190"),
        ("meridian", "+proj=tmerc +lat_0=10 +lon_0=20 +pm=paris"),
        ("zone", "+proj=utm +zone=33 +south +ellps=intl"),
        ("feet", "+proj=tmerc +lat_0=10 +lon_0=20 +units=us-ft +datum=NAD83"),
        ("sphere", "+proj=longlat +R=6371000"),
        ("sinusoidal", "+proj=sinu +lon_0=0 +R=6371007.181 +units=m"),
        ("transverse", "+proj=tmerc +lat_0=10 +lon_0=21 +k=0.9993 +x_0=500000 +y_0=0 +ellps=WGS84"),
    ):
        yield f"gdal_{name}", gdal(floats, crs=rasterio.crs.CRS.from_string(text), **TILES)
    yield "gdal_nowhere", gdal(floats, crs=None, transform=rasterio.Affine.identity())
    yield "gdal_ycbcr", gdal(np.stack([GRAY] * 3).astype("u1"), **TILES, compress="jpeg", photometric="ycbcr")
    yield "gdal_jpeg", gdal(GRAY.astype("u1"), **TILES, compress="jpeg")
    yield "gdal_webp", gdal(np.stack([GRAY] * 3).astype("u1"), **TILES, compress="webp", WEBP_LOSSLESS=True)
    for compression in ("lerc", "lerc_zstd", "lerc_deflate"):
        yield f"gdal_{compression}", gdal(floats, **TILES, compress=compression)
    holes = floats.copy()
    holes[40:60, 3:99] = np.nan
    others = holes + 1
    others[70:90] = np.nan
    yield "gdal_lerc_nan", gdal(holes, **TILES, compress="lerc")
    yield "gdal_lerc_nan_big", gdal(holes, compress="lerc_zstd", ENDIANNESS="BIG")
    yield "gdal_lerc_nan_pixels", gdal(np.stack([holes, holes + 1]), **TILES, compress="lerc", interleave="pixel")
    yield "gdal_lerc_nan_in_one", gdal(np.stack([holes, others, holes]), compress="lerc", interleave="pixel")
    opaque = np.stack([*[GRAY.astype("u1")] * 3, np.where(GRAY > 99, 255, 0).astype("u1")])
    yield "gdal_lerc_alpha", gdal(opaque, **TILES, compress="lerc", photometric="RGB", alpha="YES", interleave="pixel")
    yield "gdal_lzma", gdal(GRAY, **TILES, compress="lzma")
    for bits in (1, 2, 4, 7):
        yield f"gdal_bits{bits}", gdal((GRAY % 2**bits).astype("u1"), **TILES, nbits=bits, compress="deflate")
    yield "gdal_bits12", gdal(GRAY % 4096, **TILES, nbits=12)
    yield "gdal_bits24", gdal(GRAY.astype("u4") * 37, **TILES, nbits=24)
    yield "gdal_bits24_big", gdal(GRAY.astype("u4") * 37, **TILES, nbits=24, ENDIANNESS="BIG")
    yield "gdal_big", gdal(floats, **TILES, ENDIANNESS="BIG", compress="deflate", predictor=3)
    yield "gdal_ccitt", gdal((GRAY > 100).astype("u1"), nbits=1, compress="CCITTFAX4", photometric="MINISWHITE")
    yield "gdal_ccitt3", gdal((GRAY > 100).astype("u1"), nbits=1, compress="CCITTFAX3")
    yield "gdal_ccittrle", gdal((GRAY > 100).astype("u1"), nbits=1, compress="CCITTRLE")
    yield "gdal_float16", gdal(floats, **TILES, nbits=16, compress="deflate")
    yield "gdal_complex", gdal(floats.astype("c8"), **TILES, compress="deflate")
    yield "gdal_out_of_range", gdal(GRAY, compress="packbits")

"""Scenes along time, mosaics, other targets, remote files, and what is not installed."""

import json

import numpy as np
import pytest
import rasterio
import rioxarray
import tifffile
import xarray as xr
import zarr

import virtualstack as vs
from tests.data.files import overwrite
from tests.data.make_tiff import GRAY, RGB, TILE, TILES, gdal, ramp, tiff
from tests.data.processes import printed_values, run_python
from tests.formats.groups import stored_values
from tests.latency_server import LatencyServer
from virtualstack.errors import CombineError, UnsupportedFeatureError

pytestmark = pytest.mark.filterwarnings("ignore")  # of rioxarray and what it builds on


@pytest.mark.parametrize("pattern", [vs.FromName(r"_(\d{4}-\d\d-\d\d)"), vs.FromAttribute("ACQUIRED")])
def test_scenes_are_stacked_along_time(pattern, tmp_path):
    """Each with a compression, tiles and byte order of its own."""
    kinds = [
        {"compress": "deflate", "predictor": 2, **TILES},
        {"compress": "lzw"},
        {"compress": "zstd", "ENDIANNESS": "BIG", "tiled": True, "blockxsize": 32, "blockysize": 48},
        {},
    ]
    arrays = [GRAY + n for n in range(len(kinds))]
    for n, (array, options) in enumerate(zip(arrays, kinds, strict=True)):
        tags = {"ACQUIRED": f"2020-01-0{n + 1}"}
        gdal(array, nodata=0, tags=tags, **options)(tmp_path / f"s_2020-01-0{n + 1}.tif")
    cube = vs.open_virtual_mfdataset(str(tmp_path / "*.tif"), new_dim={"time": pattern})
    assert cube["band_data"].dims == ("time", "band", "y", "x")
    np.testing.assert_array_equal(stored_values(cube)[:, 0], arrays)
    assert [str(x)[:10] for x in cube["time"].values] == [f"2020-01-0{n}" for n in range(1, 5)]
    assert cube.virtual.open()["band_data"].rio.crs == rasterio.crs.CRS.from_epsg(32633)
    cube.virtual.to_vstack(tmp_path / "x.vstack")
    with xr.open_dataset(
        tmp_path / "x.vstack", engine="virtualstack", allow="file:///", mask_and_scale=False
    ) as stored:
        np.testing.assert_array_equal(stored["band_data"].values[:, 0], arrays)


def test_tiles_form_a_mosaic(tmp_path):
    """Of a size that tiles do not divide: edges overhang, in the middle of the mosaic too."""
    whole = ramp((200, 260), "u2")
    for row in range(2):
        for column in range(2):
            part = whole[row * 100 : row * 100 + 100, column * 130 : column * 130 + 130]
            transform = rasterio.Affine(30, 0, 5e5 + 3900 * column, 0, -30, 5e6 - 3000 * row)
            gdal(part, transform=transform, **TILES, compress="deflate")(tmp_path / f"{row}{column}.tif")
    mosaic = vs.open_virtual_mfdataset(str(tmp_path / "*.tif"))
    np.testing.assert_array_equal(stored_values(mosaic)[0], whole)
    np.testing.assert_array_equal(mosaic["x"], 5e5 + 15 + 30.0 * np.arange(260))
    np.testing.assert_array_equal(mosaic["y"], 5e6 - 15 - 30.0 * np.arange(200))
    (tmp_path / "11.tif").unlink()
    outer = vs.open_virtual_mfdataset(str(tmp_path / "*.tif"), join="outer")
    expected = whole.astype("f4")  # what is not there is missing
    expected[100:, 130:] = np.nan
    np.testing.assert_array_equal(stored_values(outer)[0], expected)


def test_scenes_that_scale_otherwise_do_not_join_silently(tmp_path):
    for n in range(2):
        gdal(GRAY.astype("i2"), scales=(0.5 + n,), offsets=(0.0,))(tmp_path / f"s{n}.tif")
    names, along = str(tmp_path / "*.tif"), {"n": vs.FromName(r"s(\d)")}
    with pytest.raises(CombineError, match="scale_factor"):
        vs.open_virtual_mfdataset(names, new_dim=along, unpack=False)
    by_default = vs.open_virtual_mfdataset(names, new_dim=along)
    assert "is packed differently in some files, and is unpacked" in by_default.virtual.report().to_string()
    for cube in (by_default, vs.open_virtual_mfdataset(names, new_dim=along, unpack=True)):
        np.testing.assert_allclose(cube.virtual.open()["band_data"][:, 0], [GRAY * 0.5, GRAY * 1.5])


@pytest.mark.parametrize("scales", [(1.0, 3.0), (2.0, 2.0), (1.0, 1.0)])
def test_bands_that_scale_otherwise_do_not_join_silently(scales, tmp_path):
    """Which a report notes of one file, too: no attribute of CF scales bands apart."""
    bands, names, time = np.stack([GRAY, GRAY]).astype("i2"), str(tmp_path / "*.tif"), {"n": vs.FromName(r"s(\d)")}
    for n, own in enumerate([(1.0, 2.0), scales]):
        gdal(bands, scales=own)(tmp_path / f"s{n}.tif")
    assert "scales of its bands: applied when xarray's engine 'virtualstack' decodes" in str(
        vs.open_virtual_dataset(tmp_path / "s0.tif").virtual.report().detail.tolist()
    )
    for unpack in (False, True, "differing"):
        with pytest.raises(CombineError, match=r"scale|dtype|gdal_decoding"):
            vs.open_virtual_mfdataset(names, new_dim=time, unpack=unpack)
    apart = vs.open_virtual_mfdataset(names, new_dim=time, reader=vs.readers.TIFF(band_as_variable=True), unpack=True)
    np.testing.assert_array_equal(apart.virtual.open()["band_2"], [GRAY * 2.0, GRAY * scales[1]])


def test_bands_that_scale_alike_join_with_what_is_stored(tmp_path):
    bands, scenes = np.stack([GRAY, GRAY]).astype("i2"), []
    for n, scales in enumerate([(1.0, 2.0), (1.0, 2.0), (1.0, 3.0)]):
        gdal(bands + n, scales=scales)(tmp_path / f"s{n}.tif")
        scenes.append(vs.open_virtual_dataset(tmp_path / f"s{n}.tif").drop_vars("spatial_ref").expand_dims(n=[n]))
    scenes[0].virtual.to_kerchunk(tmp_path / "a.json")
    stored = vs.open_virtual_dataset(tmp_path / "a.json")
    joined = xr.concat([stored, scenes[1]], "n").virtual.open(mask_and_scale=False)
    np.testing.assert_array_equal(joined["band_data"], [bands, bands + 1])
    with pytest.raises(CombineError, match="scales"):
        xr.concat([stored, scenes[2]], "n")


@pytest.mark.parametrize("join", [{"new_dim": {"n": vs.FromName(r"s(\d)")}}, {}], ids=["scenes", "tiles"])
@pytest.mark.parametrize("system", ["EPSG:32634", "+proj=utm +zone=33 +ellps=intl"])
def test_other_systems_do_not_join_silently(system, join, tmp_path):
    """What both have of attributes would be a system of neither; the transform may differ."""
    for n, own in enumerate(["EPSG:32633", system]):
        transform = rasterio.Affine(30, 0, 5e5 + (3900 * n if not join else 0), 0, -30, 5e6)
        gdal(GRAY, crs=own, transform=transform)(tmp_path / f"s{n}.tif")
    with pytest.raises(CombineError, match="attribute 'crs_wkt' of variable 'spatial_ref'"):
        vs.open_virtual_mfdataset(str(tmp_path / "*.tif"), **join)
    options = {"combine_options": {"combine_attrs": "override"}}
    joined = vs.open_virtual_mfdataset(str(tmp_path / "*.tif"), **join, **options)
    assert joined["spatial_ref"].attrs == vs.open_virtual_dataset(tmp_path / "s0.tif")["spatial_ref"].attrs


# -- other targets ----------------------------------------------------------------------------------------------

ELSEWHERE = {
    "zlib": (tiff(ramp((96, 128), "u2"), tile=(32, 64), compression="zlib"), ["zlib"]),
    "big": (tiff(ramp((96, 128), "u2"), tile=(32, 64), compression="zlib", byteorder=">"), ["zlib"]),
    "lzw": (tiff(ramp((96, 128), "u2"), tile=(32, 64), compression="lzw"), ["imagecodecs_lzw"]),
    "delta": (
        tiff(ramp((96, 128), "i4"), tile=(32, 64), compression="zlib", predictor=2),
        ["imagecodecs_delta", "zlib"],
    ),
    "floatpred": (
        tiff(ramp((96, 128), "f4"), tile=(32, 64), compression="lzw", predictor=3),
        ["imagecodecs_floatpred", "imagecodecs_lzw"],
    ),
    "packbits": (tiff(ramp((96, 128), "u1"), rowsperstrip=32, compression="packbits"), ["imagecodecs_packbits"]),
    "zstd": (tiff(ramp((96, 128), "u2"), rowsperstrip=32, compression="zstd"), ["zstd"]),
    "lzma": (tiff(ramp((96, 128), "u2"), rowsperstrip=32, compression="lzma"), ["lzma"]),
    "jpeg2000": (tiff(ramp((96, 128), "u2"), tile=(32, 64), compression="jpeg2000"), ["imagecodecs_jpeg2k"]),
    "short": (tiff(ramp((100, 128), "u2"), rowsperstrip=32, compression="zlib"), ["zlib"]),
    "strips": (tiff(ramp((100, 128), "u2"), rowsperstrip=30), []),
}


def test_kerchunk_references_have_the_names_of_others(tmp_path):
    """A process without virtualstack reads what kerchunk's usual packages decode; a short strip is inlined."""
    expected = {}
    for name, (make, ids) in ELSEWHERE.items():
        make(tmp_path / f"{name}.tif")
        vds = vs.open_virtual_dataset(tmp_path / f"{name}.tif")
        expected[name] = stored_values(vds)
        vds.virtual.to_kerchunk(tmp_path / f"{name}.json", inline_limit=0, rewrite="200%")
        written = json.loads(json.loads((tmp_path / f"{name}.json").read_text())["refs"]["band_data/.zarray"])
        assert [x["id"] for x in (*(written["filters"] or ()), written["compressor"]) if x] == ids
        np.testing.assert_array_equal(stored_values(vs.open_virtual_dataset(tmp_path / f"{name}.json")), expected[name])
    code = f"""
import sys
sys.modules["virtualstack"] = None
import fsspec, imagecodecs.numcodecs, zarr
imagecodecs.numcodecs.register_codecs(verbose=False)
for name in {list(ELSEWHERE)!r}:
    source = fsspec.filesystem("reference", fo={str(tmp_path)!r} + f"/{{name}}.json")
    values = zarr.open_group(source.get_mapper(""), mode="r", zarr_format=2)["band_data"][...]
    print("values", name, values.astype(values.dtype.newbyteorder("=")).tobytes().hex())
"""
    assert printed_values(code) == {name: values.tobytes().hex() for name, values in expected.items()}


def test_kerchunk_names_our_codec_where_there_is_no_other(tmp_path):
    path = gdal(GRAY.astype("u1"), **TILES, compress="jpeg")(tmp_path / "a.tif")
    vds = vs.open_virtual_dataset(path)
    vds.virtual.to_kerchunk(tmp_path / "x.json", inline_limit=0)
    text = json.loads((tmp_path / "x.json").read_text())["refs"]["band_data/.zarray"]
    assert json.loads(text)["filters"][0]["id"] == "virtualstack.tiff"
    np.testing.assert_array_equal(stored_values(vs.open_virtual_dataset(tmp_path / "x.json")), stored_values(vds))
    pytest.importorskip("kerchunk")
    with xr.open_dataset(str(tmp_path / "x.json"), engine="kerchunk") as back:
        np.testing.assert_array_equal(back["band_data"], stored_values(vds))


def test_pixels_are_exported_in_their_order(tmp_path):
    """Kerchunk has no codec that turns axes."""
    path = tiff(RGB[:96], tile=(32, 16), photometric="rgb", compression="zlib", predictor=2)(tmp_path / "a.tif")
    vds = vs.open_virtual_dataset(path)
    with pytest.raises(vs.errors.WriterError, match="band_data"):
        vds.virtual.to_kerchunk(None, inline_limit=0)
    vds.transpose("y", "x", "band").virtual.to_kerchunk(tmp_path / "x.json", inline_limit=0)
    np.testing.assert_array_equal(stored_values(vs.open_virtual_dataset(tmp_path / "x.json")), RGB[:96])


def test_zarr_reads_all_through_the_store(tmp_path):
    path = tiff(RGB, tile=TILE, photometric="rgb", compression="lzw", predictor=2)(tmp_path / "a.tif")
    group = zarr.open_group(vs.ManifestStore(vs.scan([path])[0]), mode="r")
    np.testing.assert_array_equal(np.moveaxis(group["band_data"][...], 0, -1), RGB)


# -- remote files -----------------------------------------------------------------------------------------------


def test_headers_and_indexes_alone_are_fetched(tmp_path):
    """Directories that are near each other come together, and those that are equally far apart side by side."""
    random = np.random.default_rng(0).integers(0, 255, (2048, 1024), "u1")
    tiff(random, tile=(128, 128), compression="zlib")(tmp_path / "large.tif")
    for name, page in (("near", random[:64, :64]), ("far", random[:256])):
        with tifffile.TiffWriter(tmp_path / f"{name}.tif") as file:
            for n in range(400 if name == "near" else 60):
                file.write(page + np.uint8(n % 256), metadata=None, contiguous=False)
    with LatencyServer(tmp_path, latency=0.05) as server:
        vds = vs.open_virtual_dataset(server.url("large.tif"))
        traffic = server.traffic()
        assert traffic.n_requests <= 4
        assert traffic.n_bytes < 300_000
        np.testing.assert_array_equal(stored_values(vds), random[None])
        server.traffic()
        vds = vs.open_virtual_dataset(server.url("near.tif"))
        assert server.traffic().n_requests <= 12
        vds = vs.open_virtual_dataset(server.url("far.tif"))
        traffic = server.traffic()
        assert traffic.depth <= 16
        assert traffic.n_bytes < 1 << 20
        assert stored_values(vds.isel(page=[59]), "image")[0, 3, 3] == random[3, 3] + np.uint8(59)


# -- what is not installed --------------------------------------------------------------------------------------


def test_rasterio_pyproj_and_tifffile_are_not_needed(tmp_path):
    """The CRS is a text then, which rioxarray reads; axes of OME need tifffile, and the error says so."""
    path, ome = tmp_path / "a.tif", tmp_path / "b.tif"
    gdal(ramp((100, 130), "f4"), **TILES, compress="lzw", predictor=3)(path)
    tifffile.imwrite(ome, np.stack([GRAY] * 2), ome=True, metadata={"axes": "ZYX"})
    code = f"""
import sys
for name in ("rasterio", "pyproj", "tifffile", "rioxarray"):
    sys.modules[name] = None
import virtualstack as vs
vds = vs.open_virtual_dataset({str(path)!r})
print(vds.spatial_ref.attrs["spatial_ref"], float(vds.virtual.open()["band_data"].sum()))
try:
    vs.open_virtual_dataset({str(ome)!r})
except vs.errors.MissingDependencyError as error:
    print(error)
"""
    total = float(xr.DataArray(ramp((100, 130), "f4")).sum())
    assert run_python(code).splitlines() == [
        f"EPSG:32633 {total}",
        "reading the axes of a TIFF file needs an optional dependency; "
        "install it with: pip install 'virtualstack[tiff]'",
    ]
    found = vs.open_virtual_dataset(path).virtual.open()["band_data"]
    assert found.rio.crs == rioxarray.open_rasterio(path).rio.crs
    del found["spatial_ref"].attrs["crs_wkt"]
    found["spatial_ref"].attrs["spatial_ref"] = "EPSG:32633"
    assert found.rio.crs == rasterio.crs.CRS.from_epsg(32633)


def test_coordinates_of_rotated_images_are_left_out_where_they_are_large(tmp_path):
    path = gdal(ramp((300, 260), "u1"), transform=rasterio.Affine(30, 5, 5e5, 4, -30, 5e6))(tmp_path / "a.tif")
    assert set(vs.open_virtual_dataset(path).coords) == {"band", "xc", "yc", "spatial_ref"}
    vds = vs.open_virtual_dataset(path, inline_limit="100 kB")
    assert set(vds.coords) == {"band", "spatial_ref"}
    assert "'xc' and 'yc' of 300 x 260 pixels are left out" in vds.virtual.report().to_string()


def test_refusals_can_be_skipped(tmp_path):
    path = tiff(GRAY, tile=TILE)(tmp_path / "a.tif")
    tag = b"\x03\x01\x03\x00\x01\x00\x00\x00"  # 259
    overwrite(path, path.read_bytes().index(tag + b"\x01\x00") + 8, b"\x09")
    with pytest.raises(UnsupportedFeatureError, match="compression 9"):
        vs.open_virtual_dataset(path)
    assert not vs.open_virtual_dataset(path, unsupported="skip").data_vars

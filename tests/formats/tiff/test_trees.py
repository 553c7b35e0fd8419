"""Overviews, masks, stacks, series and axes of OME, ImageJ and tifffile."""

import math

import numpy as np
import pytest
import rasterio
import rioxarray
import tifffile

import virtualstack as vs
from tests.data.files import replace_once
from tests.data.make_tiff import GRAY, RGB, TILE, TILES, gdal, ramp, tiff
from virtualstack.errors import UnsupportedFeatureError

pytestmark = pytest.mark.filterwarnings("ignore")  # of rioxarray and what it builds on


def opened(path, **options):
    return vs.open_virtual_datatree(path, **options).virtual.open(mask_and_scale=False)


def test_overviews_and_masks_are_groups(tmp_path):
    """With coordinates of their own, those of rioxarray; masks stand beside their images."""
    options = {"compress": "deflate", "nodata": -1, "overviews": (2, 4), "mask": True}
    path = gdal(ramp((300, 260), "f4"), **TILES, **options)(tmp_path / "a.tif")
    tree = opened(path)
    assert tree.groups == ("/", "/0", "/1", "/2")
    with tifffile.TiffFile(path) as file:
        pages = [page.asarray() for page in file.pages]
    assert len(pages) == 6
    for n in range(3):
        expected = rioxarray.open_rasterio(path, **({"overview_level": n - 1} if n else {}))
        found = tree[str(n)]
        np.testing.assert_array_equal(found["band_data"], expected)
        for name in "xy":
            assert found[name].values.tobytes() == expected[name].values.tobytes()
        assert found["band_data"].rio.transform() == expected.rio.transform()
        assert found["band_data"].attrs["nodata"] == -1  # the mask decides
        mask = next(page for page in pages if page.shape == found["mask"].shape and page.dtype == bool)
        np.testing.assert_array_equal(found["mask"], mask)
    (scales,) = tree.attrs["multiscales"]
    assert [x["path"] for x in scales["datasets"]] == [f"{n}/band_data" for n in range(3)]
    assert scales["datasets"][2]["coordinateTransformations"] == [{"type": "scale", "scale": [1.0, 4.0, 4.0]}]
    assert set(vs.open_virtual_dataset(path).data_vars) == {"band_data", "mask"}
    one = vs.open_virtual_dataset(path, group="1")
    np.testing.assert_array_equal(one.virtual.open(mask_and_scale=False)["band_data"], tree["1"]["band_data"])


def test_a_cog_is_a_tree(tmp_path):
    path = tmp_path / "a.tif"
    array = ramp((300, 260), "f4")
    size = {"count": 1, "height": 300, "width": 260, "dtype": "float32", "crs": "EPSG:32633"}
    place = rasterio.Affine(30, 0, 5e5, 0, -30, 5e6)
    with rasterio.open(path, "w", driver="COG", blocksize=128, compress="zstd", transform=place, **size) as file:
        file.write(array, 1)
    tree = opened(path)
    np.testing.assert_array_equal(tree["0"]["band_data"][0], array)
    with tifffile.TiffFile(path) as file:
        np.testing.assert_array_equal(tree["1"]["band_data"][0], file.pages[1].asarray())


def test_one_image_is_the_root(tmp_path):
    path = tiff(GRAY)(tmp_path / "a.tif")
    assert opened(path).groups == ("/",)
    np.testing.assert_array_equal(opened(path)["band_data"][0], GRAY)


def test_images_of_other_shapes_are_groups(tmp_path):
    """As a dataset there is the first one, and the others are noted."""
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        for array in (GRAY, GRAY[:50], GRAY + 1):
            file.write(array, metadata=None, contiguous=False)
    tree = opened(path)
    assert tree.groups == ("/", "/image_0", "/image_1")
    np.testing.assert_array_equal(tree["image_0"]["image"], [GRAY, GRAY + 1])
    np.testing.assert_array_equal(tree["image_1"]["band_data"][0], GRAY[:50])
    vds = vs.open_virtual_dataset(path)
    assert vds["image"].sizes["page"] == 2
    assert (
        "1 more image, which has another shape or another form of storage, is left out"
        in vds.virtual.report().to_string()
    )


@pytest.mark.parametrize("tag", ["place", "scale"])
def test_images_at_other_places_or_that_scale_otherwise_are_no_stack(tag, tmp_path):
    """One variable has one transform, one scale and one offset."""
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        for n in (0, 0, 1):
            if tag == "place":
                own = [(33550, 12, 3, (1.0, 1.0, 0.0), True), (33922, 12, 6, (0.0, 0.0, 0.0, 9.0 + n, 5.0, 0.0), True)]
            else:
                text = f'<GDALMetadata><Item name="SCALE" sample="0" role="scale">{1 + n}.5</Item></GDALMetadata>'
                own = [(42112, 2, 0, text, True)]
            file.write(GRAY + n, metadata=None, contiguous=False, extratags=own)
    tree = vs.open_virtual_datatree(path)
    assert [
        node["image" if n == 0 else "band_data"].sizes.get("page") for n, node in enumerate(tree.children.values())
    ] == [2, None]
    if tag == "place":
        assert [float(node["x"][0]) for node in tree.children.values()] == [9.5, 10.5]
    else:
        found = [node["image" if n == 0 else "band_data"] for n, node in enumerate(tree.children.values())]
        assert [x.attrs["scale_factor"] for x in found] == [1.5, 2.5]


def test_directories_below_others_are_overviews(tmp_path):
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(ramp((200, 260), "u2"), subifds=2, tile=TILE, compression="zlib", metadata=None)
        file.write(GRAY, subfiletype=1, tile=TILE, compression="zlib")
        file.write(GRAY[:50, :65], subfiletype=1, tile=TILE, compression="zlib")
    tree = opened(path)
    assert tree.groups == ("/", "/0", "/1", "/2")
    np.testing.assert_array_equal(tree["2"]["band_data"][0], GRAY[:50, :65])


@pytest.mark.parametrize("options", [{}, {"compression": "zlib", "tile": TILE}, {"bigtiff": True, "byteorder": ">"}])
def test_ome_has_five_axes(options, tmp_path):
    """With names of channels and physical sizes."""
    array = np.stack([GRAY + n for n in range(12)]).reshape(2, 3, 2, 100, 130)
    metadata = {
        "axes": "TCZYX",
        "Channel": {"Name": ["red", "green", "blue"]},
        "PhysicalSizeX": 0.5,
        "PhysicalSizeXUnit": "µm",
        "PhysicalSizeZ": 2.0,
        "TimeIncrement": 0.1,
    }
    path = tiff(array, metadata=metadata, ome=True, **options)(tmp_path / "a.ome.tif")
    vds = vs.open_virtual_dataset(path)
    found = vds.virtual.open()["image"]
    assert found.dims == ("t", "c", "z", "y", "x")
    np.testing.assert_array_equal(found, array)
    assert found["c"].values.tolist() == ["red", "green", "blue"]
    np.testing.assert_array_equal(found["x"], np.arange(130) * 0.5)
    assert found["x"].attrs == {"unit": "µm"}
    np.testing.assert_array_equal(found["z"], [0, 2])
    np.testing.assert_array_equal(found["t"], [0, 0.1])
    assert "y" not in found.coords


@pytest.mark.parametrize(("axes", "n"), [("YX", ()), ("ZYX", (3,)), ("CZYX", (3, 2)), ("TYX", (4,))])
def test_axes_of_length_one_are_left_out(axes, n, tmp_path):
    """As by tifffile; the name of one channel is a scalar."""
    array = np.stack([GRAY + k for k in range(math.prod(n))]).reshape(*n, 100, 130)
    names = {} if "C" in axes else {"Channel": {"Name": "red"}}
    path = tiff(array, metadata={"axes": axes, **names}, ome=True)(tmp_path / "a.ome.tif")
    found = vs.open_virtual_dataset(path).virtual.open()["image"]
    assert found.dims == tuple(axes.lower())
    np.testing.assert_array_equal(found, array)
    assert names == {} or found["c"].item() == "red"


def test_axes_of_ome_are_in_one_order(tmp_path):
    array = np.stack([GRAY + n for n in range(24)]).reshape(2, 3, 4, 100, 130)
    path = tiff(array, metadata={"axes": "CZTYX"}, ome=True)(tmp_path / "a.ome.tif")
    found = vs.open_virtual_dataset(path).virtual.open()["image"]
    assert found.dims == ("t", "c", "z", "y", "x")
    np.testing.assert_array_equal(found, array.transpose(2, 0, 1, 3, 4))


def test_pyramids_of_ome_are_groups(tmp_path):
    """Samples that stand together are behind the columns."""
    path = tmp_path / "a.ome.tif"
    levels = [np.stack([ramp((200 >> n, 260 >> n, 3), "u1") + k for k in range(2)]) for n in range(3)]
    with tifffile.TiffWriter(path, bigtiff=True, ome=True) as file:
        options = {"tile": TILE, "compression": "zlib", "photometric": "rgb"}
        file.write(
            levels[0], subifds=2, metadata={"axes": "ZYXS", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.25}, **options
        )
        for level in levels[1:]:
            file.write(level, subfiletype=1, **options)
    tree = opened(path)
    assert tree.groups == ("/", "/0", "/1", "/2")
    for n, level in enumerate(levels):
        found = tree[str(n)]["image"]
        assert found.dims == ("z", "y", "x", "band")
        np.testing.assert_array_equal(found, level)
        np.testing.assert_array_equal(found["x"], np.arange(260 >> n) * 0.5 * 2**n)


def test_several_images_of_ome_are_groups(tmp_path):
    path = tmp_path / "a.ome.tif"
    with tifffile.TiffWriter(path, ome=True) as file:
        file.write(GRAY, metadata={"axes": "YX", "Name": "first"})
        file.write(np.stack([RGB[..., 0]] * 4), metadata={"axes": "ZYX", "Name": "second"}, photometric="minisblack")
    tree = opened(path)
    assert tree.groups == ("/", "/image_0", "/image_1")
    np.testing.assert_array_equal(tree["image_1"]["image"].squeeze(), np.stack([RGB[..., 0]] * 4))


def test_planes_in_other_files_are_missing(tmp_path):
    """They read as nodata, and raise on request."""
    options = {"ome": True, "contiguous": False, "compression": "zlib"}
    path = tiff(np.stack([GRAY, GRAY + 1]), metadata={"axes": "ZYX"}, **options)(tmp_path / "a.ome.tif")
    replace_once(path, b'SizeZ="2"', b'SizeZ="3"')
    vds = vs.open_virtual_dataset(path)
    found = vds.virtual.open()["image"].values.squeeze()
    np.testing.assert_array_equal(found, [GRAY, GRAY + 1, np.zeros_like(GRAY)])
    with pytest.raises(vs.errors.StorageError, match=r"ABSENT"):
        vds.virtual.open(absent="raise").load()


PIXELS = (
    '<Image ID="Image:0"><Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="130" SizeY="100" SizeC="1" '
    'SizeZ="2" SizeT="2"><Channel ID="Channel:0:0"/>{}</Pixels></Image>'
)
PLANE = '<TiffData IFD="{1}" FirstT="{0}" FirstZ="{1}"><UUID FileName="m{0}.ome.tif">urn:uuid:{0}</UUID></TiffData>'
OTHERS = {
    "describes planes in other files": PIXELS.format("".join(PLANE.format(t, z) for t in range(2) for z in range(2))),
    "another file, 'c.companion.ome'": '<BinaryOnly MetadataFile="c.companion.ome" UUID="urn:uuid:9"/>',
}


@pytest.mark.parametrize(("note", "xml"), OTHERS.items(), ids=["planes", "XML"])
def test_parts_of_ome_in_other_files_are_noted(note, xml, tmp_path):
    path, array = tmp_path / "m1.ome.tif", np.stack([GRAY, GRAY + 1])
    namespace = "http://www.openmicroscopy.org/Schemas/OME/2016-06"
    text = f'<?xml version="1.0"?><OME xmlns="{namespace}" UUID="urn:uuid:1">{xml}</OME>'
    tifffile.imwrite(path, array, description=text, metadata=None, photometric="minisblack")
    vds = vs.open_virtual_dataset(path)
    np.testing.assert_array_equal(vds.virtual.open()["image"], array)
    assert note in vds.virtual.report().detail.iloc[-1]


@pytest.mark.parametrize("axes", ["ZCYX", "TZCYX"])
def test_imagej_stacks_have_their_axes(axes, tmp_path):
    """They have one directory, and all planes one after another."""
    shape = (3, 2, 100, 130) if axes == "ZCYX" else (2, 3, 2, 100, 130)
    array = np.arange(np.prod(shape), dtype="u2").reshape(shape)
    path = tiff(array, imagej=True, metadata={"axes": axes})(tmp_path / "a.tif")
    found = vs.open_virtual_dataset(path).virtual.open()["image"]
    assert found.dims == tuple(axes.lower())
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("options", [{}, {"compression": "zlib"}, {"tile": TILE}, {"truncate": True}])
def test_arrays_of_tifffile_have_their_axes(options, tmp_path):
    array = np.stack([GRAY + n for n in range(6)]).reshape(2, 3, 100, 130)
    path = tiff(array, photometric="minisblack", metadata={"axes": "TZYX"}, **options)(tmp_path / "a.tif")
    found = vs.open_virtual_dataset(path).virtual.open()["image"]
    np.testing.assert_array_equal(found, array)
    assert found.dims == ("t", "z", "y", "x")


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("truncate", [False, True])
def test_arrays_of_tifffile_may_be_planes_of_one_image(n, truncate, tmp_path):
    """As three or four images without a photometric are written: the axis has a name, but is one of samples."""
    array = np.stack([GRAY + i for i in range(n)])
    path = tiff(array, metadata={"axes": "ZYX"}, truncate=truncate)(tmp_path / "a.tif")
    found = vs.open_virtual_dataset(path).virtual.open()["band_data"]
    assert found.dims == ("band", "y", "x")
    np.testing.assert_array_equal(found, array)


def test_hidden_images_with_planes_of_their_own_are_refused(tmp_path):
    """Whatever follows them in the file is not taken for them, and they are not left out."""
    array = np.stack([GRAY + i for i in range(6)]).reshape(2, 3, *GRAY.shape)
    path = tiff(array, metadata={"axes": "TCYX"}, truncate=True)(tmp_path / "a.tif")
    tifffile.imwrite(path, np.zeros((99, 999), "u2"), append=True)
    with pytest.raises(vs.errors.UnsupportedFeatureError, match=r"which has some of these"):
        vs.open_virtual_dataset(path)
    tifffile.imwrite(path, array[0], metadata={"axes": "CYX"})
    tifffile.imwrite(path, array[0, :, :50], photometric="minisblack", append=True, truncate=True)
    with pytest.raises(vs.errors.UnsupportedFeatureError, match=r"have no directories"):
        vs.open_virtual_dataset(path)


def test_microscopes_with_hidden_planes_are_refused(tmp_path):
    path = tiff(GRAY, extratags=[(34412, 1, 4, b"abcd", True)])(tmp_path / "a.tif")
    with pytest.raises(UnsupportedFeatureError, match=r"a\.tif' is LSM \(tag 34412\).*Write it as OME-TIFF"):
        vs.open_virtual_dataset(path)

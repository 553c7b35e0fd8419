"""Damaged and hostile files: typed errors, little memory, no hang."""

import struct
import time
import zlib

import numpy as np
import pytest
import tifffile

import virtualstack as vs
from tests.data.files import file_of, overwrite
from tests.data.make_tiff import GRAY, RGB, TILE, TILES, gdal, tiff
from tests.data.processes import run_python
from virtualstack.errors import MalformedFileError, StorageError, UnsupportedFeatureError, VirtualStackError

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


def directory(*tags, following=0, at=8):
    """One directory of a little-endian file, with tags of one number each, behind the header."""
    entries = b"".join(struct.pack("<HHII", code, kind, count, value) for code, kind, count, value in sorted(tags))
    head = b"II*\0" + at.to_bytes(4, "little")
    return head + struct.pack("<H", len(tags)) + entries + following.to_bytes(4, "little")


def image(*more, height=1, width=1, following=0):
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: height * width}
    rows = {code: (code, 4, 1, value) for code, value in tags.items()} | {row[0]: row for row in more}
    return directory(*rows.values(), following=following)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"II*\0", "no TIFF header"),
        (b"II*\0\0\0\0\0", "no image"),
        (b"II*\0\xff\xff\xff\x7f", "directory 0 begins at byte 2147483647 of 8"),
        (b"II+\0\x04\0\0\0" + bytes(8), "offsets are not of 8 bytes"),
        (b"II*\0\x08\0\0\0\xff\xff", "directory 0 has 65535 tags"),
        (b"II*\0\x08\0\0\0\x05\0" + bytes(20), "directory 0"),
        (image((273, 4, 1 << 30, 8), height=4), "tag 273 of directory 0 has 1073741824 values"),
        (image((273, 4, 0xFFFFFFFF, 8), height=4), "tag 273"),
        (image((347, 7, 1 << 28, 8)), "tag 347 of directory 0 has 268435456 bytes"),
        (image((278, 4, 1, 1), height=1 << 20), "1048576 strips and tiles in so few bytes"),
        (image(height=1 << 16, width=1 << 15), "strip or tile 0 has"),
        (image(width=0), "the size is 1 x 0 x 1"),
        (image((322, 4, 1, 0), (323, 4, 1, 0)), "a strip or tile is of 0 x 0"),
        (image((322, 4, 1, 1 << 16), (323, 4, 1, 1 << 16)), "a tile is of 65536 x 65536, the image of 1 x 1"),
        (image((273, 4, 1, 0xFFFFFFF0)), "strip or tile 0 has 1 byte from byte 4294967280"),
        (image((258, 12, 1, 8)), "tag 258|not a whole number"),
        (image((258, 99, 1, 8)), "tag 258 of directory 0 has type 99"),
    ],
)
def test_what_contradicts_itself_is_malformed(data, message, tmp_path):
    path = file_of(tmp_path / "a.tif", data)
    with pytest.raises(MalformedFileError, match=rf"a\.tif' is not a whole TIFF file: .*({message})"):
        vs.open_virtual_dataset(path)


@pytest.mark.parametrize("damage", ["next", "loop", "tags", "offsets"])
def test_a_damaged_directory_leaves_the_images_before_it(damage, tmp_path):
    """With a warning and a note; the values of the others are those of tifffile."""
    path = tmp_path / "a.tif"
    pages = np.arange(4 * 30 * 40, dtype="u2").reshape(4, 30, 40)
    with tifffile.TiffWriter(path) as file:
        for page in pages:
            file.write(page, contiguous=False, metadata=None)
    with tifffile.TiffFile(path) as file:
        second, third = file.pages[1], file.pages[2]
        offset = third.tags["StripOffsets"].offset + 8
        after_second = second.offset + 2 + 12 * len(second.tags)
        third_at, first_at = third.offset, file.pages[0].offset
    at, value = {
        "next": (after_second, 1 << 30),
        "loop": (after_second, first_at),
        "tags": (third_at, 0xFFFF),
        "offsets": (offset, 0x7FFFFFFF),
    }[damage]
    data = bytearray(path.read_bytes())
    data[at : at + (2 if damage == "tags" else 4)] = value.to_bytes(2 if damage == "tags" else 4, "little")
    path.write_bytes(data)
    with pytest.warns(UserWarning, match="image 2 and those after it are left out"):
        vds = vs.open_virtual_dataset(path)
    np.testing.assert_array_equal(vds.virtual.open()["image"].values, pages[:2])
    assert "image 2 and those after it are left out" in vds.virtual.report().to_string()


def test_a_damaged_directory_behind_an_image_that_tifffile_describes(tmp_path):
    """Its axes are those of all images, which nobody can read; the first one is there, as with GDAL."""
    path, page = tmp_path / "a.tif", np.arange(64, dtype="u1").reshape(8, 8)
    with tifffile.TiffWriter(path) as file:
        file.write(page)
        file.write(page)
    with tifffile.TiffFile(path) as file:
        overwrite(path, file.pages[1].offset, b"\0\0")
    with pytest.warns(UserWarning, match="image 1 and those after it are left out"):
        vds = vs.open_virtual_dataset(path)
    np.testing.assert_array_equal(vds.virtual.open()["band_data"][0].values, page)


def test_directories_that_overlap_end_soon(tmp_path):
    """Each byte begins a directory of thousands of tags, with the next byte as the one that follows."""
    n = 1 << 20
    data = np.zeros(n, np.uint8)
    data[:8] = np.frombuffer(b"II*\0\x08\0\0\0", np.uint8)
    data[8::2] = 0x10  # counts of 0x1000 or 0x0010 everywhere
    begin = time.process_time()
    with pytest.raises(VirtualStackError):
        vs.open_virtual_dataset(file_of(tmp_path / "a.tif", data.tobytes()))
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    "text",
    [
        "ImageJ=1.11a\nimages=4000000000\nslices=4000000000\n",
        '{"shape": [4000000000, 1, 1]}',
        '{"shape": ["x"]}',
        "<OME><Image><Pixels SizeX='1' SizeY='1' SizeZ='99999999' SizeC='1' SizeT='99' Type='uint8'/></Image></OME>",
        "<OME><Image><Pixels SizeZ='1000' /></Image></OME>",
        '<!DOCTYPE a [<!ENTITY b "cccccccc">]><OME>&b;</OME>',
        "<OME>",
    ],
)
def test_descriptions_that_lie_are_no_bombs(text, tmp_path):
    """A typed error, or the one image that is there."""
    path = tiff(GRAY, description=text)(tmp_path / "a.tif")
    try:
        vds = vs.open_virtual_dataset(path)
    except (UnsupportedFeatureError, MalformedFileError) as error:
        assert "a.tif" in str(error)
    else:
        assert sum(array.size for array in vds.data_vars.values()) == GRAY.size


def chunk_of(path):
    with tifffile.TiffFile(path) as file:
        return file.pages[0].dataoffsets[0], file.pages[0].databytecounts[0]


@pytest.mark.parametrize(
    "compression", ["zlib", "lzw", "zstd", "lzma", "packbits", "jpeg", "jpeg2000", "webp", "lerc", "jpegxl", "png"]
)
def test_bytes_that_changed_are_errors_or_values(compression, tmp_path):
    """Never a crash, never more memory than a chunk has."""
    rgb = compression in ("jpeg", "webp", "png")
    options = {"photometric": "rgb"} if rgb else {"predictor": 2} if compression in ("zlib", "lzma") else {}
    path = tiff(RGB if rgb else GRAY, compression=compression, tile=(64, 64), **options)(tmp_path / "a.tif")
    vds = vs.open_virtual_dataset(path)
    data, (offset, length) = path.read_bytes(), chunk_of(path)
    random = np.random.default_rng(0)
    n_errors = 0
    for n in range(20):
        changed = bytearray(data)
        for _ in range(1 + n % 4):
            changed[offset + int(random.integers(min(length, 64 if n % 2 else length)))] = int(random.integers(256))
        path.write_bytes(changed)
        try:
            vds.virtual.open(storage=None, mask_and_scale=False)["band_data"][:, :64, :64].load()
        except VirtualStackError as error:
            n_errors += 1
            assert "band_data" in str(error)
        path.write_bytes(data)
    assert n_errors or compression in ("packbits", "lzw", "jpeg", "jpeg2000", "lerc")


def test_a_bomb_is_no_bomb(tmp_path):
    """A tile that would inflate to 200 MiB."""
    path = tmp_path / "a.tif"
    stream = zlib.compressobj(1)
    bomb = b"".join(stream.compress(bytes(1 << 24)) for _ in range(12)) + stream.flush()
    tags = [(259, 3, 1, 8), (317, 3, 1, 2), (273, 4, 1, 200), (279, 4, 1, len(bomb))]
    path.write_bytes(image(*tags, height=4, width=4).ljust(200, b"\0") + bomb)
    code = f"""
import resource, virtualstack as vs
vds = vs.open_virtual_dataset({str(path)!r})
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    values = vds.virtual.open().load()
except vs.errors.ChunkDecodeError:
    pass
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80_000
"""
    run_python(code)


SEEDS = {
    "tiles": tiff(GRAY, tile=TILE, compression="zlib"),
    "strips": tiff(GRAY, rowsperstrip=30, byteorder=">"),
    "pages": tiff(np.stack([GRAY] * 4), photometric="minisblack", compression="zlib"),
    "bigtiff": tiff(RGB, bigtiff=True, tile=TILE, photometric="rgb", compression="lzw", predictor=2),
    "ome": tiff(np.stack([GRAY] * 4), ome=True, metadata={"axes": "ZYX"}),
    "imagej": tiff(np.stack([GRAY] * 4), imagej=True, metadata={"axes": "ZYX"}),
    "gdal": gdal(GRAY, **TILES, compress="deflate", nodata=3, overviews=(2,), scales=(2.0,)),
}


@pytest.mark.filterwarnings("ignore:image .* left out:UserWarning")
@pytest.mark.parametrize("name", SEEDS)
@pytest.mark.parametrize("n_rounds", [12, pytest.param(1500, marks=pytest.mark.apart)])
def test_files_with_changed_headers_are_errors_or_opened(name, n_rounds, tmp_path):
    """Bytes of directories, and of what they point to, are changed at random; nothing else than typed errors comes."""
    path = SEEDS[name](tmp_path / "a.tif")
    data = path.read_bytes()
    with tifffile.TiffFile(path) as file:
        places = [range(8)]
        for page in file.pages:
            page = page.aspage()
            places += [range(page.offset, min(page.offset + 260, len(data)))]
            places += [range(x.valueoffset, x.valueoffset + min(64, x.valuebytecount)) for x in page.tags]
    where = np.unique(np.concatenate([np.array(x) for x in places]))
    random = np.random.default_rng(len(name))
    for _ in range(n_rounds):
        changed = bytearray(data)
        for at in random.choice(where, random.integers(1, 4)):
            changed[at] = int(random.choice([0, 1, 2, 255, 128, int(random.integers(256))]))
        if random.integers(8) == 0:
            changed = changed[: int(random.integers(len(changed)))]
        path.write_bytes(changed)
        try:
            tree = vs.open_virtual_datatree(path)
            for node in tree.subtree:
                if sum(x.nbytes for x in node.data_vars.values()) < 1 << 24:
                    node.to_dataset().virtual.open().load()
        except VirtualStackError:
            continue


@pytest.mark.parametrize("link", [(0, 1), (1, 0)])
def test_a_subifd_may_link_to_another_one(link, tmp_path):
    """A valid file was called damaged; its overviews are there once."""
    values = np.arange(64 * 64, dtype="u2").reshape(64, 64)
    path = tmp_path / "a.tif"
    with tifffile.TiffWriter(path) as file:
        file.write(values, subifds=2, photometric="minisblack")
        for step in (2, 4):
            file.write(values[::step, ::step], subfiletype=1, photometric="minisblack")
    with tifffile.TiffFile(path) as file:
        places = file.pages[0].subifds
    data, at = path.read_bytes(), places[link[0]]
    n_tags = int.from_bytes(data[at : at + 2], "little")
    overwrite(path, at + 2 + 12 * n_tags, places[link[1]].to_bytes(4, "little"))
    assert len(vs.open_virtual_datatree(path).groups) == 4


def test_a_server_that_fails_while_axes_are_read_is_no_damage(tmp_path, monkeypatch):
    """The user is told of the server, and not to write the file anew."""
    tifffile.imwrite(tmp_path / "a.ome.tif", np.stack([GRAY] * 2), ome=True, metadata={"axes": "ZYX"})

    def fail(source):
        raise StorageError("the server does not answer", url=source.location.url)

    monkeypatch.setattr("virtualstack.formats.tiff.dialects.SourceFile", fail)
    with pytest.raises(StorageError, match="does not answer"):
        vs.open_virtual_dataset(tmp_path / "a.ome.tif")

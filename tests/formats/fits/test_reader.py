"""FITS files: values, names, coordinates and damage, with astropy as the oracle."""

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.files import file_of
from tests.formats.groups import STORAGE, group_of, reasons, values_of
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError, VirtualStackError
from virtualstack.testing.readers import ReaderTests, difference

fits = pytest.importorskip("astropy.io.fits", reason="astropy is not installed: pip install 'virtualstack[fits]'")
from virtualstack.readers import FITS, find_reader  # noqa: E402 - the reader needs astropy

DATA = Path(fits.__file__).parent / "tests" / "data"
COMPRESSED = Path(fits.__file__).parent / "hdu" / "compressed" / "tests" / "data"
RANDOM = np.random.default_rng(0)


def table(name="T"):
    columns = [
        fits.Column("a", "J", array=np.arange(4)),
        fits.Column("b", "3D", array=np.arange(12.0).reshape(4, 3)),
        fits.Column("text", "5A", array=["ab", "c", "", "abcde"]),
    ]
    return fits.BinTableHDU.from_columns(columns, name=name)


def usual(path):
    """Write a file of images and tables."""
    image = fits.ImageHDU(np.arange(24, dtype="i2").reshape(4, 6), name="SCI")
    image.header["EXPTIME"] = 3.5
    again = fits.ImageHDU(RANDOM.random((4, 6)).astype("f4"), name="SCI", ver=2)
    other = fits.ImageHDU(RANDOM.random((2, 3, 5)), name="CUBE")
    fits.HDUList([fits.PrimaryHDU(), image, again, other, table()]).writeto(path)
    return path


def as_read(path):
    """Return what astropy reads, as it is stored, by the names of the reader."""
    with fits.open(path, do_not_scale_image_data=True) as file:
        found = {}
        for hdu in file:
            if getattr(hdu, "data", None) is not None:
                name = hdu.name if f"/{hdu.name}" not in found else f"{hdu.name}_{hdu.ver}"
                found[f"/{name}"] = np.array(hdu.data) if hdu.is_image else hdu.data.view(np.ndarray).copy()
        return found


class TestFITS(ReaderTests):
    reader = FITS()
    truncated_to = (0.2, 0.6, 0.85)  # not in the padding at the end

    def files(self, folder):
        yield usual(folder / "a.fits")

    def expected(self, path):
        return as_read(path)


def test_names_attributes_and_dimensions(tmp_path):
    """Of one length they are shared; others have the name of the variable."""
    path = usual(tmp_path / "a.bin")
    assert find_reader(path, STORAGE) == FITS()
    vds = vs.open_virtual_dataset(path)
    assert {name: x.dims for name, x in vds.variables.items()} == {
        "SCI": ("y", "x"),
        "SCI_2": ("y", "x"),
        "CUBE": ("z", "y_CUBE", "x_CUBE"),
        "T": ("row",),
    }
    assert vds["SCI"].attrs == {"EXTNAME": "SCI", "EXPTIME": 3.5}
    vds.virtual.to_vstack(tmp_path / "a.vstack")
    vds.drop_vars("T").virtual.to_kerchunk(tmp_path / "a.json")  # zarr has no fields that are arrays
    for stored in ("a.vstack", "a.json"):
        got = xr.open_dataset(tmp_path / stored, engine="virtualstack").load()
        for name, expected in as_read(path).items():
            if name != "/T" or stored == "a.vstack":
                assert not difference(expected, got[name[1:]].values), name


def test_no_variable_replaces_another_one(tmp_path):
    """Names of HDUs may be those of dimensions, or those that others get because their own is taken."""
    linear = fits.Header({"CRVAL1": 1.0, "CRPIX1": 1.0, "CDELT1": 0.5})
    names = ["A", "A_1", "A_HDU4", "A", "x_B", "B", "x", "y", "x"]
    images = [fits.ImageHDU(np.full((2, 3 + (name == "B")), i), linear.copy()) for i, name in enumerate(names)]
    for name, image in zip(names, images, strict=True):
        image.header["EXTNAME"] = name
    fits.HDUList([fits.PrimaryHDU(), *images]).writeto(tmp_path / "a.fits")
    got = vs.open_virtual_dataset(tmp_path / "a.fits").virtual.open()
    assert sorted(x.values.flat[0] for x in got.data_vars.values()) == [*range(len(names))]
    for name, image in got.data_vars.items():
        np.testing.assert_array_equal(image[image.dims[1]], 1 + np.arange(image.shape[1]) / 2, err_msg=name)


@pytest.mark.parametrize(
    ("dtype", "cards"),
    [
        ("u1", {}),
        (">i2", {}),
        (">i2", {"BSCALE": 0.1, "BZERO": 10.0, "BLANK": -3}),
        (">i2", {"BLANK": 5}),
        (">i2", {"BZERO": 32768, "BSCALE": 1}),
        (">i4", {"BSCALE": 2.0, "BLANK": 7}),
        (">i4", {"BZERO": 2**31}),
        ("u1", {"BZERO": -128}),
        (">i8", {}),
        (">f4", {}),
        (">f8", {"BSCALE": 0.25}),
    ],
)
def test_scaled_images(dtype, cards, tmp_path):
    """Values are those of astropy: scaled, NaN where BLANK, and unsigned integers exact."""
    values = RANDOM.integers(-5 if dtype != "u1" else 0, 50, (4, 5, 6)).astype(dtype)
    values.flat[7:10] = cards.get("BLANK", 0), 0, 1
    image = fits.PrimaryHDU(values)
    image.header.update(cards)
    image.writeto(tmp_path / "x.fits")
    with fits.open(tmp_path / "x.fits") as file:
        expected = np.array(file[0].data)
    got = vs.open_virtual_dataset(tmp_path / "x.fits").virtual.open()["PRIMARY"]
    assert got.dims == ("z", "y", "x")
    if expected.dtype.kind in "iu":
        assert got.dtype == expected.dtype.newbyteorder("=")
    # astropy scales numbers of 16 bits and fewer in float32
    np.testing.assert_allclose(got.to_numpy(), expected, rtol=3e-7 if "BSCALE" in cards else 0)
    assert np.isnan(expected.astype(float)).any() == ("BLANK" in cards)


def test_unsigned_images_are_written_as_references(tmp_path):
    """With a codec of numcodecs, so that any tool reads them."""
    values = RANDOM.integers(0, 2**16, (40, 50)).astype("u2")
    fits.PrimaryHDU(values).writeto(tmp_path / "x.fits")
    vds = vs.open_virtual_dataset(tmp_path / "x.fits", reader=FITS(chunk_size=1000))
    vds.virtual.to_kerchunk(tmp_path / "x.json")
    np.testing.assert_array_equal(xr.open_dataset(str(tmp_path / "x.json"), engine="kerchunk")["PRIMARY"], values)


def test_linear_axes_have_coordinates(tmp_path):
    """Those of another projection, or of rotated axes, have none."""
    from astropy.wcs import WCS

    image = fits.PrimaryHDU(np.zeros((3, 4, 5)))
    cards = {"CTYPE3": "WAVE", "CRVAL3": 500.0, "CRPIX3": 2.0, "CDELT3": 0.5, "CUNIT3": "nm"}
    image.header.update(cards | {"CTYPE1": "RA---TAN", "CRVAL1": 3.0, "CTYPE2": "DEC--TAN", "CRVAL2": 4.0})
    image.writeto(tmp_path / "x.fits")
    vds = vs.open_virtual_dataset(tmp_path / "x.fits")
    expected = WCS(image.header).sub([3]).all_pix2world(np.arange(3), 0)[0] * 1e9
    np.testing.assert_allclose(vds["z"], expected)
    assert vds["z"].attrs == {"CTYPE": "WAVE", "CUNIT": "nm"}
    assert set(vds.coords) == {"z"}
    image.header["PC1_2"] = 0.1
    image.writeto(tmp_path / "y.fits")
    assert not vs.open_virtual_dataset(tmp_path / "y.fits").coords


@pytest.mark.parametrize("name", ["m13_gzip", "m13_hcomp", "m13_plio", "m13_rice", "compressed_with_nan"])
def test_images_compressed_by_tiles(name):
    """They are inlined, or refused beyond the limit."""
    path = COMPRESSED / f"{name}.fits"
    with fits.open(path) as file:
        expected = np.array(file[1].data)
    (array,) = group_of(path, FITS(), inline_limit=1 << 24).arrays.values()
    np.testing.assert_array_equal(values_of(array), expected)
    (refusal,) = group_of(path, FITS(), inline_limit=10).refusals
    assert (refusal.kind, refusal.inline_size > 0) == ("refused", True)


@pytest.mark.parametrize("name", ["test0", "scale", "o4sp040b0_raw", "tdim", "fixed-1890", "arange", "checksum"])
def test_files_of_astropy(name):
    """Real small files, all HDUs."""
    path = DATA / f"{name}.fits"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = vs.open_virtual_dataset(path).virtual.open(decode_times=False)
        with fits.open(path) as file:
            images = [np.array(hdu.data) for hdu in file if hdu.is_image and hdu.data is not None]
            tables = [hdu.data for hdu in file if not hdu.is_image]
    found = [x.values for x in got.data_vars.values()]
    assert len(found) == len(images) + len(tables) > 0
    for expected, values in zip(images, [x for x in found if x.dtype.names is None], strict=True):
        np.testing.assert_allclose(values, expected, rtol=3e-7)
    for expected, values in zip(tables, [x for x in found if x.dtype.names is not None], strict=True):
        for field in values.dtype.names:
            column = expected[field]
            if column.dtype.kind == "U":
                assert np.char.rstrip(np.char.decode(values[field], "ascii")).tolist() == column.tolist()
            else:
                np.testing.assert_array_equal(values[field], column)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tb", "is scaled"),
        ("memtest", "bits"),
        ("variable_length_table", "variable length"),
        ("ascii", "TABLE"),
        ("random_groups", "random groups"),
    ],
)
def test_tables_without_compounds_are_refused(name, reason):
    assert reason in next(iter(reasons(group_of(DATA / f"{name}.fits", FITS())).values()))


def test_images_that_floats_would_round_are_refused(tmp_path):
    """Unsigned numbers of 64 bits."""
    fits.PrimaryHDU(np.array([1, 2**63 + 1], "u8")).writeto(tmp_path / "x.fits")
    with pytest.raises(UnsupportedFeatureError, match="unsigned integers of 64 bits"):
        vs.open_virtual_dataset(tmp_path / "x.fits")


def card(key, value):
    return f"{key:8}= {value:>20}".encode()


@pytest.mark.parametrize(
    ("found", "other"),
    [
        (card("BITPIX", 16), card("BITPIX", 17)),
        (card("NAXIS", 2), card("NAXIS", "'two'")),
        (card("NAXIS", 2), card("NAXIS", 10**9)),
        (card("NAXIS2", 4), card("NAXIS2", -4)),
        (card("NAXIS2", 4), card("NAXIS2", 10**30)),
        (card("NAXIS2", 4), card("NAXISX", 4)),
        (card("PCOUNT", 0), card("PCOUNT", 10**9)),
        (card("TFIELDS", 3), card("TFIELDS", 1000)),
        (b"'3D      '", b"'4D      '"),
        (b"'3D      '", b"'3?      '"),
        (b"END".ljust(80), b"ENQ".ljust(80)),
    ],
)
def test_headers_that_contradict_the_standard(found, other, tmp_path):
    data = usual(tmp_path / "a.fits").read_bytes()
    assert found in data
    path = file_of(tmp_path / "b.fits", data.replace(found, other))
    with pytest.raises(MalformedFileError) as caught:
        group_of(path, FITS())
    assert caught.value.url == f"file://{path}"


def test_flipped_bytes(tmp_path):
    """Values that astropy reads, or an error; an error wherever astropy has one."""
    data, rng = usual(tmp_path / "a.fits").read_bytes(), random.Random(1)
    used = [at for at in range(len(data)) if data[at] not in (0, 32)]
    path, n_read, n_errors = tmp_path / "b.fits", 0, 0
    for _ in range(60):
        changed = bytearray(data)
        changed[rng.choice(used)] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            group = group_of(path, FITS())
            got = {f"/{name}": values_of(array) for name, array in group.arrays.items()}
        except VirtualStackError:
            n_errors += 1
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = as_read(path)
        for name, values in got.items():
            if name in expected:
                assert not difference(expected[name], values), name
                n_read += 1
    assert n_read > 10
    assert n_errors > 3

"""HDF4 files: values, names, grids of HDF-EOS2 and damage, with pyhdf as the oracle."""

import ctypes
import json
import os
import pickle
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.files import file_of
from tests.formats.groups import STORAGE, group_of, reasons, values_of
from virtualstack.errors import MalformedFileError, VirtualStackError
from virtualstack.formats.hdf4.grids import grid_axes
from virtualstack.readers import HDF4, find_reader
from virtualstack.testing.readers import ReaderTests, difference

pyhdf = pytest.importorskip("pyhdf.SD", reason="pyhdf is not installed: pip install pyhdf")
SD, SDC = pyhdf.SD, pyhdf.SDC
KINDS = ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "FLOAT32", "FLOAT64"]


class ChunkDef(ctypes.Structure):
    """HDF_CHUNK_DEF of the C library, which pyhdf does not wrap."""

    _fields_ = [
        ("lengths", ctypes.c_int32 * 32),
        ("coder", ctypes.c_int32),
        ("model", ctypes.c_int32),
        ("level", ctypes.c_int32),
        ("rest", ctypes.c_int32 * 32),
    ]


def set_chunks(data, chunks, level=None):
    """Store a new data set in chunks, with deflate if there is a level."""
    folder = Path(pyhdf.__file__).parents[1] / "pyhdf.libs"
    libraries = sorted(folder.glob("libmfhdf*"))
    if not libraries:
        pytest.skip("pyhdf is not installed with its own copy of the HDF4 library")
    definition = ChunkDef(coder=4, level=level or 0)
    definition.lengths[: len(chunks)] = chunks
    assert ctypes.CDLL(str(libraries[0])).SDsetchunk(data._id, definition, 1 if level is None else 3) == 0


def usual(path, *, with_chunks=True):
    """Write data sets of all kinds and layouts."""
    path = Path(path)
    path.unlink(missing_ok=True)
    file = SD(str(path), SDC.WRITE | SDC.CREATE)
    file.title = "a file"
    file.attr("n").set(SDC.INT32, [1, 2, 3])
    for kind in KINDS:
        data = file.create(kind, getattr(SDC, kind), (5, 7))
        if kind.startswith("INT"):
            data.setcompress(SDC.COMP_DEFLATE, 5)
        data[:] = np.arange(35).reshape(5, 7).astype(kind.lower())
        data.dim(0).setname("y")
        data.dim(1).setname("x")
        data.setfillvalue(9)
        data.attr("scale_factor").set(SDC.FLOAT64, 0.125)
        data.endaccess()
    text = file.create("text", SDC.CHAR8, (2, 4))
    text[:] = [list("abcd"), list("efgh")]
    text.endaccess()
    for name in ("grows", "other"):  # their records are in linked blocks
        file.create(name, SDC.INT16, (SDC.UNLIMITED, 3)).endaccess()
    for begin in range(3):
        for name in ("grows", "other"):
            data = file.select(name)
            data[begin : begin + 1] = np.full((1, 3), begin + 1, "i2")
            data.endaccess()
    file.create("none", SDC.INT16, (SDC.UNLIMITED, 3)).endaccess()
    file.create("unwritten", SDC.FLOAT32, (2, 3)).endaccess()
    labels = file.create("labelled", SDC.INT16, (3,))
    labels[:] = np.arange(3, dtype="i2")
    labels.dim(0).setname("s")
    labels.dim(0).setscale(SDC.FLOAT32, [1.0, 2.0, 3.0])
    labels.endaccess()
    for level in (None, 6) if with_chunks else ():
        data = file.create(f"chunks_{level}", SDC.FLOAT32, (10, 7))
        data.setfillvalue(-1.0)
        set_chunks(data, (4, 3), level)
        data[0:5] = np.arange(35, dtype="f4").reshape(5, 7)
        data.endaccess()
    file.end()
    return path


def as_read(path):
    """Return what pyhdf reads."""
    file = SD(str(path))
    found = {}
    for name, (_, shape, *_) in file.datasets().items():
        if 0 not in shape:
            values = np.asarray(file.select(name).get())
            found[f"/{name}"] = values
    file.end()
    return found


class TestHDF4(ReaderTests):
    reader = HDF4()

    def files(self, folder):
        yield usual(folder / "a.hdf")

    def expected(self, path):
        return as_read(path)


def test_names_dimensions_and_attributes_are_those_of_pyhdf(tmp_path):
    path = usual(tmp_path / "a.bin")
    assert find_reader(path, STORAGE) == HDF4()
    group = group_of(path, HDF4())
    assert not group.refusals
    file = SD(str(path))
    for name, (dims, shape, *_) in file.datasets().items():
        array = group.arrays[name]
        assert (array.dimension_names, array.shape) == (dims, shape)
        assert dict(array.attributes) == file.select(name).attributes()
    assert group.attributes["title"] == "a file"
    assert group.attributes["n"].tolist() == file.attributes()["n"] == [1, 2, 3]
    file.end()


def test_decoded_values_and_references(tmp_path):
    """Masked and scaled as xarray does, through a store and through references that kerchunk reads."""
    path = usual(tmp_path / "a.hdf")
    vds = vs.open_virtual_dataset(path)
    got = vds.virtual.open()
    expected = as_read(path)["/INT16"]
    np.testing.assert_array_equal(got["INT16"], np.where(expected == 9, np.nan, expected * 0.125))
    np.testing.assert_array_equal(vds["s"], [1, 2, 3])
    vds.virtual.to_vstack(tmp_path / "a.vstack")
    xr.testing.assert_identical(xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack").load(), got.load())
    vds[["INT16", "chunks_6"]].virtual.to_kerchunk(tmp_path / "a.json")
    refs = json.loads((tmp_path / "a.json").read_text())["refs"]
    assert sum(isinstance(x, list) for x in refs.values()) == 1 + 6
    raw = xr.open_dataset(str(tmp_path / "a.json"), engine="kerchunk", mask_and_scale=False)
    for name in ("INT16", "chunks_6"):
        np.testing.assert_array_equal(raw[name], as_read(path)[f"/{name}"])


def test_chunks_that_were_not_written_are_empty(tmp_path):
    """Those of a half-written data set are the fill value."""
    array = group_of(usual(tmp_path / "a.hdf"), HDF4()).arrays["chunks_6"]
    assert array.grid.shape == (3, 3)
    assert array.in_memory().entries["location"].ravel().astype(bool).tolist() == [True] * 6 + [False] * 3
    assert (values_of(array)[5:] == -1).all()


@pytest.mark.parametrize("name", ["COMP_RLE", "COMP_SKPHUFF"])
def test_other_compressions_are_refused(name, tmp_path):
    file = SD(str(tmp_path / "a.hdf"), SDC.WRITE | SDC.CREATE)
    data = file.create("v", SDC.INT16, (20,))
    data.setcompress(getattr(SDC, name), *([2] if name == "COMP_SKPHUFF" else []))
    data[:] = np.zeros(20, "i2")
    data.endaccess()
    file.end()
    assert "compressed with" in reasons(group_of(tmp_path / "a.hdf", HDF4()))["/v"]


def test_little_endian_numbers(tmp_path):
    """The class of a number type says so."""
    file = SD(str(tmp_path / "a.hdf"), SDC.WRITE | SDC.CREATE)
    data = file.create("v", SDC.INT16, (5,))
    data[:] = np.arange(5, dtype="i2")
    data.endaccess()
    file.end()
    raw = (tmp_path / "a.hdf").read_bytes()
    big = bytes([1, 22, 16, 1])  # version, type, bits, class
    assert big in raw
    path = file_of(tmp_path / "b.hdf", raw.replace(big, bytes([1, 22, 16, 4])))
    np.testing.assert_array_equal(values_of(group_of(path, HDF4()).arrays["v"]), np.arange(5, dtype=">i2").view("<i2"))


STRUCTURE = """GROUP=GridStructure
 GROUP=GRID_1
  GridName="MOD_Grid"
  XDim=4
  YDim=2
  UpperLeftPointMtrs=({0})
  LowerRightMtrs=({1})
  Projection={2}
 END_GROUP=GRID_1
END_GROUP=GridStructure
END
"""


@pytest.mark.parametrize(
    ("begin", "end", "projection", "x", "y", "units"),
    [
        ("0,2000", "4000,0", "GCTP_SNSOID", [500, 1500, 2500, 3500], [1500, 500], "m"),
        ("-10030000.00,90000000", "10030000.0,80000000", "GCTP_GEO", [-7.875, -2.625, 2.625, 7.875], [87.5, 82.5], ""),
        ("-180,90", "180,-90", "GCTP_GEO", [-135, -45, 45, 135], [45, -45], ""),
    ],
)
def test_grids_have_coordinates(begin, end, projection, x, y, units, tmp_path):
    """In metres, or in degrees, which may be packed as degrees, minutes and seconds."""
    file = SD(str(tmp_path / "a.hdf"), SDC.WRITE | SDC.CREATE)
    file.attr("StructMetadata.0").set(SDC.CHAR8, STRUCTURE.format(begin, end, projection))
    data = file.create("ndvi", SDC.INT16, (2, 4))
    data[:] = np.arange(8, dtype="i2").reshape(2, 4)
    data.dim(0).setname("YDim:MOD_Grid")
    data.dim(1).setname("XDim:MOD_Grid")
    data.endaccess()
    file.end()
    vds = vs.open_virtual_dataset(tmp_path / "a.hdf")
    np.testing.assert_allclose(vds["XDim:MOD_Grid"], x)
    np.testing.assert_allclose(vds["YDim:MOD_Grid"], y)
    assert vds["XDim:MOD_Grid"].attrs["units"] == (units or "degrees_east")


def test_a_grid_that_is_not_described_has_no_coordinates():
    """Nor one whose corners are no numbers, or whose origin is another corner."""
    text = STRUCTURE.format("0,2", "4,0", "GCTP_SNSOID")
    assert len(list(grid_axes(text))) == 2
    for other in ("", text.replace("(0,2)", "DEFAULT"), text.replace("END_GROUP=GRID_1", "GridOrigin=HDFE_GD_LR")):
        assert not list(grid_axes(other))


def descriptors(data):
    """Return offset, tag, reference, offset of the object and length of each descriptor of the first block."""
    n, _ = struct.unpack_from(">HI", data, 4)
    return [(10 + 12 * i, *struct.unpack_from(">HHII", data, 10 + 12 * i)) for i in range(n)]


def test_descriptors_that_contradict_the_format(tmp_path):
    """A list that leads back into itself, objects behind the end, and shapes that no file has."""
    data = usual(tmp_path / "a.hdf").read_bytes()
    changes = {"loop": (6, struct.pack(">I", 4)), "behind": (6, struct.pack(">I", len(data) + 5))}
    for at, tag, _, offset, _ in descriptors(data):
        if tag == 701:
            changes["rank"] = (offset, b"\xff\xff")
            changes["negative"] = (offset + 2, b"\xff")
        if tag == 1965:
            changes["members"] = (offset, b"\xff\xff")
        if tag == 720:
            changes["group behind the end"] = (at + 4, b"\xff\xff\xff\xf0")
        if tag == 106:
            changes["short data type"] = (at + 8, struct.pack(">I", 2))
    assert len(changes) == 7
    for name, (at, other) in changes.items():
        path = file_of(tmp_path / "b.hdf", data[:at] + other + data[at + len(other) :])
        with pytest.raises(MalformedFileError) as caught:
            group_of(path, HDF4())
        assert caught.value.url == f"file://{path}", name


ORACLE = """
import os, pickle, sys
from tests.formats.hdf4.test_reader import as_read
for path in sys.argv[1:]:
    if os.fork():  # the library may crash, but only for this file
        os.wait()
        continue
    try:
        found = as_read(path)
    except Exception:
        found = {}
    with open(path + ".pickle", "wb") as file:
        pickle.dump(found, file)
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the oracle forks")
def test_flipped_bytes(tmp_path):
    """Values that the library reads, or those of before the damage, or an error."""
    data, rng = usual(tmp_path / "a.hdf").read_bytes(), random.Random(1)
    known = as_read(tmp_path / "a.hdf")
    used = [at for at in range(len(data)) if data[at]]
    paths = []
    for n in range(60):
        changed = bytearray(data)
        changed[rng.choice(used)] ^= 1 << rng.randrange(8)
        paths.append(file_of(tmp_path / f"{n}.hdf", bytes(changed)))
    subprocess.run([sys.executable, "-c", ORACLE, *map(str, paths)], check=True, timeout=60, cwd=Path.cwd())
    n_read = n_errors = 0
    for path in paths:
        record = path.with_name(f"{path.name}.pickle")
        expected = pickle.loads(record.read_bytes()) if record.exists() else {}
        try:
            arrays = group_of(path, HDF4()).arrays
        except VirtualStackError:
            n_errors += 1
            continue
        for name, array in arrays.items():
            try:
                values = values_of(array)
            except VirtualStackError:
                n_errors += 1
                continue
            right = [x[f"/{name}"] for x in (expected, known) if f"/{name}" in x]  # as damaged, or as it was
            assert not right or not all(difference(x, values) for x in right), (path.name, name)
            n_read += bool(right)
    assert n_read > 500
    assert n_errors > 5

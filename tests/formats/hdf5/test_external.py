import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import virtualstack as vs
from tests.data.make_hdf5 import A
from tests.formats.groups import STORAGE, group_of, refusals, values_of
from tests.formats.hdf5.new_library import read_by_new_library
from virtualstack.formats.hdf5 import references
from virtualstack.formats.hdf5.external_files import UNLIMITED, external_segments
from virtualstack.formats.hdf5.structures.requests import LostValuesError
from virtualstack.location import Location, absolute_url
from virtualstack.manifests import INLINE
from virtualstack.manifests.plain import why_not_plain
from virtualstack.readers import HDF5


def make(path: Path, values, files, *, dtype="i4"):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", values.shape, dtype, external=files)[...] = values


@given(
    cuts=st.lists(st.integers(1, 95), max_size=4, unique=True).map(sorted),
    offsets=st.lists(st.integers(0, 9), min_size=5, max_size=5),
    extra=st.sampled_from([0, 1, 50, None]),
)
def test_values_over_several_files_are_those_of_h5py(tmp_path_factory, cuts, offsets, extra):
    """Files that end at any byte: references where they end between elements, else inlined."""
    folder = tmp_path_factory.mktemp("external")
    ends = [*cuts, 96]
    sizes = [b - a for a, b in zip([0, *cuts], ends, strict=True)]
    last = UNLIMITED if extra is None else sizes[-1] + extra
    files = [
        (str(folder / f"{i}.bin"), offset, size)
        for i, (offset, size) in enumerate(zip(offsets, [*sizes[:-1], last], strict=False))
    ]
    make(folder / "x.h5", A, files, dtype=">i4")
    group = group_of(folder / "x.h5")
    np.testing.assert_array_equal(values_of(group.arrays["x"]), A)
    is_inline = bool((group.arrays["x"].manifest.entries["location"] == INLINE).any())
    assert is_inline is any(end % 4 for end in cuts)
    assert is_inline is ("/x" in refusals(group))


@pytest.mark.parametrize("size", [48, UNLIMITED])
def test_files_of_whole_rows_are_written_as_references(size, tmp_path):
    """Two files of two rows each: kerchunk's own engine reads the values, and nothing is inlined."""
    make(tmp_path / "x.h5", A, [(str(tmp_path / "0"), 8, 48), (str(tmp_path / "1"), 4, size)])
    vds = vs.open_virtual_dataset(tmp_path / "x.h5", inline_limit=0)
    np.testing.assert_array_equal(vds.virtual.open()["x"].values, A)
    references = vds.virtual.to_kerchunk(None, inline_limit=0)["refs"]
    assert references["x/0.0"] == [absolute_url(tmp_path / "0"), 8, 48]
    assert references["x/1.0"] == [absolute_url(tmp_path / "1"), 4, 48]
    with xr.open_dataset(json.loads(json.dumps({"version": 1, "refs": references})), engine="kerchunk") as found:
        np.testing.assert_array_equal(found["x"].values, A)
    assert why_not_plain(group_of(tmp_path / "x.h5").arrays["x"]) is None


def test_values_are_cut_on_request(tmp_path):
    """The option for contiguous values holds for external ones."""
    make(tmp_path / "x.h5", A, [(str(tmp_path / "0"), 8, 24), (str(tmp_path / "1"), 4, 72)])
    reader = HDF5(contiguous_chunk_size=24)
    array = group_of(tmp_path / "x.h5", reader, inline_limit=0).arrays["x"]
    assert array.manifest.entries["length"].tolist() == [[24]] * 4
    np.testing.assert_array_equal(values_of(array), A)


def test_chunks_on_request_are_counted_before_they_are_made(tmp_path, monkeypatch):
    """An option is no reason to fill the memory with entries."""
    make(tmp_path / "x.h5", A, [(str(tmp_path / "0"), 0, UNLIMITED)])
    monkeypatch.setattr(references, "MAX_READ_CELLS", 10)
    group = group_of(tmp_path / "x.h5", HDF5(contiguous_chunk_size=4))
    assert refusals(group)["/x"] == ("inlined", "a chunk grid of 24 cells; a manifest has at most 10")


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    """And so are a directory, and files that are too short for the values."""
    make(tmp_path / "x.h5", A, [(str(tmp_path / "0"), 0, 48), (str(tmp_path / "1"), 0, 48)])
    (tmp_path / "1").unlink()
    kind, reason = refusals(group_of(tmp_path / "x.h5"))["/x"]
    assert kind == "refused"
    assert f"external files, of which '{tmp_path}/1' does not exist. Relative names begin at" in reason
    (tmp_path / "1").mkdir()
    assert "is a directory" in refusals(group_of(tmp_path / "x.h5"))["/x"][1]
    (tmp_path / "1").rmdir()
    os.mkfifo(tmp_path / "1")
    assert "is a pipe" in refusals(group_of(tmp_path / "x.h5"))["/x"][1]


def test_a_short_file_is_said(tmp_path):
    """The HDF5 library shows zeros in place of what is not there; so do we, with the reason, or refuse."""
    make(tmp_path / "x.h5", A, [(str(tmp_path / "0"), 0, 48), (str(tmp_path / "1"), 0, 48)])
    os.truncate(tmp_path / "1", 40)
    group = group_of(tmp_path / "x.h5")
    with h5py.File(tmp_path / "x.h5") as file:
        np.testing.assert_array_equal(values_of(group.arrays["x"]), file["x"][...])
    kind, reason = refusals(group)["/x"]
    assert kind == "inlined"
    assert "/1' has 40 bytes instead of 48. The HDF5 library shows zeros there" in reason
    assert refusals(group_of(tmp_path / "x.h5", inline_limit=0))["/x"][0] == "refused"


def test_a_file_that_changes_is_found(tmp_path):
    """Its size is recorded with the reference."""
    make(tmp_path / "x.h5", A, [(str(tmp_path / "0"), 0, 96)])
    vds = vs.open_virtual_dataset(tmp_path / "x.h5")
    (tmp_path / "0").write_bytes(b"1" * 97)
    with pytest.raises(vs.errors.SourceChangedError, match="97"):
        vds.virtual.open()["x"].load()


def test_remote_files_name_no_local_ones(tmp_path):
    """Who gives us a file at a URL must not make us read /etc/passwd; the HDF5 library would."""
    secret = tmp_path / "secret"
    make(tmp_path / "x.h5", A, [(str(secret), 0, 96)])
    STORAGE.target("memory://bucket/").put("x.h5", (tmp_path / "x.h5").read_bytes())
    for limit in (0, 1 << 20):
        group = group_of("memory://bucket/x.h5", inline_limit=limit)
        assert not group.arrays
        assert refusals(group)["/x"] == (
            "refused",
            "its values are in external files, which are looked for beside local files only",
        )


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ([(b"y", 0, 95)], "hold 95 bytes of 96"),
        ([], "hold 0 bytes of 96"),
        ([(b"x", -1, 96)], "from byte -1 on"),
        ([(b"x", 1 << 63, UNLIMITED)], "from byte 9223372036854775808 on"),
        ([(b"\xff\x00", 0, 96)], "not UTF-8"),
        ([(b"s3://bucket/x", 0, 96)], "'s3://bucket/x' does not exist"),
    ],
)
def test_damaged_lists_of_files_are_refused(files, match, tmp_path):
    """Whatever the header says, there is a reason and no other error; a name is a path and never a URL."""

    def locate(path: str) -> Location:
        return STORAGE.source(tmp_path / "y" if path.endswith("y") else path).location

    (tmp_path / "y").touch()
    with pytest.raises(LostValuesError, match=match):
        external_segments(files, 96, absolute_url(tmp_path / "x.h5"), locate)


@pytest.mark.parametrize(
    ("prefix", "folder"),
    [(None, "work"), ("", "work"), ("${ORIGIN}", "data"), ("${ORIGIN}/raw", "data/raw"), ("../data/raw", "data/raw")],
)
def test_relative_names_lie_where_the_library_looks(prefix, folder, tmp_path, monkeypatch):
    """In the working directory, or below the prefix of the environment, which may name the folder of the file."""
    for name in ("data/raw", "work"):
        (tmp_path / name).mkdir(parents=True)
    for i, name in enumerate(("data", "data/raw", "work")):
        (tmp_path / name / "x.bin").write_bytes((A + 100 * i).astype("i4").tobytes())
    with h5py.File(tmp_path / "data" / "x.h5", "w") as file:
        file.create_dataset("x", A.shape, "i4", external=[("x.bin", 0, 96)])
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.delenv("HDF5_EXTFILE_PREFIX", raising=False)
    if prefix is not None:
        monkeypatch.setenv("HDF5_EXTFILE_PREFIX", prefix)
    array = group_of(tmp_path / "data" / "x.h5", inline_limit=0).arrays["x"]
    assert array.manifest.locations[0].url == absolute_url(tmp_path / folder / "x.bin")
    expected = read_by_new_library(tmp_path / "data" / "x.h5")
    assert values_of(array).tolist() == expected

import random
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.amount import ALL
from tests.formats.hdf5.agreement import differences
from tests.formats.hdf5.damage import in_a_process
from virtualstack.manifests import ManifestGroup

N_FLIPS = [2, pytest.param(60 if ALL else 15, marks=pytest.mark.apart)]
N_SOURCES = 3


@pytest.fixture(params=["earliest", "v110", "latest"])
def folder(request, tmp_path) -> Path:
    """A virtual dataset in ``v.h5``, of chunked sources; it shares its global heap with an attribute."""
    layout = h5py.VirtualLayout((N_SOURCES, 6, 2), "i8")
    for i in range(N_SOURCES):
        with h5py.File(tmp_path / f"s{i}.h5", "w") as file:
            file.create_dataset("x", data=np.arange(12).reshape(6, 2), chunks=(4, 2))
        layout[i] = h5py.VirtualSource(f"s{i}.h5", "x", (6, 2))
    with h5py.File(tmp_path / "v.h5", "w", libver=(request.param, "latest")) as file:
        file.create_virtual_dataset("x", layout, fillvalue=-1)
        file["x"].attrs["texts"] = ["a", "bb"]
    return tmp_path


def flips(path: Path, begin: int, end: int, n: int) -> Iterator[None]:
    """Flip some bits between two bytes of a file, one after another."""
    rng, raw = random.Random(0), path.read_bytes()
    for _ in range(n):
        damaged = bytearray(raw)
        damaged[rng.randrange(begin, end)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        yield
    path.write_bytes(raw)


def read(path: Path) -> ManifestGroup | None:
    """What is read in a process of its own; ``None`` for a typed error."""
    how, found = in_a_process(path, "own")
    assert how in ("group", "typed"), found
    return found if isinstance(found, ManifestGroup) else None


@pytest.mark.parametrize("n", N_FLIPS)
def test_damaged_mappings_are_refused_by_name_and_the_library_is_not_asked(folder, n):
    """On some of them the HDF5 library (2.0) does not come to an end, or crashes."""
    path = folder / "v.h5"
    whole = read(path)
    begin = path.read_bytes().index(b"GCOL")
    reasons = set()
    for _ in flips(path, begin, begin + 200, n):
        group = read(path)
        if "x" in group.arrays:  # a reserved byte, or one of the attribute
            assert [x for x in differences(group, whole) if "@" not in x] == []
        else:
            (reason,) = [x.reason for x in group.refusals if x.path == "/x"]
            assert "the mappings of a virtual dataset (VDS) are damaged: " in reason
            reasons.add(reason)
    assert any("their checksum is wrong" in x for x in reasons)


@pytest.mark.parametrize("n", N_FLIPS)
@pytest.mark.parametrize("name", ["v.h5", "s1.h5"])
def test_damage_anywhere_ends_in_an_answer(name, folder, n):
    path = folder / name
    raw = np.frombuffer(path.read_bytes(), np.uint8)
    end = int(np.flatnonzero(raw)[-1]) + 1
    n_answers = sum(read(folder / "v.h5") is not None for _ in flips(path, 0, end, n))
    assert n_answers > 0

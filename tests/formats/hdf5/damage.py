"""Flip bits of the metadata of HDF5 files, and compare what the parsers make of it with the HDF5 library.

``python -m tests.formats.hdf5.damage 20000``, in the folder of the repository, runs that many cases over generated
files and those of the corpus that are small, and prints how they ended; each case runs in a process of its own, for the
library crashes on some.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin  # noqa: F401
import numpy as np

from tests.corpus.report import corpus_files
from tests.data.make_hdf5 import BUILDERS, make
from tests.formats.groups import group_of, values_of
from tests.formats.hdf5.agreement import differences
from virtualstack.errors import VirtualStackError
from virtualstack.manifests import FIRST, ManifestGroup, Refusal
from virtualstack.readers import HDF5
from virtualstack.testing.readers import arrays_by_path

_SECONDS = 60
_BYTES = 2 << 30
_SMALL = 150_000
_MOST_VALUES = 1 << 20  # bytes of an array


def metadata_places(path: Path) -> list[int]:
    """Give the offsets of bytes that no chunk holds, but for long stretches of zeros."""
    data = np.frombuffer(path.read_bytes(), np.uint8)
    is_metadata = np.ones(len(data), bool)
    group = group_of(path)
    for array in arrays_by_path(group).values():
        entries = array.in_memory().entries.reshape(-1)
        for entry in entries[entries["location"] == FIRST]:
            is_metadata[entry["offset"] : entry["offset"] + entry["length"]] = False
    near = np.zeros(len(data) + 16, bool)
    for shift in range(17):
        near[shift : shift + len(data)] |= data != 0
    return np.flatnonzero(is_metadata & near[8 : 8 + len(data)]).tolist()


def in_a_process(path: Path, who: str) -> tuple[str, ManifestGroup | str]:
    """Read a file in a process: ``"group"``, ``"typed"`` (an error of ours), ``"other"`` or ``"died"``, and what."""
    receiving, sending = os.pipe()
    child = os.fork()
    if not child:
        os.close(receiving)
        with contextlib.suppress(BaseException), os.fdopen(sending, "wb") as pipe:
            signal.alarm(_SECONDS)
            most = _in_use() + _BYTES  # of the process that was forked, too
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            devnull = os.open(os.devnull, os.O_WRONLY)
            os.dup2(devnull, 2)
            pickle.dump(_read(path, who), pipe)
        os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "died", signal.Signals(os.WTERMSIG(status)).name
    try:
        return pickle.loads(data)
    except (EOFError, pickle.UnpicklingError):
        return "died", "without an answer"


def _in_use() -> int:
    """Count the bytes of address space that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc").exists() else 0
    return pages * resource.getpagesize()


def _read(path: Path, who: str) -> tuple[str, ManifestGroup | str]:
    try:
        if who == "values":
            return "values", _values_that_differ(path)
        return "group", group_of(path, HDF5(metadata=who))
    except VirtualStackError as error:
        return "typed", f"{type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return "other", f"{type(error).__name__}: {error}"


def _values_that_differ(path: Path) -> str:
    """Compare the values of numbers with those that the HDF5 library reads; what either cannot read is left out."""
    differ = []
    group = group_of(path)
    with h5py.File(path) as file:
        for name, array in arrays_by_path(group).items():
            if array.nbytes > _MOST_VALUES or array.dtype.kind not in "iufc":
                continue
            with contextlib.suppress(VirtualStackError, OSError, KeyError, RuntimeError, TypeError, ValueError):
                theirs = np.asarray(file[name][...])
                ours = values_of(array)
                if theirs.dtype.newbyteorder("=") == ours.dtype and theirs.shape == ours.shape:
                    same = theirs.astype(ours.dtype).tobytes() == ours.tobytes()
                    differ += [] if same else [name]
    return ", ".join(differ)


def judge(path: Path) -> tuple[str, str]:
    """Say how a damaged file ends, and why."""
    how, own = in_a_process(path, "auto")
    if how in ("other", "died"):
        lib_how, lib = in_a_process(path, "library")
        same = how == "died" and lib_how == "died" and own != "SIGALRM"
        return ("both died" if same else f"OWN {how.upper()}"), f"{own}; library {lib_how}"
    if how == "typed":
        return "typed error", str(own)
    lib_how, lib = in_a_process(path, "library")
    if lib_how == "died":
        return "library died, own reads", str(lib)
    if lib_how != "group":
        # what the library's view finds wrong with the file is one variable that ours refuses
        named = [x.path for _, group in own.walk() for x in group.refusals if f"'{x.path}'" in str(lib)]
        return ("refused by name", str(named)) if named else ("DIFFERENT", f"library: {lib}")
    # phony dimensions of a dataset that neither gives are numbered where it could be opened at all
    refused = any(x.kind == "refused" for x in (*own.refusals, *lib.refusals))
    numbered = ("has the dimensions", "has the dimension_names", "has the unlimited")
    lost = {x.path for _, group in own.walk() for x in group.refusals if x.kind != "inlined"}
    lost -= {x.path for _, group in lib.walk() for x in group.refusals if x.kind != "inlined"}
    found = [*differences(own, _with_notes(_without(lib, "", lost - arrays_by_path(own).keys()), lost))]
    # notes of ours that the library has not are refusals by name
    found = [x for x in found if "there are notes on" not in x]
    found = [x for x in found if not (refused and any(text in x for text in numbered))]
    if found:
        return "DIFFERENT", "; ".join(found[:3])
    how, which = in_a_process(path, "values")
    if how == "values" and which:
        return "OTHER VALUES", str(which)
    return ("refused by name", str(sorted(lost))) if lost else ("equal", "")


def _without(group: ManifestGroup, path: str, lost: set[str]) -> ManifestGroup:
    """Leave out the arrays and attributes that the parsers refused by name."""

    def attributes(values: Mapping[str, Any], owner: str) -> dict[str, Any]:
        return {name: value for name, value in values.items() if f"{owner}@{name}" not in lost}

    return replace(
        group,
        attributes=attributes(group.attributes, path or "/"),
        arrays={
            name: replace(array, attributes=attributes(array.attributes, f"{path}/{name}"))
            for name, array in group.arrays.items()
            if f"{path}/{name}" not in lost
        },
        groups={name: _without(child, f"{path}/{name}", lost) for name, child in group.groups.items()},
    )


def _with_notes(group: ManifestGroup, lost: set[str]) -> ManifestGroup:
    notes = tuple(Refusal(path=path, reason="", kind="noted") for path in sorted(lost))
    return replace(group, refusals=(*group.refusals, *notes))


def cases(folder: Path, count: int, seed: int) -> Iterator[tuple[str, Path, int, int]]:
    """Give name, damaged file, place and bit of each case."""
    rng = random.Random(seed)
    originals = [(name, make(name, folder)) for name in sorted(BUILDERS)]
    originals += [(path.name, path) for path in corpus_files() if path.stat().st_size < _SMALL]
    places = {}
    for name, path in originals:
        with contextlib.suppress(VirtualStackError):
            places[name] = metadata_places(path)
    files = [(name, path.read_bytes()) for name, path in originals if places.get(name)]
    for number in range(count):
        name, data = files[number % len(files)]
        place, bit = rng.choice(places[name]), rng.randrange(8)
        damaged = bytearray(data)
        damaged[place] ^= 1 << bit
        path = folder / "damaged.h5"
        path.write_bytes(damaged)
        yield name, path, place, bit


def main(count: int, seed: int = 0) -> int:
    """Run cases and print how they ended; the number of those that must not be."""
    ends: Counter[str] = Counter()
    bad = 0
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, path, place, bit) in enumerate(cases(Path(folder), count, seed), start=1):
            end, why = judge(path)
            ends[end] += 1
            if end.isupper() or end.startswith("OWN"):
                bad += 1
                print(f"{name} {place}^{1 << bit}: {end}: {why[:300]}", flush=True)
            if number % 1000 == 0:
                print(f"-- {number} in {time.monotonic() - start:.0f} s: {dict(ends)}", flush=True)
    print(dict(ends))
    return bad


if __name__ == "__main__":
    sys.exit(min(main(*map(int, sys.argv[1:])), 1))

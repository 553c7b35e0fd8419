"""Compare what virtualstack reads with the formats' own libraries, on the files of the shared corpus.

``python tests/corpus/report.py`` writes the HDF5 table of ``docs/reference/formats.md`` to standard output: for each
file, how many datasets are equal through references, equal but inlined, and refused, with the reasons.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5s, h5t

from virtualstack.errors import VirtualStackError
from virtualstack.formats.hdf5.reader import HDF5
from virtualstack.location import absolute_url
from virtualstack.readers import ReadOptions
from virtualstack.reading import read_array
from virtualstack.storage import Storage
from virtualstack.testing.readers import arrays_by_path, difference

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable."


@dataclass
class Verdict:
    """What became of the datasets of one file; each stands in one of the lists or counts."""

    path: Path
    equal: int = 0
    inlined: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    error: str = ""


def corpus_files() -> list[Path]:
    """Give the HDF5 and netCDF-4 files of the corpus; none where there is no corpus."""
    table = CORPUS / "MANIFEST.csv"
    if not table.exists():
        return []
    with table.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return [CORPUS / row["file"] for row in rows if row["file"].startswith("hdf5/")]


def datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Give the datasets under every hard link in the file, but those that only declare a dimension.

    Those under soft links, too, but groups have the names of hard links alone.
    """
    seen: set[Any] = set()

    def walk(group: h5py.Group, path: str) -> Iterator[tuple[str, h5py.Dataset]]:
        key = h5py.h5g.get_objinfo(group.id).objno
        if key in seen:
            return
        seen.add(key)
        for name in group:
            link = group.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                continue
            try:
                found = group[name]
            except (KeyError, OSError, RuntimeError):
                continue
            if found.file.id != file.id:
                continue
            if isinstance(found, h5py.Group):
                if isinstance(link, h5py.SoftLink):
                    continue
                yield from walk(found, f"{path}/{name}")
            elif isinstance(found, h5py.Dataset) and not _is_bare_dimension(found):
                yield f"{path}/{name}", found

    yield from walk(file["/"], "")


def _is_bare_dimension(dataset: h5py.Dataset) -> bool:
    return h5py.h5ds.is_scale(dataset.id) and (h5py.h5ds.get_scale_name(dataset.id) or b"").startswith(NO_VARIABLE)


def judge(path: Path, *, options: ReadOptions | None = None) -> Verdict:
    """Compare every dataset of a file with h5py."""
    verdict = Verdict(path)
    storage = Storage.from_option(None)
    try:
        group = HDF5().read(absolute_url(path), storage, options or ReadOptions())
    except VirtualStackError as error:
        verdict.error = f"{type(error).__name__}: {error}"
        return verdict
    arrays = {array.name: array for array in arrays_by_path(group).values()}
    refusals = [x for _, child in group.walk() for x in child.refusals]
    reasons = {x.path: x.reason for x in refusals if x.kind == "refused"}
    inlined = {x.path for x in refusals if x.kind == "inlined"}
    with h5py.File(path) as file:
        for name, dataset in datasets(file):
            if name in reasons:
                verdict.refused.append((name, reasons[name]))
            elif name not in arrays:
                verdict.wrong.append(f"{name}: missing without a refusal")
            elif dataset.shape is None:
                verdict.equal += arrays[name].shape == ()
            else:
                text = _compare(dataset, arrays[name], storage)
                if text:
                    verdict.wrong.append(f"{name}: {text}")
                elif name in inlined:
                    verdict.inlined.append(name)
                else:
                    verdict.equal += 1
    return verdict


def _compare(dataset: h5py.Dataset, array: Any, storage: Storage) -> str:
    if dataset.id.get_type().equal(h5t.STD_REF_OBJ):
        return _compare_paths(dataset, read_array(array, (), storage))
    try:
        expected = library_values(dataset)
    except OSError as error:
        return f"h5py cannot read it ({error}), and there is no refusal"
    got = read_array(array, (), storage)
    inside = tuple(slice(0, n) for n in expected.shape)
    if got.shape != expected.shape and got.ndim == expected.ndim and all(np.greater_equal(got.shape, expected.shape)):
        # netCDF-4 shows fill values where a dataset is shorter than its unlimited dimension
        rest = np.ones(got.shape, np.bool_)
        rest[inside] = False
        return difference(expected, got[inside]) or difference(np.full(rest.sum(), dataset.fillvalue), got[rest])
    return difference(expected, got)


def _compare_paths(dataset: h5py.Dataset, got: Any) -> str:
    """Compare references to objects with paths: of the many that an object may have, any is right."""
    if got.shape != dataset.shape:
        return f"shape {got.shape}, not {dataset.shape}"
    file = dataset.file
    for reference, path in zip(np.ravel(dataset[()]), np.ravel(got), strict=True):
        if bool(reference) != bool(path) or (reference and file[reference] != file[path]):
            return f"a reference to '{file[reference].name if reference else ''}' is '{path}'"
    return ""


def library_values(dataset: h5py.Dataset) -> Any:
    """Read a dataset, also where h5py asks the library for what it does not convert to."""
    tid = dataset.id.get_type()
    if tid.get_class() == h5t.OPAQUE and tid.get_tag():
        # h5py asks for elements without a tag, which the library takes for others
        raw = np.zeros(dataset.shape, f"V{tid.get_size()}")
        dataset.id.read(h5s.ALL, h5s.ALL, raw, tid)
        return np.frombuffer(raw.tobytes(), tid.dtype).reshape(dataset.shape)
    if not {h5t.INTEGER, h5t.BITFIELD} & _classes(tid):
        return np.asarray(dataset[()])
    # h5py has no dtype for integers of 3 bytes, and asks for bitfields as integers, which the library refuses
    memory, dtype = _memory_type(tid)
    raw = np.zeros(dataset.shape, f"V{memory.get_size()}")
    dataset.id.read(h5s.ALL, h5s.ALL, raw, memory)
    return np.frombuffer(raw.tobytes(), dtype).reshape((*dataset.shape, *dtype.shape))


def _classes(tid: h5t.TypeID) -> set[int]:
    """Give the class of a type, or those of a compound of nothing but numbers and arrays of them."""
    if tid.get_class() == h5t.ARRAY:
        return _classes(tid.get_super())
    if tid.get_class() == h5t.COMPOUND:
        found = [_classes(tid.get_member_type(i)) for i in range(tid.get_nmembers())]
        return {h5t.BITFIELD} if {h5t.BITFIELD} in found and set.union(*found) <= {h5t.INTEGER, h5t.BITFIELD} else set()
    return {tid.get_class()}


def _memory_type(tid: h5t.TypeID) -> tuple[h5t.TypeID, np.dtype[Any]]:
    kind = tid.get_class()
    if kind == h5t.ARRAY:
        base, dtype = _memory_type(tid.get_super())
        return h5t.array_create(base, tid.get_array_dims()), np.dtype((dtype, tid.get_array_dims()))
    if kind == h5t.COMPOUND:
        members = [(tid.get_member_name(i), *_memory_type(tid.get_member_type(i))) for i in range(tid.get_nmembers())]
        made = h5t.create(h5t.COMPOUND, sum(member.get_size() for _, member, _ in members))
        offset = 0
        for name, member, _ in members:
            made.insert(name, offset, member)
            offset += member.get_size()
        return made, np.dtype([(name.decode(), dtype) for name, _, dtype in members])
    size = 1 << (tid.get_size() - 1).bit_length()
    is_signed = kind == h5t.INTEGER and tid.get_sign() == h5t.SGN_2
    letter = "B" if kind == h5t.BITFIELD else "I" if is_signed else "U"
    return getattr(h5t, f"STD_{letter}{8 * size}LE"), np.dtype(f"<{'i' if is_signed else 'u'}{size}")


def main() -> int:
    """Write the table; give the number of wrong datasets."""
    total: Counter[str] = Counter()
    n_wrong = 0
    print("| file | equal | inlined | refused |\n|---|---|---|---|")
    for path in corpus_files():
        verdict = judge(path)
        reasons = "; ".join(f"`{name}`: {reason}" for name, reason in verdict.refused) or verdict.error
        print(f"| {path.name} | {verdict.equal} | {len(verdict.inlined)} | {reasons or '-'} |")
        total.update(equal=verdict.equal, inlined=len(verdict.inlined), refused=len(verdict.refused), files=1)
        for text in (*verdict.wrong, *([verdict.error] if verdict.error else [])):
            print(f"WRONG {path.name}: {text}", file=sys.stderr)
            n_wrong += 1
    print(f"| **{total['files']} files** | {total['equal']} | {total['inlined']} | {total['refused']} |")
    return n_wrong


if __name__ == "__main__":
    raise SystemExit(main())

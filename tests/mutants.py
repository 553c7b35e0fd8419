"""Damage small files of every format at random, read them whole, and count how that ends.

``python -m tests.mutants --n 20000``, in the folder of the repository, prints a table. Each mutant is a function of its
number and the seed. Workers that are watched read them: one that dies is a crash, one that computes too long a hang.
Where values differ without an error, the library of the format says whether it reads the same; where everything has a
checksum, they must not differ at all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MAX_MEMORY_BYTES = 4 << 30  # beyond what a worker has when it begins
MAX_CPU_SECONDS = 20
MAX_WALL_SECONDS = 240
MAX_READ_BYTES = 1 << 22  # of one array; of longer ones a corner is read
MAX_FILE_BYTES = 40_000
SOUND = (
    "equal", "error", "refused", "differs, as the library reads", "differs, no checksum",
    "differs, library refuses, no checksum",
)  # fmt: skip
CHECKED = ("kerchunk.json.gz", "vstack")  # formats in which checksums cover everything


@dataclass(frozen=True)
class Subject:
    """A file or folder that is damaged: names within ``folder``, and which of them is opened."""

    format: str
    folder: Path
    entry: str

    @property
    def name(self) -> str:
        return f"{self.format}/{self.folder.name}/{self.entry}"

    def files(self) -> dict[str, bytes]:
        top = self.folder / self.entry
        paths = [top] if top.is_file() else sorted(x for x in top.rglob("*") if x.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}


# -- subjects ---------------------------------------------------------------------------------------------------------


def make_subjects(folder: Path) -> None:
    """Write what is damaged: small files of the corpus where there is one, generated ones, and references to some."""
    from tests.corpus.report import CORPUS
    from tests.data.make_hdf5 import BUILDERS, make
    from tests.formats.tiff.test_damage import SEEDS

    for kind in ("netcdf3", "hdf5", "grib", "tiff"):
        for path in sorted(x for x in (CORPUS / kind).glob("*") if x.is_file() and x.stat().st_size <= MAX_FILE_BYTES):
            target = folder / kind / path.stem
            target.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for name in BUILDERS:
        target = folder / "hdf5" / f"made_{name}"
        target.mkdir(parents=True)
        path = make(name, target)
        if path.stat().st_size > MAX_FILE_BYTES:
            shutil.rmtree(target)
    for name, write in SEEDS.items():
        target = folder / "tiff" / f"made_{name}"
        target.mkdir(parents=True)
        write(target / "a.tif")
    _make_references(folder)


def _make_references(folder: Path) -> None:
    import xarray as xr
    import zarr

    import virtualstack as vs

    source = folder / "source.nc"
    rng = np.random.default_rng(1)
    values = xr.Dataset(
        {
            "a": (("y", "x"), rng.integers(0, 99, (8, 6)).astype("i2"), {"units": "K", "scale_factor": 0.5}),
            "b": (("y", "x"), rng.normal(size=(8, 6)), {"long_name": "b"}),
            "text": ("y", np.array(list("abcdefgh"), "S3")),
        },
        coords={"y": np.arange(8.0), "x": np.arange(6)},
        attrs={"title": "t"},
    )
    encoding = {"a": {"chunksizes": (2, 6), "zlib": True}, "b": {"chunksizes": (4, 3), "fletcher32": True}}
    values.to_netcdf(source, engine="h5netcdf", encoding=encoding)
    dataset = vs.open_virtual_dataset(source)
    for suffix in ("json", "json.gz", "json.zst", "parq"):
        target = folder / f"kerchunk.{suffix}" / "made"
        target.mkdir(parents=True)
        dataset.virtual.to_kerchunk(target / f"r.{suffix}")
    target = folder / "vstack" / "made"
    target.mkdir(parents=True)
    dataset.isel(y=slice(0, 4)).virtual.to_vstack(target / "s.vstack")
    dataset.isel(y=slice(4, 8)).virtual.to_vstack(target / "s.vstack", append_dim="y")
    numbers = values.drop_vars("text")
    for version in (2, 3):
        target = folder / "zarr.zip" / f"v{version}"
        target.mkdir(parents=True)
        with zarr.storage.ZipStore(target / "a.zarr.zip", mode="w") as store, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            numbers.to_zarr(store, zarr_format=version, consolidated=version == 2, encoding={"a": {"chunks": (2, 6)}})
    target = folder / "zarr" / "sharded"
    target.mkdir(parents=True)
    numbers.to_zarr(
        target / "a.zarr",
        zarr_format=3,
        consolidated=False,
        encoding={"a": {"chunks": (2, 6), "shards": (4, 6)}, "b": {"chunks": (4, 3)}},
    )


def subjects(folder: Path) -> list[Subject]:
    """List what was made, the same each time."""
    found = []
    for kind in sorted(x for x in folder.iterdir() if x.is_dir()):
        for place in sorted(kind.iterdir()):
            found += [Subject(kind.name, place, path.name) for path in sorted(place.iterdir())]
    return found


# -- damage -----------------------------------------------------------------------------------------------------------


def damage(files: dict[str, bytes], places: dict[str, list[int]], rng: random.Random) -> None:
    """Change one file in place: half of the time where structures are, and else anywhere."""
    names = [name for name, data in sorted(files.items()) if data]
    needed = [name for name in names if name in places]
    name = rng.choice(needed if needed and rng.random() < 0.9 else names)
    data = bytearray(files[name])

    if name.endswith((".json", ".zmetadata", ".zarray")) and rng.random() < 0.7:
        files[name] = _other_token(files[name], rng)
        return

    def place() -> int:
        here = places.get(name)
        return rng.choice(here) if here and rng.random() < 0.5 else rng.randrange(len(data))

    match rng.randrange(12):
        case 0 | 1 | 2 | 3:
            for _ in range(rng.choice([1, 1, 1, 2, 8])):
                data[place()] ^= 1 << rng.randrange(8)
        case 4 | 5:
            for _ in range(rng.choice([1, 1, 3])):
                data[place()] = rng.choice([0, 1, 2, 127, 128, 254, 255, rng.randrange(256)])
        case 6:
            at, n = place(), rng.choice([2, 4, 8, 64, 512])
            data[at : at + n] = bytes(min(n, len(data) - at))
        case 7:
            del data[place() :]
        case 8:
            a, b, n = place(), place(), rng.choice([4, 8, 32, 200])
            one, other = bytes(data[a : a + n]), bytes(data[b : b + n])
            n = min(len(one), len(other))
            data[a : a + n], data[b : b + n] = other[:n], one[:n]
        case 9:
            a, b, n = place(), place(), rng.choice([1, 4, 32, 200])
            data[b:b] = data[a : a + n]
        case 10:
            at, size = place(), rng.choice([1, 2, 4, 8])
            order = rng.choice(["little", "big"])
            number = int.from_bytes(data[at : at + size], order)
            number = rng.choice([number + 1, number - 1, number * 2, number << 8, 0, -1, 1 << (8 * size - 1), 1 << 31])
            raw = (number % (1 << 8 * size)).to_bytes(size, order)
            data[at : at + size] = raw[: len(data) - at]
        case 11:
            at = place()
            del data[at : at + rng.choice([1, 2, 8, 64])]
    files[name] = bytes(data)


ODD_TOKENS = (b"0", b"-1", b"1", b"2", b"2147483648", b"9223372036854775808", b"1e400", b"1.5", b"null", b"true", b"[]")
ODD_TOKENS += (b"{}", b'""', b'"/"', b'"../x"', b'"NaN"', b'"|O"', b'"<M8[ns]"', b'"zlib"', b"[2147483648]", b"[[1]]")


def _other_token(text: bytes, rng: random.Random) -> bytes:
    """Put another value or name in the place of one of a JSON text, which mostly stays JSON."""
    tokens = list(re.finditer(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|null|true|false', text))
    token = rng.choice(tokens)
    word = token.group()
    if re.fullmatch(rb"-?[0-9]+", word) and rng.random() < 0.5:
        other = str(int(word) + rng.choice([-1, 1, 2, -2, 100, 2**31, -(2**31), 2**62])).encode()
    elif rng.random() < 0.4:
        other = rng.choice(tokens).group()
    else:
        other = rng.choice(ODD_TOKENS)
    return text[: token.start()] + other + text[token.end() :]


def structure_places(group: Any, path: Path) -> list[int]:
    """Return the offsets of bytes of a file that no chunk holds."""
    from virtualstack.location import absolute_url
    from virtualstack.manifests import FIRST
    from virtualstack.testing.readers import arrays_by_path

    is_structure = np.ones(path.stat().st_size, bool)
    url = absolute_url(path)
    for array in arrays_by_path(group).values():
        manifest = array.in_memory()
        for code, location in enumerate(manifest.locations, start=FIRST):
            if location.url == url:
                entries = manifest.entries.reshape(-1)
                for entry in entries[entries["location"] == code]:
                    is_structure[entry["offset"] : entry["offset"] + entry["length"]] = False
    return np.flatnonzero(is_structure).tolist()


# -- reading ----------------------------------------------------------------------------------------------------------


def described(path: Path) -> Any:
    """Read the group of a file as ``open_virtual_datatree`` does."""
    from virtualstack.formats.base import ReadOptions
    from virtualstack.scanning.many import scan
    from virtualstack.vstack.reader import VStack

    reader = VStack(allow=["file:///"]) if path.suffix == ".vstack" else None  # the source lies elsewhere
    (group,) = scan([path], reader=reader, options=ReadOptions(is_tree=True))
    return group


def contents(group: Any) -> tuple[dict[str, str], set[str]]:
    """Return a digest of each array and of attributes, and which were refused."""
    from virtualstack.reading import read_array

    found: dict[str, str] = {}
    refused = set()
    for path, node in group.walk():
        found[f"{path}@"] = repr((sorted(node.attributes.items()), sorted(node.dimensions.items()), node.unlimited))
        refused |= {x.path for x in node.refusals if x.kind == "refused"}
        for name, array in node.arrays.items():
            key: Any = ... if array.nbytes <= MAX_READ_BYTES else tuple(slice(0, 2) for _ in array.shape)
            values = np.asarray(read_array(array, key, None))
            raw = values.tobytes() if values.dtype.kind not in "OT" else repr(values.tolist()).encode()
            digest = hashlib.sha256(raw).hexdigest()[:16]
            found[f"{path}/{name}"] = f"{array.dtype} {array.shape} {array.dimension_names} {digest}"
            found[f"{path}/{name}@"] = repr((array.attributes, array.cf))
    return found, refused


def judged(subject: Subject, path: Path, sound: tuple[dict[str, str], set[str]]) -> tuple[str, str]:
    """Read a mutant; return how that ends, and details."""
    from virtualstack.errors import VirtualStackError

    try:
        group = described(path)
        found, refused = contents(group)
    except VirtualStackError as error:
        return "error", f"{type(error).__name__}: {error}"
    except BaseException as error:  # noqa: BLE001 - that is what is looked for
        return "UNTYPED ERROR", f"{type(error).__name__}: {error}"
    expected, refused_before = sound
    differ = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
    if not differ:
        return "equal", ""
    detail = "; ".join(f"{key}: {expected.get(key)} -> {found.get(key)}"[:300] for key in differ[:3])
    if subject.format in CHECKED:
        return "SILENT DIFFERENCE", detail
    if refused - refused_before:
        return "refused", detail
    return "differs", detail


def as_the_library(subject: Subject, path: Path) -> tuple[str, str]:
    """Compare a mutant whose values differ with what the library of its format reads."""
    import hdf5plugin  # noqa: F401 - filters that h5py asks for

    from tests.corpus.report import judge
    from tests.formats.netcdf3.comparison import netcdf4_values
    from virtualstack.testing.readers import difference

    if subject.format == "netcdf3":
        from virtualstack.reading import read_array

        try:
            theirs = netcdf4_values(path)
        except Exception as error:  # noqa: BLE001
            return "differs, library refuses, no checksum", f"{type(error).__name__}: {error}"
        ours = described(path).arrays
        wrong = [
            f"{name}: {text}"
            for name, values in theirs.items()
            if name[1:] in ours and (text := difference(values, read_array(ours[name[1:]], ())))
        ] + [f"{name} is missing" for name in theirs if name[1:] not in ours]
    elif subject.format == "hdf5":
        try:
            verdict = judge(path)
        except Exception as error:  # noqa: BLE001
            return "differs, library refuses", f"{type(error).__name__}: {error}"
        wrong = verdict.wrong
    elif subject.format in ("zarr", "zarr.zip"):
        import zarr

        from virtualstack.reading import read_array

        ours = described(path).arrays
        wrong = []
        store = zarr.storage.ZipStore(path, mode="r") if path.is_file() else path
        try:
            theirs = dict(zarr.open_group(store, mode="r").arrays())
            for name in theirs.keys() & ours.keys():
                if text := difference(np.asarray(theirs[name][...]), read_array(ours[name], ())):
                    wrong.append(f"{name}: {text}")
        except Exception as error:  # noqa: BLE001
            return "differs, library refuses", f"{type(error).__name__}: {error}"
        wrong += [f"{name} is missing" for name in theirs.keys() - ours.keys()]
    elif subject.format == "grib":
        from virtualstack.child.pool import run_in_child

        try:
            theirs = {
                np.sort(values + 0.0, axis=None).tobytes()
                for _, values in run_in_child("tests.data.make_grib:fields_of", path)
            }
        except Exception as error:  # noqa: BLE001
            return "differs, library refuses, no checksum", f"{type(error).__name__}: {error}"
        wrong = [
            f"the field at byte {at}"
            for at, x in grib_fields(path)
            if np.sort(x + 0.0, axis=None).tobytes() not in theirs
        ]
    else:
        return "differs, no checksum", ""
    return ("OTHER THAN THE LIBRARY", "; ".join(wrong)) if wrong else ("differs, as the library reads", "")


def grib_fields(path: Path) -> Iterator[tuple[int, Any]]:
    """Yield where each field of a file lies, and its values, in any order of points."""
    from virtualstack.manifests import FIRST
    from virtualstack.reading import read_array

    for _, node in described(path).walk():
        for name in node.arrays.keys() - node.coordinates:
            array = node.arrays[name]
            entries, values = array.in_memory().entries, read_array(array, ..., None)
            for cell in np.argwhere(entries["location"] >= FIRST):
                n_axes = values.ndim - (1 if array.dimension_names[-1] == "values" else 2)
                yield int(entries["offset"][tuple(cell)]), np.asarray(values[tuple(cell[:n_axes])])


# -- workers and those who watch them ---------------------------------------------------------------------------------


def mutant(subjects_: list[Subject], places: dict[str, dict[str, list[int]]], number: int, seed: int) -> Any:
    """Return the subject and files of a mutant."""
    rng = random.Random(f"{seed} {number}")
    formats = sorted({x.format for x in subjects_})
    kind = formats[number % len(formats)]
    subject = rng.choice([x for x in subjects_ if x.format == kind])
    files = subject.files()
    damage(files, places.get(subject.name, {}), rng)
    return subject, files


def work(folder: Path, numbers: list[int], seed: int, judge_only: bool) -> None:
    """Read mutants, and say before and after each which one it is."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + MAX_MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    all_subjects = subjects(folder)
    known = json.loads((folder / "known.json").read_text())
    by_name = {subject.name: subject for subject in all_subjects if subject.name in known["sound"]}
    own = Path(tempfile.mkdtemp(dir=folder.parent))
    for number in numbers:
        subject, files = mutant(list(by_name.values()), known["places"], number, seed)
        place = own / "m"
        for name, data in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
        print(json.dumps(["begin", number, subject.name]), file=answers)
        signal.setitimer(signal.ITIMER_PROF, MAX_CPU_SECONDS)
        if judge_only:
            end = as_the_library(subject, place / subject.entry)
        else:
            expected, refused = known["sound"][subject.name]
            end = judged(subject, place / subject.entry, (expected, set(refused)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(["end", number, subject.name, *end]), file=answers)
        shutil.rmtree(place)


def prepare(folder: Path) -> None:
    """Write what undamaged subjects hold; those that cannot be read, or slowly, are left out."""
    sound, places = {}, {}
    for subject in subjects(folder):
        path = subject.folder / subject.entry
        try:
            begin = time.process_time()
            group = described(path)
            found, refused = contents(group)
            took = time.process_time() - begin
            if contents(described(path))[0] != found or took > 0.5:
                continue
        except Exception as error:  # noqa: BLE001 - it is read badly without damage, too
            print(f"left out {subject.name}: {error}"[:200], file=sys.stderr)
            continue
        sound[subject.name] = found, sorted(refused)
        if path.is_file():
            places[subject.name] = {subject.entry: structure_places(group, path)}
        else:
            places[subject.name] = {name: [] for name in subject.files() if is_needed(subject, name, found)}
    (folder / "known.json").write_text(json.dumps({"sound": sound, "places": places}))


def is_needed(subject: Subject, name: str, found: dict[str, str]) -> bool:
    """Tell whether a file of a folder has a part in what is read: others are for other tools, or older."""
    from virtualstack.errors import VirtualStackError

    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(subject.folder, place, dirs_exist_ok=True)
        (Path(place) / name).write_bytes(b"?")
        try:
            return contents(described(Path(place) / subject.entry))[0] != found
        except VirtualStackError:
            return True


def watched(folder: Path, numbers: list[int], seed: int, judge_only: bool = False) -> Iterator[list[Any]]:
    """Yield ``[number, subject, outcome, detail]``; workers that die or hang are started again behind the mutant."""
    left = list(numbers)
    while left:
        text = ",".join(map(str, left))
        command = [sys.executable, "-m", "tests.mutants", "--folder", str(folder), "--seed", str(seed), "--work"]
        command += ["--judge"] if judge_only else []
        with (folder.parent / f"log-{os.getpid()}-{id(left)}").open("wb") as log:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(text.encode())
        process.stdin.close()
        current: list[Any] = [left[0], "?"]
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            buffer = b""
            is_hung = False
            while True:
                if not selector.select(MAX_WALL_SECONDS):
                    process.kill()
                    is_hung = True
                    break
                if not (data := os.read(process.stdout.fileno(), 1 << 16)):
                    break
                *lines, buffer = (buffer + data).split(b"\n")
                for line in map(json.loads, lines):
                    if line[0] == "begin":
                        current = line[1:]
                    else:
                        left = left[1:]
                        yield line[1:]
        status = process.wait()
        process.stdout.close()
        if left:
            how = "HANG" if is_hung or status == -signal.SIGPROF else "CRASH"
            left = left[1:]
            yield [*current, f"{'LIBRARY ' if judge_only else ''}{how}", f"exit status {status}"]


def run(folder: Path, n: int, seed: int, *, first: int = 0, show: Any = None) -> list[list[Any]]:
    """Read mutants in two workers at once, those that differ once more beside the library."""
    from concurrent.futures import ThreadPoolExecutor

    numbers = list(range(first, first + n))

    def part(which: int) -> list[list[Any]]:
        found = []
        for end in watched(folder, numbers[which::2], seed):
            found.append(end)
            if show:
                show(end)
        return found

    with ThreadPoolExecutor(2) as pool:
        ends = [end for found in pool.map(part, range(2)) for end in found]
    unsure = [end[0] for end in ends if end[2] == "differs"]
    second = {end[0]: end for end in watched(folder, unsure, seed, judge_only=True)}
    return [[*second[end[0]], end[3]] if end[0] in second else end for end in ends]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--work", action="store_true")
    parser.add_argument("--judge", action="store_true")
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.folder, [int(x) for x in sys.stdin.read().split(",")], arguments.seed, arguments.judge)
        return 0
    folder = arguments.folder or Path(tempfile.mkdtemp()) / "subjects"
    if not (folder / "known.json").exists():
        folder.mkdir(parents=True)
        make_subjects(folder)
        prepare(folder)

    def show(end: list[Any]) -> None:
        if end[2] not in (*SOUND, "differs"):
            print(*end[:3], str(end[3])[:400], flush=True)

    ends = run(folder, arguments.n, arguments.seed, first=arguments.first, show=show)
    counts = Counter((end[1].split("/")[0], end[2]) for end in ends)
    for end in ends:
        if end[2] not in SOUND and len(end) > 4:
            print(*end[:3], *(str(x)[:400] for x in end[3:]), sep=" | ")
    for (kind, how), count in sorted(counts.items()):
        print(f"{kind:20} {how:35} {count}")
    if arguments.folder is None:
        with suppress(OSError):
            shutil.rmtree(folder.parent)
    return int(any(end[2] not in SOUND for end in ends))


if __name__ == "__main__":
    sys.exit(main())

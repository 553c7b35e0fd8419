"""Damaged and hostile vstacks, made of good ones: ``python -m tests.vstack.fuzz --n 20000``.

Each mutation is read whole. Damage of stored bytes has to give the right values or an error of ours; documents and
rows that were changed on purpose, with right checksums, may say something else, but nothing but values and errors of
ours may come of them, in bounded time and memory.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import itertools
import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import traceback
import zlib
from dataclasses import replace
from functools import cache
from unittest import mock

import numpy as np
from numcodecs import blosc

from tests.scanning.groups import assert_same_values
from virtualstack.errors import VirtualStackError
from virtualstack.formats.base import ReadOptions
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.inline import inline_array
from virtualstack.reading import read_array
from virtualstack.storage import Storage, memory
from virtualstack.testing.strategies import ZLIB, store_array
from virtualstack.vstack.format import archive, rows
from virtualstack.vstack.format.documents import load
from virtualstack.vstack.format.names import shard_mark, snapshot_key
from virtualstack.vstack.reader import VStack
from virtualstack.vstack.save import save
from virtualstack.vstack.write import edit, segment

PAGE_ROWS, SHARD_PAGES, MEMORY, SECONDS = 8, 2, 3 << 30, 20  # seconds of the processor
OBJECTS = memory._OBJECTS
ATTRIBUTES = {
    "text": "abc",
    "n": 3,
    "long": 2**80,
    "nan": float("nan"),
    "bytes": b"abc",
    "pair": (1, [2.0, None]),
    "array": np.arange(6.0).reshape(2, 3),
    "scalar": np.float32(2),
    "nested": {"a": {"b": 1}},
    "texts": np.array(["a", "b"], np.dtypes.StringDType()),
    "record": np.zeros(2, [("a", "<i2"), ("b", ">f8", (2,))]),
}
NUMBERS = (
    -1,
    0,
    1,
    2,
    3,
    7,
    255,
    4096,
    2**16,
    2**24,
    2**31 - 1,
    2**31,
    2**32,
    2**40,
    2**53,
    2**61,
    2**62,
    2**62 + 1,
    2**63 - 1,
    -(2**31),
    -(2**62),
    -(2**63),
)
ODD = (
    *NUMBERS,
    2**63,
    2**64 - 1,
    2**64,
    10**400,
    -(2**63) - 1,
    0.5,
    1.0,
    1e300,
    -0.0,
    float("nan"),
    float("inf"),
    None,
    True,
    False,
    "",
    "../x",
    "./../../x",
    "/",
    "..",
    "a/../b",
    "\u0000",
    "a" * 100_000,
    "|O",
    "O",
    "<f4",
    "|V0",
    "<U1000000000",
    "string",
    "<M8[ns]",
    "<M8[0s]",
    "<i4,<f4",
    ",".join(["f4"] * 5000),
    "(1000000,)f8",
    [["a", "|O"]],
    [["a", "<f4"], ["a", "<f4"]],
    [["", "|V4"]],
    [["a", "<f4", [2**40]]],
    [["a", "<f4", [-1]]],
    {},
    [],
    [[]],
    [None],
    {"a": 1},
    [2**62, 2**62],
    {"array": ["<f8", [2**40], [0, 8]]},
    {"array": ["<f8", [-1], [0, 8]]},
    {"array": ["|V0", [2**62], [0, 0]]},
    {"int": "9" * 10_000},
    {"int": "a"},
    {"float": "0x" + "1" * 9999},
    {"strings": [[2**40], []]},
    {"strings": [[1], [1]]},
    {"dict": []},
    {"tuple": 1},
    {"name": "numcodecs.pickle", "configuration": {}},
    {"name": "blosc", "configuration": {"typesize": 2**40}},
    {"name": "gone"},
    {"name": "transpose", "configuration": {"order": [5]}},
    "file:///etc/passwd",
    "http://10.0.0.1/a",
    "memory://",
    "0" * 24,
    "/a/b/c/d",
)


def set_small() -> None:
    """Make pages and tables short, so that a small store has many."""
    rows.PAGE_ROWS = PAGE_ROWS
    rows.SHARD_PAGES = archive.SHARD_PAGES = segment.SHARD_PAGES = SHARD_PAGES
    edit.MAX_TAIL_ROWS, edit.FULL_PAGE_ROWS = 2, 3
    segment.MAX_LISTED_SOURCES, archive.MAX_LISTED_SOURCES = 2, 2
    segment.PAGE_SOURCES, archive.PAGE_SOURCES = 3, 3


def make(url: str, seed: int) -> None:
    """Write a store of a few snapshots that has everything, the same each time."""
    with (
        mock.patch("time.time_ns", side_effect=itertools.count(0, 10**6)),
        mock.patch("time.time", return_value=0.0),
        mock.patch("secrets.token_hex", lambda n: "ab" * n),
    ):
        _make(url, seed)


def _make(url: str, seed: int) -> None:
    rng = np.random.default_rng(seed)

    def array(shape, chunks, **options):
        values = rng.integers(0, 100, shape).astype(options.pop("dtype", "<i4"))
        known = store_array(values, chunks, url=f"memory://fuzz/src/{rng.integers(2**40)}", **options)
        OBJECTS.update(known.sources)
        return known.array

    holes = np.array([[0, 1], [2, 0]], np.uint8)
    plain = array((4, 6), (2, 3), codecs=(ZLIB,), holes=holes)
    odd = np.concatenate([array((3, 6), (2, 4)), array((2, 6), (2, 4), stored_dtype=">i4", order=(1, 0))])[::-1, 1:]
    inline = array((5, 4), (2, 2), is_inline=True, codecs=(ZLIB,), dtype="<f8")
    many = np.concatenate([array((3,), (1,), dtype="<i2") for _ in range(9)])
    coords = {
        "lat": inline_array(np.arange(4.0), name="lat", dims=["lat"], attributes=ATTRIBUTES),
        "names": inline_array(np.array(["a", "bc"], np.dtypes.StringDType()), name="names", dims=["n"], attributes={}),
    }
    named = {
        name: replace(
            x, name=name, dimension_names=tuple(f"{name}{i}" for i in range(x.ndim)), attributes={"units": "K"}
        )
        for name, x in {"plain": plain, "odd": odd, "inline": inline, "many": many}.items()
    }
    child = ManifestGroup(arrays={"odd": named["odd"]}, attributes=ATTRIBUTES)
    group = ManifestGroup(
        arrays={**coords, **named}, groups={"a": ManifestGroup(groups={"b": child})}, dimensions={"lat": 4}
    )
    save(group, f"memory://{url}", relative=True)
    for _ in range(5):
        back = read(f"memory://{url}")
        stored = back.arrays["plain"]
        grown = replace(np.concatenate([stored, array((2, 6), (2, 3))]), attributes=stored.attributes, name="plain")
        grown = replace(grown, dimension_names=stored.dimension_names)
        save(replace(back, arrays={**back.arrays, "plain": grown}), f"memory://{url}", mode="w")


def read(url: str) -> ManifestGroup:
    return VStack().read(url, Storage.from_option(None), ReadOptions())


def contents(url: str) -> dict[str, object]:
    """Read everything; of arrays that are large, corners alone."""
    group = read(url)
    found: dict[str, object] = {path: (dict(x.attributes), dict(x.dimensions)) for path, x in group.walk()}
    for path, node in group.walk():
        for name, array in node.arrays.items():
            key = (
                ...
                if array.size < 1 << 16
                else tuple(slice(n - 1, None) if n % 2 else slice(0, 2) for n in array.shape)
            )
            found[f"{path}/{name}"] = {
                "values": read_array(array, key, None),
                "dims": array.dimension_names,
                "attributes": dict(array.attributes),
                "cf": dict(array.cf),
            }
    return found


# -- mutations ------------------------------------------------------------------------------------------------


@cache
def bomb(begin: str, text: str, n: int, end: str) -> bytes:
    """Compress a text that is repeated, without having it in memory."""
    compressor = zlib.compressobj(1, wbits=31)
    part = text.encode() * 4096
    parts = (compressor.compress(part) for _ in range(n // 4096))
    return (
        compressor.compress(begin.encode()) + b"".join(parts) + compressor.compress(end.encode()) + compressor.flush()
    )


def damaged(store: dict[str, bytes], rng: random.Random) -> None:
    """Change stored bytes, as disks and networks do."""
    key = rng.choice(sorted(store))
    data = bytearray(store[key])
    match rng.randrange(8):
        case 0 | 1 | 2:
            for _ in range(rng.choice([1, 1, 2, 20])):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        case 3:
            del data[rng.randrange(len(data)) :]
        case 4:
            data += rng.choice([b"\0", b"}", bytes(data), rng.randbytes(50)])
        case 5:
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(1, 64)] = bytes(rng.randrange(1, 64))
        case 6:
            if key != newest(store):  # without it the store is what it was before
                del store[key]
            return
        case 7:
            other = rng.choice(sorted(store))
            store[key], store[other] = store[other], store[key]
            return
    store[key] = bytes(data)


def hostile(store: dict[str, bytes], rng: random.Random) -> None:
    """Change what a store says, with checksums that are right."""
    kinds = [("json", 12), ("rows", 4), ("page", 2), ("index", 2), ("bundle", 2), ("bomb", 1), ("text", 3), ("keys", 1)]
    kind = rng.choices([x for x, _ in kinds], [n for _, n in kinds])[0]
    {
        "json": odd_json,
        "rows": odd_rows,
        "page": odd_page,
        "index": odd_index,
        "bundle": odd_bundle,
        "bomb": bombs,
        "text": odd_text,
        "keys": odd_keys,
    }[kind](store, rng)


def documents(store: dict[str, bytes]) -> list[str]:
    head = newest(store)
    return [key for key in sorted(store) if key.endswith(".json.gz") and ("/snapshots/" not in key or key == head)]


def newest(store: dict[str, bytes]) -> str:
    return min(key for key in store if key.startswith(".vstack/snapshots/"))


def pick(store: dict[str, bytes], rng: random.Random) -> str:
    keys = documents(store)
    return newest(store) if rng.random() < 0.6 else rng.choice(keys)


def odd_json(store: dict[str, bytes], rng: random.Random) -> None:
    key = pick(store, rng)
    document = json.loads(gzip.decompress(store[key]))
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        change(document, rng)
    store[key] = gzip.compress(json.dumps(document).encode(), 1)


def change(node: object, rng: random.Random) -> None:
    while isinstance(node, dict | list) and node:
        at = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        inner = node[at]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.85:
            node = inner
            continue
        match rng.randrange(8):
            case 0:
                del node[at]
            case 1 if isinstance(inner, int):
                node[at] = inner + rng.choice([-1, 1, -2, 2, 8, -8, 2**32, 2**62])
            case 2:
                node[at] = rng.choice(list(node.values()) if isinstance(node, dict) else node)
            case 3:
                node.update({rng.choice(["", "x", "..", "/x", "a/b", "O"]): inner}) if isinstance(
                    node, dict
                ) else node.append(inner)
            case 4 if isinstance(inner, list):
                node[at] = inner * rng.choice([2, 1000])
            case 5 if isinstance(inner, int):
                node[at] = rng.choice(NUMBERS)
            case _:
                node[at] = rng.choice(ODD)
        return


def odd_text(store: dict[str, bytes], rng: random.Random) -> None:
    key = pick(store, rng)
    text = gzip.decompress(store[key])
    at = rng.randrange(len(text))
    what = rng.choice(
        [
            b"NaN",
            b"Infinity",
            b"-",
            b"[" * 10,
            b"[" * 100_000,
            b'{"a":' * 500_000,
            b"1e999",
            b'"',
            b",",
            b"0",
            b"\xff",
            b"\\ud800",
            b"\0",
            b"[[" * 600 + b"]]" * 600,
        ]
    )
    match rng.randrange(4):
        case 0:
            text = text[:at] + what + text[at:]
        case 1:
            text = text[:at] + what
        case 2:
            begin = text.find(b":", at) + 1
            text = text[:begin] + what + text[begin:]
        case 3:  # a field twice
            text = (
                text[:-1]
                + b',"'
                + rng.choice([b"arrays", b"groups", b"rows", b"number", b"prefixes"])
                + b'":'
                + rng.choice([b"{}", b"[]", b"null", b"0"])
                + b"}"
            )
    store[key] = gzip.compress(text, 1)


def bombs(store: dict[str, bytes], rng: random.Random) -> None:
    store[pick(store, rng)] = rng.choice(
        [
            bomb("", " ", 1 << 30, "{}"),
            bomb('{"rows":[', "{},[],", 1 << 25, "0]}"),
            bomb('{"rows":[', "[],", 1 << 22, "0]}"),
            bomb("", "[", 1 << 24, ""),
            bomb("", '{"a":', 1 << 24, ""),
            bomb('{"rows":[', "0,", 1 << 22, "0]}"),
            bomb('{"rows":"', "a", 1 << 27, '"}'),
            gzip.compress(b"{}") * 3,
            zlib.compress(b"{}"),
            b"",
            b"\x1f\x8b",
        ]
    )


def odd_keys(store: dict[str, bytes], rng: random.Random) -> None:
    key, name = (
        newest(store),
        rng.choice(
            [
                "zzz",
                "0",
                "000000000000.json.gz",
                "99999999999a.json.gz",
                "-00000000001.json.gz",
                "\u0661" * 12 + ".json.gz",
                snapshot_key(77).rpartition("/")[2],
            ]
        ),
    )
    store[f".vstack/snapshots/{name}"] = store[key]


def shards(store: dict[str, bytes]) -> list[str]:
    return [key for key in sorted(store) if "/refs/c/" in key]


def unpacked(data: bytes) -> tuple[list[bytes], bytes]:
    """Pages of a shard, without their checksums, and its mark."""
    for n in range(1, SHARD_PAGES + 1):
        tail = data[-16 * n - 4 : -4]
        if rows._checksum(tail) == data[-4:]:
            index = np.frombuffer(tail, "<u8").reshape(-1, 2)
            spots = [(int(o), int(m)) for o, m in index if o != rows.NO_CHUNK]
            return [data[o : o + m - 4] for o, m in spots], data[-16 * n - 20 : -16 * n - 4]
    raise AssertionError("no shard")


def packed(store: dict[str, bytes], key: str, pages: list[bytes], n: int, mark: bytes, rng: random.Random) -> None:
    """Put a shard together again, and say its size wherever it is said."""
    data = rows.encode_shard([page + rows._checksum(page) for page in pages], n, mark)
    resized(store, key, data)


def resized(store: dict[str, bytes], key: str, data: bytes) -> None:
    name, shard = key.split("/")[2], int(key.rpartition("/")[2])
    store[key] = data
    for other in documents(store):
        document = load(store[other], url=other)  # bounded: another mutation may have made a bomb of it
        listed = document.get("segments", {}).get("tail", []) + document.get("rows", [])
        for row in listed:
            if isinstance(row, dict) and row.get("name") == name:
                row["shards"][shard] = len(data)
                store[other] = gzip.compress(json.dumps(document).encode(), 1)


def odd_rows(store: dict[str, bytes], rng: random.Random) -> None:
    key = rng.choice(shards(store))
    pages, mark = unpacked(store[key])
    at = rng.randrange(len(pages))
    page = np.frombuffer(bytearray(blosc.decompress(pages[at])), "<i8")
    for _ in range(rng.choice([1, 1, 3])):
        i = rng.randrange(len(page))
        page[i] = rng.choice(NUMBERS) if rng.random() < 0.6 else int(page[i]) + rng.choice([-1, 1, 2, -3, 100])
    pages[at] = blosc.compress(page, b"zstd", 3, 2)
    packed(store, key, pages, max(len(pages), 1), mark, rng)


def lying(frame: bytes, rng: random.Random) -> bytes:
    """A blosc frame whose header says something else, or whose body is damaged."""
    data = bytearray(frame)
    if rng.random() < 0.5:
        struct.pack_into(
            "<I", data, rng.choice([4, 8, 12]), rng.choice([0, 1, 15, 16, 100, 2**20, 2**31 - 1, 2**31, 2**32 - 1])
        )
    else:
        for _ in range(rng.choice([1, 4])):
            data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data[: rng.randrange(len(data))]) if rng.random() < 0.1 else bytes(data)


def odd_page(store: dict[str, bytes], rng: random.Random) -> None:
    key = rng.choice(shards(store))
    pages, mark = unpacked(store[key])
    at = rng.randrange(len(pages))
    pages[at] = lying(pages[at], rng)
    packed(store, key, pages, max(len(pages), 1), mark, rng)


def odd_index(store: dict[str, bytes], rng: random.Random) -> None:
    key = rng.choice(shards(store))
    data = store[key]
    pages, mark = unpacked(data)
    n = len(pages)
    index = np.frombuffer(bytearray(data[-16 * n - 4 : -4]), "<u8")
    for _ in range(rng.choice([1, 2])):
        index[rng.randrange(len(index))] = rng.choice(
            [0, 1, 4, 19, 20, len(data), len(data) - 1, 2**31, 2**62, 2**63, 2**64 - 1, 2**64 - 8]
        )
    tail = index.tobytes()
    name = bytes.fromhex(key.split("/")[2])
    mark = rng.choice([mark, mark, mark, shard_mark(name.hex(), 1), bytes(16)])
    resized(store, key, data[: -16 * n - 20] + mark + tail + rows._checksum(tail))


def odd_bundle(store: dict[str, bytes], rng: random.Random) -> None:
    head = newest(store)
    document = json.loads(gzip.decompress(store[head]))
    key = f".vstack/bundles/{document['bundle']['name']}"
    node = rng.choice([x for x in document["arrays"].values() if x["bundled"]])
    offset, length = node["bundled"]
    frame = lying(store[key][offset : offset + length], rng)
    if rng.random() < 0.2:
        frame = blosc.compress(bytes(1 << 28), b"zstd", 1, 0, 0, 1)
    data = store[key] + frame
    node["bundled"] = [len(store[key]), len(frame)]
    document["bundle"] |= {"size": len(data), "crc32": zlib.crc32(data)}
    store[key], store[head] = data, gzip.compress(json.dumps(document).encode(), 1)


# -- outcomes -------------------------------------------------------------------------------------------------


class Slow(BaseException):
    pass


def alarm(*_: object) -> None:
    raise Slow


def attempt(base: dict[str, bytes], wanted: dict[str, object], seed: int) -> str:
    """Read one mutation, and say what came of it; one that begins with ``BAD`` should not be."""
    rng = random.Random(seed)
    store = dict(base)
    is_damage = rng.random() < 0.3
    try:
        for _ in range(rng.choice([1, 1, 1, 2])):
            (damaged if is_damage else hostile)(store, rng)
    except Exception:  # noqa: BLE001 - a second one finds what the first has left
        pass
    url = f"memory://fuzz/{seed}"
    keys = {f"{url}/{key}": data for key, data in store.items()}
    OBJECTS.update(keys)
    begin = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        found = contents(url)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if not is_damage:
            return "read"
        try:
            assert_same_values(found, wanted)
        except AssertionError:
            return "BAD damage gives other values"
        return "same"
    except VirtualStackError as error:
        return type(error).__name__
    except Slow:
        return "BAD slow"
    except BaseException as error:  # noqa: BLE001 - whatever it is
        last = traceback.extract_tb(error.__traceback__)[-1]
        ours = [x for x in traceback.extract_tb(error.__traceback__) if "/virtualstack/" in x.filename][-1]
        where = f"{ours.filename.rpartition('/')[2]}:{ours.lineno} ({last.name})"
        return f"BAD {type(error).__name__} in {where}: {str(error)[:80]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        for key in keys:
            del OBJECTS[key]
        if time.process_time() - begin > 5:
            print(f"slow {seed}: {time.process_time() - begin:.1f} s", flush=True)


def work(first: int, n: int) -> None:
    """Read some mutations in this process, within limits."""
    set_small()
    make("fuzz/base", 0)
    base = {
        key.removeprefix("memory://fuzz/base/"): data
        for key, data in OBJECTS.items()
        if key.startswith("memory://fuzz/base/.vstack")
    }
    wanted = contents("memory://fuzz/base")
    signal.signal(signal.SIGPROF, alarm)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for seed in range(first, first + n):
        print(f"{seed} {attempt(base, wanted, seed)}", flush=True)
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, "MiB", flush=True)


def fuzz(n: int, first: int = 0, at_once: int = 500) -> collections.Counter[str]:
    """Read mutations in processes of their own; one that dies or hangs is an outcome too."""
    outcomes: collections.Counter[str] = collections.Counter()
    begin, end = first, first + n
    while begin < end:
        own = min(at_once, end - begin)
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "tests.vstack.fuzz",
            "--work",
            str(begin),
            str(own),
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=60 + 2 * own,
                env={**os.environ, "MALLOC_ARENA_MAX": "2"},
            )
            output, status = done.stdout, done.returncode
        except subprocess.TimeoutExpired as error:
            output, status = (error.stdout or b"").decode(), "hangs"
        last = begin - 1
        for line in output.splitlines():
            number, _, what = line.partition(" ")
            if number.isdigit():
                last = int(number)
                outcomes[what] += 1
                if what.startswith("BAD"):
                    print(last, what, flush=True)
            else:
                print(line, flush=True)
        if last < begin:
            raise RuntimeError(done.stderr)
        if status and last < begin + own - 1:
            last += 1
            outcomes[f"BAD process ends with {status}"] += 1
            print(last, "BAD process ends with", status, done.stderr[:3000] if status != "hangs" else "", flush=True)
        begin = last + 1
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--work", type=int, nargs=2)
    given = parser.parse_args()
    if given.work:
        work(*given.work)
    else:
        for what, count in fuzz(given.n, given.first).most_common():
            print(count, what)

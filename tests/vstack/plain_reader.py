"""A reader of local vstacks in plain Python, written from docs/reference/vstack.md; slow, and short."""

import base64
import gzip
import itertools
import json
import math
import warnings
import zlib
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import zarr
from numcodecs import blosc
from numpy.lib.format import descr_to_dtype
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.registry import get_codec_class
from zarr.storage import MemoryStore

PAGE, SHARD, SOURCES, PART, ABSENT, EMPTY, INLINE = 32768, 64, 4096, 1 << 40, -1, -2, -3
WEB = "http://", "https://"


def snapshots(folder: Path) -> list[int]:
    return [10**12 - 1 - int(file.name[:12]) for file in sorted((folder / ".vstack/snapshots").iterdir())]


class Store:
    def __init__(self, folder: Path, at: int | None = None):
        self.folder = folder.absolute() / ".vstack"
        number = snapshots(folder)[0] if at is None else at
        self.snapshot = self.document(f"snapshots/{10**12 - 1 - number:012d}.json.gz")
        check(self.snapshot["vstack_format"] == 1 and self.snapshot["number"] == number, "snapshot")
        self.heap = base64.b64decode(self.snapshot["heap"])
        self.segments = [Segment(self, row) for row in self.rows(self.snapshot["segments"])]

    def document(self, key: str) -> dict:
        return json.loads(gzip.decompress((self.folder / key).read_bytes()))

    def rows(self, table: dict) -> list:
        pages = [(n, self.document(f"pages/{name}.json.gz")["rows"]) for name, n, *_ in table["pages"]]
        check(all(len(rows) == n for n, rows in pages), "page of a table")
        return [*itertools.chain.from_iterable(rows for _, rows in pages), *table["tail"]]

    def groups(self) -> dict[str, dict]:
        groups = self.snapshot["groups"].items()
        return {path: {**group, "attributes": self.value({"dict": group["attributes"]})} for path, group in groups}

    def arrays(self) -> dict[str, dict]:
        return {path: self.array(node) for path, node in self.snapshot["arrays"].items()}

    def value(self, data):
        if not isinstance(data, dict):
            return [self.value(x) for x in data] if isinstance(data, list) else data
        ((kind, data),) = data.items()
        match kind:
            case "array" | "scalar":
                return np.ndarray(data[1], to_dtype(data[0]), cut(self.heap, *data[2]))[... if kind == "array" else ()]
            case "strings":
                return np.array(data[1], np.dtypes.StringDType()).reshape(data[0])
            case "dict":
                return {name: self.value(x) for name, x in data.items()}
        convert = {"bytes": lambda x: cut(self.heap, *x), "tuple": lambda x: tuple(map(self.value, x))}
        return {**convert, "int": int, "float": float}[kind](data)

    def array(self, node: dict) -> dict:
        dtype, encodings = to_dtype(node["dtype"]), node["encodings"]
        raws = [cut(self.heap, *spot) for spot in node["fill_values"]]
        fills = [raw.decode() if dtype.kind == "T" else np.ndarray((), dtype, raw)[()] for raw in raws]
        values = np.full(node["shape"], fills[0], dtype)
        edges = [self.edges(n, chunk) for n, chunk in zip(node["shape"], node["chunk_shapes"], strict=True)]
        if node["bundled"] is not None:
            bundle = (self.folder / "bundles" / self.snapshot["bundle"]["name"]).read_bytes()
            check(zlib.crc32(bundle) == self.snapshot["bundle"]["crc32"], "bundle")
            frame = cut(bundle, *node["bundled"])
            check(len(frame) == int.from_bytes(frame[12:16], "little"), "frame in the bundle")
            values[...] = to_cell(blosc.decompress(frame), encodings[0], values.shape, 0)
        hidden = np.zeros([len(edge) - 1 for edge in edges], bool)
        for segment, first, base, fill, *numbers in reversed(self.rows(node["placements"])):
            strides, begins, counts = np.reshape(numbers, (3, values.ndim)).tolist()
            ends = [min(b + n, m) for b, n, m in zip(begins, counts, hidden.shape, strict=True)]
            for cell in [x for x in itertools.product(*map(range, begins, ends)) if not hidden[x]]:
                hidden[cell] = True
                row = first + math.sumprod(map(int.__sub__, cell, begins), strides)
                box = tuple(slice(edge[i], edge[i + 1]) for edge, i in zip(edges, cell, strict=True))
                code, start, raw = self.segments[segment].chunk(row)
                shape = np.shape(values[box])
                values[box] = fills[fill + code] if raw is None else to_cell(raw, encodings[base + code], shape, start)
        attributes = self.value({"dict": node["attributes"] | node["cf"]})
        return {**node, "values": values, "fill_value": fills[0], "attributes": attributes}

    def edges(self, length: int, chunk) -> list[int]:
        if isinstance(chunk, int):
            return [*range(0, length, chunk), length]
        edges = [0, *np.cumsum(np.frombuffer(cut(self.heap, *chunk), "<i8")).tolist()]
        check(edges[-1] == length, "lengths of chunks")
        return edges

    def location(self, number: int, suffix: str, mtime: float | None) -> tuple[Path, float | None]:
        text = written = self.snapshot["prefixes"][number] + suffix
        for x in self.snapshot["relocations"]:
            if number < x["n_prefixes"] and text.startswith(x["old"]):
                rest, into = text.removeprefix(x["old"]), x["new"].startswith(WEB) - x["old"].startswith(WEB)
                text = x["new"] + [rest, rest.translate({35: "%23", 37: "%25", 63: "%3F"}), unquote(rest)][into]
        if text.startswith(("./", "../")):
            parts = unquote(text.partition("/")[2]).replace("\\", "/").split("/")
            check(not {"", ".", ".."} & set(parts), f"location '{text}'")
            return self.folder.parent / text, None
        check(text.startswith("file:///"), f"location '{text}', which is not local")
        return Path(text.removeprefix("file://")), mtime if text == written else None


class Segment:
    def __init__(self, store: Store, row: dict):
        self.store, self.row, self.key, self.columns = store, row, f"segments/{row['name']}", None

    def read(self) -> None:
        n, last, end, pages = self.row["rows"], None, 0, []
        length, self.columns = min(n, PAGE), np.zeros((5, n), np.int64)
        for k in range(len(self.row["shards"])):
            shard = (self.store.folder / f"{self.key}/refs/c/0/{k}").read_bytes()
            index = np.frombuffer(shard[-4 - 16 * min(-(-n // length), SHARD) : -4], "<i8").reshape(-1, 2)
            frames = [cut(shard, a, b - 4) for a, b in index.tolist() if a >= 0]
            pages += [np.frombuffer(blosc.decompress(frame), "<i8").reshape(-1, length) for frame in frames]
        if pages:
            self.columns[: self.row["columns"]] = np.hstack(pages)[:, :n]
        for i in range(n):
            last = last if i % PAGE else None
            source, gap, length = self.columns[:3, i].tolist()
            if source >= 0 or source == INLINE:
                self.columns[1, i] = gap + (end if source == last else 0)
                last, end = source, self.columns[1, i] + length
        numbers = range(-(-self.row["n_sources"] // SOURCES)) if self.row["sources"] is None else ()
        pages = [self.store.document(f"{self.key}/sources/{k}.json.gz") for k in numbers]
        columns = [[x[name] for x in pages or [self.row["sources"]]] for name in ("prefix", "suffix", "size", "mtime")]
        self.sources = list(zip(*map(itertools.chain.from_iterable, columns), strict=True))
        check(len(self.sources) == self.row["n_sources"], "sources")

    def chunk(self, row: int) -> tuple[int, int, bytes | None]:
        if self.columns is None:
            self.read()
        check(0 <= row < self.row["rows"], f"row {row}")
        source, offset, length, code, start = self.columns[:, row].tolist()
        if source in (ABSENT, EMPTY):
            return code, 0, None
        if source == INLINE:
            part, offset = divmod(offset, PART)
            path, size, mtime = self.store.folder / self.key / "heap" / str(part), self.row["heap"][part], None
        else:
            prefix, suffix, size, mtime = self.sources[source]
            path, mtime = self.store.location(self.row["prefixes"][prefix], suffix, mtime)
        check(size in (None, path.stat().st_size) and mtime in (None, path.stat().st_mtime), f"version of '{path}'")
        with path.open("rb") as file:
            file.seek(offset)
            raw, checksum = cut(file.read(length), 0, length), file.read(4)
        summed = zlib.crc32(f"{self.row['name']}/{part}".encode() + raw) if source == INLINE else 0
        check(source != INLINE or summed == int.from_bytes(checksum, "little"), f"checksum in '{path}'")
        return code, start, raw


def check(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"the store is damaged: {what}")


def cut(data: bytes, offset: int, length: int) -> bytes:
    check(0 <= offset <= offset + length <= len(data), f"{length} bytes at {offset}")
    return data[offset : offset + length]


def to_dtype(data) -> np.dtype:
    return np.dtypes.StringDType() if data == "string" else descr_to_dtype(to_descr(data))


def to_descr(data):
    if isinstance(data, str):
        return data
    return [(tuple(x[0]) if type(x[0]) is list else x[0], to_descr(x[1]), *map(tuple, x[2:])) for x in data]


def to_cell(raw: bytes, encoding: dict, shape: tuple[int, ...], start: int) -> np.ndarray:
    flat = decode(raw, to_dtype(encoding["dtype"]), encoding["shape"], encoding["codecs"]).reshape(-1)
    index = sum(np.ix_(*(np.arange(n) * step for n, step in zip(shape, encoding["strides"], strict=True))), start)
    check(np.min(index) >= 0 and np.max(index) < flat.size, "cell beyond its chunk")
    return flat[index]


def decode(raw: bytes, dtype: np.dtype, shape: list[int], codecs: list[dict]) -> np.ndarray:
    if not codecs:
        check(len(raw) == math.prod(shape) * dtype.itemsize, "bytes of a chunk")
        return np.frombuffer(raw, dtype).reshape(shape)
    steps, objects = [get_codec_class(codec["name"]).from_dict(codec) for codec in codecs], {}
    kinds = ArrayArrayCodec, ArrayBytesCodec, BytesBytesCodec
    filters, serializers, rest = ([step for step in steps if isinstance(step, kind)] for kind in kinds)
    if not serializers:
        options = [codec["configuration"] for codec in codecs]
        named = [x[key] for x in options for key in ("encode_dtype", "astype", "data_type") if key in x]
        stored = np.dtype(named[-1]) if named else dtype
        serializers = [zarr.codecs.BytesCodec(endian="little" if stored == stored.newbyteorder("<") else "big")]
    plain = np.dtype(f"V{dtype.itemsize}") if dtype.names else dtype  # zarr takes no fields of arrays
    with warnings.catch_warnings(action="ignore"):
        options = {"filters": filters, "serializer": serializers[0], "compressors": rest}
        array = zarr.create_array(MemoryStore(objects), shape=shape, chunks=tuple(shape), dtype=plain, **options)
        objects["/".join(["c", *"0" * len(shape)])] = default_buffer_prototype().buffer.from_bytes(raw)
        return np.asarray(array[...], plain).view(dtype)

"""Values of GRIB messages beside eccodes' own float32, two threads beside zlib, and scans beside cfgrib's index."""

import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cfgrib
import eccodes
import numpy as np
import pytest

import virtualstack as vs
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.make_grib import message
from virtualstack import cache
from virtualstack.codecs.grib.codec import grib_decoder
from virtualstack.codecs.grib.fields import last_field
from virtualstack.formats.grib.walk import Walk
from virtualstack.location import absolute_url
from virtualstack.readers import ReadOptions
from virtualstack.storage import Storage

pytestmark = pytest.mark.filterwarnings("ignore")  # of cfgrib
CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "grib"
DECODE = grib_decoder({})
SECONDS = 0.2 if IS_FULL else 0.0
N_SIDE, N_MESSAGES = (1000, 24) if IS_FULL else (50, 4)


def own(raw):
    """Decode with eccodes alone, to float32; some packings it has in float64 only."""
    handle = eccodes.codes_new_from_message(raw)
    try:
        return eccodes.codes_get_float_array(handle, "values")
    except eccodes.FunctionNotImplementedError:
        return eccodes.codes_get_double_array(handle, "values").astype("f4")
    finally:
        eccodes.codes_release(handle)


def packings():
    """Give the largest field of each packing of the corpus, as a message."""
    best = {}
    for path in sorted(CORPUS.glob("*")):
        data = path.read_bytes()
        for field in Walk(Storage().source(absolute_url(path))):
            raw = last_field(data[field.offset : field.offset + field.length])
            handle = eccodes.codes_new_from_message(raw)
            name = f"{eccodes.codes_get_string(handle, 'packingType')} {field.edition}"
            n = eccodes.codes_get_size(handle, "values")
            eccodes.codes_release(handle)
            if n > best.get(name, (0,))[0]:
                best[name] = n, raw
    return best


def repeated(decode, raw, n):
    for _ in range(n):
        found = decode(raw)
    return found


def synthetic(packing, bits=16):
    x, y = np.meshgrid(np.linspace(0, 20, N_SIDE), np.linspace(0, 9, N_SIDE))
    values = 280 + 20 * np.sin(x) * np.cos(y) + np.random.default_rng(0).normal(size=x.shape)
    keys = {"Ni": N_SIDE, "Nj": N_SIDE, "iDirectionIncrementInDegrees": 0.05, "jDirectionIncrementInDegrees": 0.01}
    return message({**keys, "bitsPerValue": bits}, values=values, after={"packingType": packing})


MADE = ["grid_simple", "grid_ccsds", "grid_second_order"]


@pytest.mark.skipif(not CORPUS.exists(), reason=f"no corpus at {CORPUS}")
def test_decode_corpus():
    """Each packing of the corpus; ratios to eccodes are in the last column."""
    for name, (size, raw) in sorted(packings().items()):
        begin = time.perf_counter()
        own(raw)
        n = max(int(SECONDS / (time.perf_counter() - begin)), 1)
        found = interleaved(
            f"{name}: {n} x {size} points",
            {
                "eccodes": lambda raw=raw, n=n: repeated(own, raw, n),
                "codec": lambda raw=raw, n=n: repeated(DECODE, raw, n),
            },
        )
        assert found["codec"].result.size == found["eccodes"].result.size


@pytest.mark.parametrize("packing", MADE)
def test_decode_made(packing):
    """A million points of weather."""
    raw = synthetic(packing)
    found = interleaved(
        f"{packing}: {N_MESSAGES} x {N_SIDE}^2 points",
        {"eccodes": lambda: repeated(own, raw, N_MESSAGES), "codec": lambda: repeated(DECODE, raw, N_MESSAGES)},
    )
    np.testing.assert_allclose(found["codec"].result, found["eccodes"].result, rtol=1e-6)


@pytest.mark.parametrize("packing", MADE)
def test_two_threads(packing):
    """How much faster two threads are than one: of this codec, of eccodes, and of zlib."""
    raw = synthetic(packing)
    packed = zlib.compress(np.random.default_rng(0).integers(0, 50, N_SIDE * N_SIDE * 4).astype("u1").tobytes(), 6)
    work = {"zlib": (zlib.decompress, packed), "eccodes": (own, raw), "codec": (DECODE, raw)}
    runs = {}
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(2) as two:
        for name, (decode, data) in work.items():
            for n, pool in ((1, one), (2, two)):
                runs[f"{name} x{n}"] = lambda decode=decode, data=data, pool=pool: list(
                    pool.map(decode, [data] * N_MESSAGES)
                )
        found = interleaved(f"{packing}: {N_MESSAGES} messages on threads", runs)
    scaling = {name: found[f"{name} x1"].wall / found[f"{name} x2"].wall for name in work}
    print("  scaling", {name: f"{x:.2f}" for name, x in scaling.items()})
    assert len(found["codec x2"].result) == N_MESSAGES


def test_scan(tmp_path):
    """Keys of a file of a model: 24 parameters on 25 levels; without any known, and with all."""
    path = tmp_path / "x.grib2"
    with path.open("wb") as file:
        for number in range(24 if IS_FULL else 3):
            for level in range(25):
                place = {"typeOfLevel": "isobaricInhPa", "level": 10 * level + 10, "generatingProcessIdentifier": 9}
                file.write(message({"parameterCategory": 1, "parameterNumber": number, **place}))

    def scanned(*, is_cold):
        if is_cold:
            cache._clear_all()
        return vs.scan([path], reader=vs.readers.GRIB(), options=ReadOptions(is_part=True))

    def indexed():
        stream = cfgrib.messages.FileStream(str(path))
        return cfgrib.messages.FileIndex.from_indexpath_or_filestream(stream, cfgrib.dataset.INDEX_KEYS, indexpath="")

    found = interleaved(
        f"scan {path.name}",
        {
            "cold": lambda: scanned(is_cold=True),
            "warm": lambda: scanned(is_cold=False),
            "tree, cold": lambda: (cache._clear_all(), vs.open_virtual_datatree(path))[1],
            "tree, warm": lambda: vs.open_virtual_datatree(path),
            "cfgrib": indexed,
        },
    )
    n = sum(len(offsets) for _, offsets in found["cfgrib"].result.field_ids_index)
    for name, timing in found.items():
        print(f"  {name:<14} {timing.cpu / n * 1e6:7.1f} us a message")
    assert len(found["cold"].result[0].arrays["fields"].in_memory().inline) % n == 0

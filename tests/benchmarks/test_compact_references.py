"""How small references are, and how fast they open; run with VIRTUALSTACK_BENCHMARK=full for 10^6.

An archive of 1,000 files with 1,000 chunks each and URLs of 112 characters, whose chunks are of one length, or not.
Generators of kerchunk are timed on a hundredth of it: fsspec renders each with jinja.
"""

import json

import numpy as np
import pytest

import virtualstack as vs
from tests.benchmarks.rivals import needs
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.arrays import referenced_array
from virtualstack.codecs.codec import Codec
from virtualstack.kerchunk.writer import write_kerchunk
from virtualstack.manifests import ManifestGroup

FILES, GRID = (1000, (100, 10)) if IS_FULL else (20, (5, 4))
URL = "s3://noaa-nwm-retrospective-3-0-pds/CONUS/netcdf/FORCING/precip/2011/{:08d}.LDASIN_DOMAIN1.some_longer_name.nc"
pytestmark = needs("kerchunk")


def archive(lengths):
    places = {"urls": [URL.format(i) for i in range(FILES)], "offsets": 20_000 + lengths.cumsum(1) - lengths}
    codecs, names = [Codec.from_config("numcodecs.zlib", level=1)], ("t", "y", "x")
    shape, chunks = (FILES, GRID[0] * 100, GRID[1] * 1000), (1, 100, 1000)
    how = {"codecs": codecs, "fill": np.nan, "dimension_names": names}
    return ManifestGroup(arrays={"v": referenced_array(shape, chunks, **places, lengths=lengths, **how)})


def with_templates(references):
    urls = dict.fromkeys(x[0] for x in references["refs"].values() if isinstance(x, list))
    names = {url: f"u{i:x}" for i, url in enumerate(urls)}
    refs = {
        key: ["{{" + names[x[0]] + "}}", *x[1:]] if isinstance(x, list) else x for key, x in references["refs"].items()
    }
    return {"version": 1, "templates": {name: url for url, name in names.items()}, "refs": refs}


def size(path):
    return path.stat().st_size if path.is_file() else sum(x.stat().st_size for x in path.rglob("*") if x.is_file())


def first_with_fsspec(path):
    from fsspec.implementations.reference import ReferenceFileSystem

    options = {"target_options": {"compression": "gzip"}} if path.suffix == ".gz" else {}
    files = ReferenceFileSystem(fo=str(path), remote_protocol="memory", skip_instance_cache=True, **options)
    return [int(x) for x in files.references["v/0.1.1"][1:]]


def first_with_ours(path):
    vds = vs.open_virtual_dataset(str(path), loadable_variables=[])
    entry = vds["v"].variable._data[:1, 100:101, 1000:1001].in_memory().entries.reshape(-1)[0]
    return [int(entry["offset"]), int(entry["length"])]


@pytest.mark.parametrize("kind", ["of one length", "of any length"])
def test_forms(kind, tmp_path):
    """The same references in each form, opened up to the first chunk."""
    from kerchunk.df import refs_to_dataframe

    n = GRID[0] * GRID[1]
    rng = np.random.default_rng(0)
    lengths = np.full((FILES, n), 50_000) if kind == "of one length" else rng.integers(40_000, 60_000, (FILES, n))
    group = archive(lengths)
    names = ["refs.parq", "refs.json", "refs.json.gz", "refs.json.zst"]
    for name in names:
        write_kerchunk(group, tmp_path / name)
    references = json.loads((tmp_path / "refs.json").read_bytes())
    (tmp_path / "templates.json").write_text(json.dumps(with_templates(references), separators=(",", ":")))
    refs_to_dataframe(references, str(tmp_path / "kerchunk.parq"), record_size=100_000)
    others = ["kerchunk.parq", "templates.json"]
    print(f"\n{lengths.size} references to chunks {kind}, bytes each")
    for name in names + others:
        print(f"  {name:<16} {size(tmp_path / name) / lengths.size:9.3f}")
    wanted = [20_000 + int(lengths[0, : GRID[1] + 1].sum()), int(lengths[0, GRID[1] + 1])]
    for what, first, left_out in (("fsspec", first_with_fsspec, "refs.json.zst"), ("ours", first_with_ours, None)):
        rivals = {
            name: (lambda path=tmp_path / name, first=first: first(path)) for name in names + others if name != left_out
        }
        for name, timing in interleaved(f"open them with {what}", rivals, repeats=2).items():
            assert timing.result == wanted, name

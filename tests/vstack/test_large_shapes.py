"""Arrays of many axes, and cubes of more sources than a page of them has."""

import numpy as np
import pytest

from tests.vstack.stores import create, open_store, opened
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray
from virtualstack.vstack.repository import Repository


def array_of(order, shape, *, n_sources=1):
    """Chunks of one element, whose bytes follow each other in the order of some axes."""
    at = np.arange(np.prod(shape)).reshape([shape[i] for i in order]).transpose(np.argsort(order))
    entries = np.zeros(shape, ENTRY)
    entries["location"] = FIRST + at % n_sources
    entries["offset"] = at // n_sources * 4
    entries["length"] = 4
    encoding = ChunkEncoding.c_order("<i4", (1,) * len(shape))
    locations = tuple(Location(f"file:///data/{i:06}.bin", 400_000) for i in range(n_sources))
    manifest = ChunkManifest(
        entries=entries, encodings=(encoding,), fills=(Fill.from_value(-1, "<i4"),), locations=locations
    )
    return ManifestArray(
        manifest=manifest,
        grid=ChunkGrid.regular(shape, (1,) * len(shape)),
        dtype=np.dtype("<i4"),
        name="v",
        dimension_names=tuple("abcdef"[: len(shape)]),
        attributes={},
    )


def same(a, b):
    a, b = a.in_memory(), b.in_memory()
    urls = [np.array([x.url for x in m.locations])[m.entries["location"] - FIRST] for m in (a, b)]
    np.testing.assert_array_equal(*urls)
    for name in ("offset", "length"):
        np.testing.assert_array_equal(a.entries[name], b.entries[name])


@pytest.mark.parametrize(
    "order", [(0, 1), (1, 0), (2, 0, 1), (3, 1, 0, 2), (0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 4, 1, 0, 3)]
)
@pytest.mark.parametrize("is_long", [False, True])
def test_chunks_in_any_order_of_axes(order, is_long, tmp_path):
    """Their rows are written in the order of the bytes, and cells come back in C order."""
    shape = tuple(2 + (i + is_long) % 2 for i in range(len(order)))
    shape = (*shape, 1) if is_long and len(order) < 5 else shape
    order = (*order, len(order)) if len(shape) > len(order) else order
    array = array_of(order, shape)
    create(tmp_path / "x.vstack", {"v": array})
    same(opened(tmp_path / "x.vstack")[2].arrays["v"], array)


@pytest.mark.parametrize("shape", [(2, 20_000), (20_000, 2), (3, 2, 9_000), (200, 200)])
@pytest.mark.parametrize("is_turned", [False, True])
def test_chunks_of_long_axes(shape, is_turned, tmp_path):
    """Their order is found out from some of them."""
    order = tuple(range(len(shape)))[:: -1 if is_turned else 1]
    array = array_of(order, shape, n_sources=3)
    create(tmp_path / "x.vstack", {"v": array})
    same(opened(tmp_path / "x.vstack")[2].arrays["v"], array)


@pytest.mark.parametrize("n", [4095, 4096, 4097, 8193])
def test_sources_fill_pages_of_4096(n, tmp_path):
    """Each page is an object, and each object is named."""
    array = array_of((0,), (n,), n_sources=n)
    url = tmp_path / "x.vstack"
    create(url, {"v": array})
    objects, snapshot, group = opened(url)
    same(group.arrays["v"], array)
    segment = open_store(objects, snapshot).archive(snapshot).segment(0)
    assert segment.n_sources == n
    n_pages = -(-n // 4096)
    keys = segment.keys()
    assert len(set(keys)) == len(keys)
    stored = {str(path.relative_to(url)) for path in url.rglob("*") if path.is_file() and segment.name in str(path)}
    assert {key for key in keys if (url / key).is_file()} == set(keys)
    assert stored <= set(keys), stored - set(keys)
    assert segment.n_pages == (1 if segment.sources is not None else n_pages)
    archive = open_store(objects, snapshot).archive(snapshot)
    rows = [row for page in range(segment.n_pages) for row in archive.source_rows(segment, page)]
    assert len(rows) == n
    same(Repository.open(url).open_virtual_dataset().v.data, array)

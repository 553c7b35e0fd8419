"""What is written to a vstack is what is read from it, whatever the data model can hold."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.errors import CombineError, SourceNotFoundError, WriterError
from virtualstack.formats.base import ReadOptions
from virtualstack.manifests import ChunkManifest, ManifestArray, ManifestGroup
from virtualstack.manifests.inline import inline_array
from virtualstack.storage import Storage
from virtualstack.testing.strategies import basic_keys, known_arrays, model_read
from virtualstack.vstack.reader import VStack
from virtualstack.vstack.save import save

MANY = settings(max_examples=examples(100), deadline=None, suppress_health_check=list(HealthCheck))
SERIAL = itertools.count()


@st.composite
def changed_arrays(draw):
    """Arrays after some operations: cut, flipped, joined with others, padded with holes."""
    known = draw(known_arrays())
    array, values, sources = known.array, known.values, dict(known.sources)
    for _ in range(draw(st.integers(0, 3))):
        match draw(st.sampled_from(["index", "transpose", "join", "pad"])):
            case "index":
                key = (*draw(basic_keys(values.shape)), ...)
                array, values = array[key], np.asarray(values[key])
            case "transpose":
                array, values = array.T, values.T
            case "join" if values.ndim:
                axis = draw(st.integers(0, values.ndim - 1))
                shape = list(values.shape)
                shape[axis] = draw(st.integers(0, 5))
                other = draw(known_arrays(shape=tuple(shape), dtype=values.dtype.str))
                array = np.concatenate([array, other.array], axis)
                values = np.concatenate([values, other.values.astype(values.dtype)], axis)
                sources |= other.sources
            case "pad" if values.ndim:
                width = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in values.shape]
                fill = array.manifest.tables.fill.value
                array = np.pad(array, width, constant_values=fill)
                values = np.pad(values, width, constant_values=fill)
    return array, values, sources


def named(array: ManifestArray) -> ManifestArray:
    return replace(array, name="v", dimension_names=tuple(f"d{i}" for i in range(array.ndim)))


def read(url, **options) -> ManifestGroup:
    return VStack(**options).read(url, Storage.from_option(None), ReadOptions())


@MANY
@given(st.data())
def test_an_array_comes_back_as_it_was(data):
    """Whatever its grid, encodings, starts, holes and inline chunks: the same array, and the same values."""
    array, values, sources = data.draw(changed_arrays())
    url = f"memory://round/{next(SERIAL)}.vstack"
    save(ManifestGroup(arrays={"v": named(array)}, attributes={"a": 1}), url)
    back = read(url)
    assert back.attributes == {"a": 1}
    found = back.arrays["v"]
    assert found.grid == array.grid
    assert found.dtype == array.dtype
    assert found.equals(named(array))
    np.testing.assert_array_equal(model_read(found.whole(), sources), values)


@MANY
@given(st.data())
def test_any_cells_are_found(data):
    """Single cells, in any order and repeated, are those of the whole manifest."""
    array, _, _ = data.draw(changed_arrays())
    url = f"memory://cells/{next(SERIAL)}.vstack"
    save(ManifestGroup(arrays={"v": named(array)}), url)
    found = read(url).arrays["v"].manifest
    shape = found.shape
    if not all(shape):
        return
    whole = array.in_memory()
    n = data.draw(st.integers(1, 6))
    cells = tuple(np.array(data.draw(st.lists(st.integers(0, k - 1), min_size=n, max_size=n))) for k in shape)
    picked = found.pick(cells)
    assert isinstance(picked, ChunkManifest)
    wanted = whole.pick(cells)
    assert described(picked) == described(wanted)


def described(manifest: ChunkManifest) -> list[object]:
    """Say of every cell what shows it, whatever the codes."""
    found: list[object] = []
    starts = np.zeros(manifest.shape, np.int64) if manifest.starts is None else manifest.starts
    for entry, start in zip(manifest.entries.reshape(-1), starts.reshape(-1), strict=True):
        code, row, offset, length = entry.tolist()
        if code < 2:
            found.append((code, manifest.fills[row]))
        elif code == 2:
            found.append((manifest.inline[offset : offset + length], manifest.encodings[row].decoding(), int(start)))
        else:
            where = manifest.locations[code - 3]
            found.append((where, manifest.encodings[row].decoding(), offset, length, int(start)))
    return found


def growing(data, url):
    """Give what is stored, its values and its sources: of an array, and each time that another is joined to it."""
    array, values, sources = data.draw(changed_arrays())
    if not values.ndim or not values.size:
        return
    axis = data.draw(st.integers(0, values.ndim - 1))
    save(ManifestGroup(arrays={"v": named(array)}), url)
    stored, wanted = read(url).arrays["v"], values
    yield stored, wanted, sources
    for _ in range(data.draw(st.integers(1, 4))):
        shape = list(values.shape)
        shape[axis] = data.draw(st.integers(0, 4))
        other = data.draw(known_arrays(shape=tuple(shape), dtype=values.dtype.str))
        sources |= other.sources
        is_first = data.draw(st.booleans())
        parts = [other.array, stored] if is_first else [stored, other.array]
        try:
            joined = np.concatenate(parts, axis)
        except CombineError:
            return
        both = [other.values.astype(values.dtype), wanted]
        wanted = np.concatenate(both if is_first else both[::-1], axis)
        save(ManifestGroup(arrays={"v": named(joined)}), url, mode="w")
        stored = read(url).arrays["v"]
        yield stored, wanted, sources


@MANY
@given(st.data())
def test_an_array_that_grows_is_the_join(data):
    """Joining what lies in the store with something new writes the new part alone, and reads as the join."""
    for stored, wanted, sources in growing(data, f"memory://grown/{next(SERIAL)}.vstack"):
        assert stored.shape == wanted.shape
        np.testing.assert_array_equal(model_read(stored.whole(), sources), wanted)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
@pytest.mark.parametrize("is_group", [False, True])
def test_names_that_make_no_path_are_refused(name, is_group):
    """Nothing is written: what is committed can be read."""
    array = inline_array(np.arange(3), name="v", dims=["x"], attributes={})
    group = ManifestGroup(groups={name: ManifestGroup()}) if is_group else ManifestGroup(arrays={name: array})
    url = f"memory://names/{next(SERIAL)}.vstack"
    with pytest.raises(WriterError, match="Rename it"):
        save(group, url)
    with pytest.raises(SourceNotFoundError):
        read(url)

"""Characters become text of one length: the same values, and no byte read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtualstack.codecs.codec import Codec
from virtualstack.manifests import join_characters
from virtualstack.manifests.array import cast
from virtualstack.testing.strategies import ZLIB, in_pages, known_arrays, model_read, store_array


def as_text(values):
    """What numpy makes of characters along the last axis."""
    n = values.shape[-1]
    return np.ascontiguousarray(values).view(f"S{n}")[..., 0] if n else np.zeros(values.shape[:-1], "S1")


@given(st.data())
def test_texts_are_what_numpy_makes_of_characters(data):
    """Whatever the chunks, codecs, holes and pages; where it cannot, characters do not lie side by side."""
    shape = tuple(data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    known = data.draw(known_arrays(shape=shape, dtype="|S1"))
    array, values, sources = known
    step = data.draw(st.sampled_from([None, np.s_[::2], np.s_[::-1], np.s_[1:]]))
    if step is not None and values.ndim > 1:
        array, values = replace(array[step], dimension_names=array.dimension_names), values[step]
    text = join_characters(array)
    if text is None:
        lengths = {x.shape[-1] for x in array.in_memory().encodings}
        axis_moved = any(x.strides[-1] != 1 for x in array.in_memory().encodings)
        assert array.grid.axes[-1].n_cells > 1 or lengths != {shape[-1]} or axis_moved
        return
    text.validate()
    expected = as_text(values)
    assert (text.shape, text.dtype, text.dimension_names) == (
        expected.shape,
        expected.dtype,
        array.dimension_names[:-1],
    )
    np.testing.assert_array_equal(model_read(text, sources), expected)


@pytest.mark.parametrize("codecs", [(), (ZLIB,)])
@pytest.mark.parametrize("is_paged", [False, True])
@pytest.mark.parametrize("fill", [b"", b"-"])
def test_whole_texts_are_never_refused(codecs, is_paged, fill):
    values = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz1234", "S1").reshape(5, 2, 3)
    holes = np.array([0, 1, 2], np.uint8).reshape(3, 1, 1)
    known = store_array(values, (2, 2, 3), url="memory://text", codecs=codecs, fill=fill, holes=holes)
    array = in_pages(known.array, 2)[0] if is_paged else known.array
    text = join_characters(array)
    assert text is not None
    np.testing.assert_array_equal(model_read(text, known.sources), as_text(known.values))
    assert text.manifest.fills[0].value == fill * 3


def test_what_is_no_whole_text_is_refused():
    values = np.frombuffer(b"abcdefghijkl", "S1").reshape(4, 3)
    split = store_array(values, (4, 2), url="memory://split").array
    padded = store_array(values, (4, 5), url="memory://padded").array
    turned = store_array(values, (4, 3), url="memory://turned", order=(1, 0)).array
    whole = store_array(values, (4, 3), url="memory://whole").array
    (encoding,) = whole.manifest.encodings
    moved = replace(encoding, codecs=(Codec.from_config("transpose", order=[1, 0]),))
    unknown = replace(encoding, codecs=(Codec("not.installed"),))
    others = [replace(whole, manifest=replace(whole.manifest, encodings=(x,))) for x in (moved, unknown)]
    longer = store_array(values, (4, 3), url="memory://longer").array
    cut = replace(longer, manifest=cast(longer.manifest, np.dtype("S1")))
    for array in (split, padded, turned, *others, cut):
        assert join_characters(array) is None
    for odd in (whole[0, 0], store_array(np.zeros((2, 2), "i1"), (2, 2), url="memory://i").array):
        with pytest.raises(ValueError, match="is none of characters"):
            join_characters(odd)

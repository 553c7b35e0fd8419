"""Casting: chunks of one dtype read as another, whole and in part, as numpy casts their values."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.properties.test_reading import check, outer_keys, publish
from virtualstack.errors import ChunkDecodeError, CombineError
from virtualstack.reading import read_array
from virtualstack.storage import Storage
from virtualstack.testing.strategies import known_arrays, store_array

STORAGE = Storage.from_option(None)

MANY = settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
NUMBERS = ("|i1", "<i2", ">i4", "<u8", ">f4", "<f8", "<c8")


@MANY
@given(st.data())
def test_numbers_of_two_dtypes_join_to_the_one_that_numpy_finds(data):
    """Chunks are cast when they are read, holes too; joined once more, what is cast is cast again."""
    dtypes = st.sampled_from(NUMBERS)
    parts = [data.draw(known_arrays(dtype=data.draw(dtypes), shape=(5, 3))) for _ in range(3)]
    for part in parts:
        publish(part.sources)
    arrays, values = [part.array for part in parts], [part.values for part in parts]
    found = np.concatenate([np.concatenate(arrays[:2]), arrays[2]])
    expected = np.concatenate([np.concatenate(values[:2]), values[2]])
    found.validate()
    check(found, expected, data.draw(outer_keys(expected.shape)))


@MANY
@given(st.data())
def test_texts_of_other_lengths_join_to_the_longest(data):
    lengths = st.sampled_from(["|S1", "|S3", "|S8"])
    parts = [data.draw(known_arrays(dtype=data.draw(lengths), shape=(5, 3))) for _ in range(3)]
    for part in parts:
        publish(part.sources)
    expected = np.concatenate([part.values for part in parts])
    found = np.concatenate([part.array for part in parts])
    assert found.dtype == expected.dtype
    check(found, expected, data.draw(outer_keys(expected.shape)))


@MANY
@given(st.data())
def test_a_cast_array_reads_as_its_values_cast(data):
    """With every selection of it, and after any slice."""
    known = data.draw(known_arrays(dtype=data.draw(st.sampled_from(NUMBERS[:4]))))
    publish(known.sources)
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "c16", "i1", "u2", "?"])))
    check(known.array.astype(dtype), known.values.astype(dtype), data.draw(outer_keys(known.values.shape)))


@MANY
@given(st.data())
def test_chains_of_casts_are_those_of_numpy(data):
    """One through integers cuts fractions off, and one through few bits wraps."""
    known = data.draw(known_arrays(dtype=data.draw(st.sampled_from(NUMBERS[:6]))))
    publish(known.sources)
    array, values = known.array, known.values
    for dtype in data.draw(st.lists(st.sampled_from(["f4", "i1", "f8", "i8", "u8", "?"]), min_size=1, max_size=4)):
        if values.dtype.kind == "f" and np.dtype(dtype).kind in "iu" and (values < 0).any():
            continue  # undefined in C: see below
        array, values = array.astype(dtype), values.astype(dtype)
    check(array, values, data.draw(outer_keys(values.shape)))


@pytest.mark.parametrize(
    ("value", "dtype"), [(np.nan, "i4"), (np.inf, "u8"), (300.0, "i1"), (-1.5, "u2"), (2.0**63, "i8")]
)
def test_a_float_that_is_no_integer_of_the_dtype_is_an_error_when_it_is_read(value, dtype):
    """What C makes of it differs from machine to machine; other values of the array are read."""
    known = store_array(np.array([1.5, value]), (1,), url=f"memory://cast/{value}")
    publish(known.sources)
    array = known.array.astype(dtype)
    check(array[:1], np.array([1], dtype), (slice(None),))
    message = r"cannot be stored as dtype '\w+'\. The cause is the cast"
    with pytest.raises(ChunkDecodeError, match=message):
        read_array(array, (), STORAGE)


def test_holes_that_read_as_nan_have_no_place_among_integers():
    """An error at once, where there are such holes."""
    known = store_array(np.ones(4), (2,), url="memory://cast/holes", fill=np.nan, holes=np.array([0, 1], np.uint8))
    with pytest.raises(CombineError, match="missing chunks read as a value that it cannot store: nan"):
        known.array.astype("i4")
    assert known.array[:2].astype("i4").in_memory().fill.value == 0

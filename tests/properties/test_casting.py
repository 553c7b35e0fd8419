"""Casting: chunks of one dtype read as another, whole and in part, as numpy casts their values."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.properties.test_reading import check, outer_keys, publish
from virtualstack.testing.strategies import known_arrays

MANY = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
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
def test_a_cast_array_reads_as_its_values_cast(data):
    """With every selection of it, and after any slice."""
    known = data.draw(known_arrays(dtype=data.draw(st.sampled_from(NUMBERS[:4]))))
    publish(known.sources)
    dtype = np.dtype(data.draw(st.sampled_from(["f4", "f8", "c16"])))
    check(known.array.astype(dtype), known.values.astype(dtype), data.draw(outer_keys(known.values.shape)))

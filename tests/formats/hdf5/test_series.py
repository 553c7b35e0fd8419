"""Files of one product share what is equal in them, and nothing else: the result of a file never depends on others."""

import functools
import random
import sys

import numpy as np
import pytest

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from tests.scanning.groups import assert_same
from virtualstack.errors import VirtualStackError
from virtualstack.formats.hdf5.fetch import MetadataSource

HOW = {"zlib": True, "shuffle": True, "chunksizes": (1, 4, 8)}
STATES = {"flag_values": np.arange(3, dtype="i1"), "names": ["dry", "wet"], "_FillValue": -9}


def day(path, number, **changes):
    """Write a day of a product: dense and compact attributes, text of variable length, lists, two kinds of layouts."""
    values = np.random.default_rng(number).integers(0, 2 + number, (1, 8, 16))
    many = {f"a{i}": i * np.ones(i % 3 + 1, "i4") for i in range(12)} | {"long_name": "rain", "scale_factor": 0.5}
    variables = {
        "time": ("f8", "time", [number], {"units": "days since 2000-01-01"}),
        "lat": ("f4", "lat", np.arange(8), {"units": "degrees_north"}),
        "lon": ("f4", "lon", np.arange(16), {"units": "degrees_east"}),
        "rain": ("i2", "time lat lon", values, many | changes, HOW),
        "state": ("i1", "time lat lon", values % 3, STATES, HOW),
        "level": ("i4", "", number),
    }
    return netcdf4_file(path, {"time": None, "lat": 8, "lon": 16}, variables, title="rain", history=f"made {number}")


@pytest.fixture
def series(tmp_path):
    return [day(tmp_path / f"{i}.nc", i) for i in range(5)]


def caches():
    for name, module in list(sys.modules.items()):
        if name.startswith("virtualstack.formats.hdf5"):
            yield from (x for x in vars(module).values() if isinstance(x, functools._lru_cache_wrapper))


def clear():
    for cache in caches():
        cache.cache_clear()


def outcome(path):
    """Return the group of a file, or its error."""
    try:
        return vs.scan([path])[0]
    except VirtualStackError as error:
        return f"{type(error).__name__}: {error}"


def alone(path):
    clear()
    return outcome(path)


def assert_alike(found, wanted):
    if isinstance(wanted, str):
        assert found == wanted
    else:
        assert_same(found, wanted)


def test_a_file_after_others_is_as_it_is_alone(series):
    wanted = [alone(path) for path in series]
    clear()
    for path, group in zip(series, wanted, strict=True):
        assert_alike(outcome(path), group)
    assert sum(cache.cache_info().hits for cache in caches()) > 100


@pytest.mark.parametrize("seed", range(4))
def test_caches_may_be_cleared_at_any_time(series, monkeypatch, seed):
    wanted = [alone(path) for path in series]
    chance, get = random.Random(seed), MetadataSource.get

    def get_and_forget(self, request, /):
        if chance.random() < 0.05:
            clear()
        return get(self, request)

    monkeypatch.setattr(MetadataSource, "get", get_and_forget)
    for path, group in zip(series, wanted, strict=True):
        assert_alike(outcome(path), group)


def test_an_attribute_that_differs_in_one_file_is_that_of_its_file(tmp_path):
    paths = [day(tmp_path / f"{i}.nc", i, scale_factor=x) for i, x in enumerate([0.5, 0.25, 0.5, 0.125])]
    found = [group.arrays["rain"].cf["scale_factor"] for group in vs.scan(paths)]
    assert found == [0.5, 0.25, 0.5, 0.125]


def test_edits_of_a_result_do_not_reach_other_files(series):
    wanted = [alone(path) for path in series]
    clear()
    for path, group in zip(series, wanted, strict=True):
        found = outcome(path)
        assert_same(found, group)
        for array in found.arrays.values():
            for value in array.attributes.values():
                if isinstance(value, np.ndarray):
                    value[...] = 7
                elif isinstance(value, list):
                    value.append("more")
            array.attributes.clear()
            array.cf.clear()
        found.attributes.clear()


def test_damage_in_the_middle_of_a_series(series, tmp_path):
    raw = series[2].read_bytes()
    chance = np.random.default_rng(0)
    for number in range(150):
        at, value = int(chance.integers(0, len(raw))), int(chance.integers(1, 256))
        damaged = tmp_path / "damaged.nc"
        damaged.write_bytes(raw[:at] + bytes([raw[at] ^ value]) + raw[at + 1 :])
        wanted = alone(damaged)
        clear()
        outcome(series[0])
        outcome(series[1])
        assert_alike(outcome(damaged), wanted)
        if number % 15 == 0:
            after = outcome(series[3])
            assert_alike(after, alone(series[3]))

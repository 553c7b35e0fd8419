"""Files of one product share what is equal in them, and nothing else: the result of a file never depends on others."""

import functools
import random
import sys

import h5py
import numpy as np
import pytest
from numcodecs.jenkins import jenkins_lookup3

import virtualstack as vs
from tests.data.netcdf4 import netcdf4_file
from tests.scanning.groups import assert_same
from virtualstack.errors import VirtualStackError
from virtualstack.formats.hdf5 import templates
from virtualstack.formats.hdf5.fetch import MetadataSource
from virtualstack.formats.hdf5.products import PRODUCTS
from virtualstack.formats.hdf5.templates import TEMPLATES, Template, Templates

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


def plain(path, number, **options):
    """Write a day with h5py: data between the headers, so that their addresses differ, times, and references."""
    values = np.random.default_rng(number)
    with h5py.File(path, "w", **options) as file:
        file.attrs["made"] = f"2020-01-{number + 1:02} by hand"
        for name in "ab":
            group = file.create_group(name)
            noise = values.integers(0, 2 << number, 500)
            rain = group.create_dataset("rain", data=noise, chunks=(100,), compression="gzip", track_times=True)
            rain.attrs["mean"] = noise.mean()
            rain.attrs["of"] = file.ref
            rain.attrs["units"] = "mm"
            state = group.create_dataset("state", (4,), data=np.arange(4) + number)
            state.make_scale("state")
            rain.dims[0].attach_scale(state) if name == "b" else None
            for i in range(20 * (name == "b")):
                state.attrs[f"many{i}"] = i + number
    return path


KINDS = {
    "netCDF4": day,
    "h5py": plain,
    "h5py, latest": functools.partial(plain, libver="latest"),
    "h5py, in order": functools.partial(plain, libver="v108", track_order=True),
}


@pytest.fixture(params=KINDS)
def series(request, tmp_path):
    return [KINDS[request.param](tmp_path / f"{i}.nc", i) for i in range(5)]


def caches():
    for name, module in list(sys.modules.items()):
        if name.startswith("virtualstack.formats.hdf5"):
            yield from (x for x in vars(module).values() if isinstance(x, functools._lru_cache_wrapper))


def clear():
    TEMPLATES.clear()
    PRODUCTS.clear()
    for cache in caches():
        cache.cache_clear()


def outcome(path, reader=None):
    """Return the group of a file, or its error."""
    try:
        return vs.scan([path], reader=reader)[0]
    except VirtualStackError as error:
        return f"{type(error).__name__}: {error}"


def alone(path, reader=None):
    clear()
    return outcome(path, reader)


def assert_alike(found, wanted):
    if isinstance(wanted, str):  # which of several faults is found first depends on what is known
        assert isinstance(found, str)
        assert found.partition(":")[0] == wanted.partition(":")[0]
    else:
        assert_same(found, wanted)


def test_a_file_after_others_is_as_it_is_alone(series):
    wanted = [alone(path) for path in series]
    clear()
    for path, group in zip(series, wanted, strict=True):
        assert_alike(outcome(path), group)
    assert sum(cache.cache_info().hits for cache in caches()) > 50


def test_files_of_a_product_are_not_parsed_again(series, monkeypatch):
    wanted = [alone(path) for path in series]
    clear()
    for path in (*series, *series):
        outcome(path)
    learnt = []
    monkeypatch.setattr(Templates, "learn", lambda self, path, *_: learnt.append(path))
    assert_alike(outcome(series[4]), wanted[4])
    assert learnt == []


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


def test_values_past_the_end_of_one_file(tmp_path):
    """At the address of other files, whose ends are behind it."""
    paths = [tmp_path / f"{i}.h5" for i in range(4)]
    for number, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            file["x"] = np.arange(500.0) + number
            file["x"].attrs["number"] = number
    raw = bytearray(paths[3].read_bytes())
    raw[40:48] = (len(raw) - 8).to_bytes(8, "little")
    paths[3].write_bytes(raw)
    wanted = alone(paths[3], OWN)
    clear()
    for path in (*paths[:3], *paths[:3]):
        outcome(path, OWN)
    assert_alike(outcome(paths[3], OWN), wanted)


def test_another_thread_may_learn_while_templates_are_looked_up(tmp_path, monkeypatch):
    paths = [plain(tmp_path / f"{i}.h5", i) for i in range(2)]
    with h5py.File(paths[1], "a") as file:
        file.attrs["longer"] = "x" * 50
    wanted, learnt = alone(paths[0]), []
    clear()
    monkeypatch.setattr(templates, "_Shape", functools.partial(Interrupted, lambda: learnt.append(outcome(paths[1]))))
    outcome(paths[0])
    assert_alike(outcome(paths[0]), wanted)
    assert learnt


class Interrupted(templates._Shape):
    """Objects of a shape; the first look at them lets another thread go on."""

    def __init__(self, others):
        self.others = others
        super().__init__()

    @property
    def template(self):
        others, self.others = self.others, lambda: None
        others()

    @template.setter
    def template(self, _): ...


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


OWN = vs.readers.HDF5(metadata="own")
CHECKED = b"OHDR", b"OCHK", b"FRHP", b"FHDB", b"BTHD", b"BTLF"


def checksums(raw):
    """Find the blocks with checksums: begin, end, and where the checksum is."""
    found = []
    for begin in range(len(raw)):
        if raw[begin : begin + 4] in CHECKED:
            ends = (at for at in range(begin + 8, min(begin + 3000, len(raw) - 4)) if is_right(raw, begin, at, at))
            end = next(ends, None)
            if end is not None:
                found.append((begin, end, end))
            sizes = ((begin + (256 << i), begin + at) for i in range(6) for at in range(13, 26))
            found += [(begin, end, at) for end, at in sizes if end is not None and is_right(raw, begin, end, at)][:1]
    return found


def is_right(raw, begin, end, at):
    return checksum(raw, begin, end, at) == bytes(raw[at : at + 4])


def checksum(raw, begin, end, at):
    body = bytes(raw[begin:end])
    if at < end:
        body = body[: at - begin] + bytes(4) + body[at - begin + 4 :]
    return jenkins_lookup3(body, 0).to_bytes(4, "little")


def damaged(raw, n, seed):
    """Yield copies of a file in which some bytes of metadata differ and all checksums are right."""
    chance, known = random.Random(seed), checksums(raw)
    places = [at for begin, end, _ in known for at in range(begin, end)] or range(len(raw))
    for _ in range(n):
        copy = bytearray(raw)
        for at in {chance.choice(places) for _ in range(chance.choice((1, 1, 2)))}:
            copy[at] = chance.choice((0, 255, copy[at] ^ 1, copy[at] ^ 128, chance.randrange(256)))
        for begin, end, at in known:
            copy[at : at + 4] = checksum(copy, begin, end, at)
        yield bytes(copy)


@pytest.mark.parametrize("is_mended", [False, True])
def test_damage_in_the_middle_of_a_series(series, tmp_path, monkeypatch, is_mended):
    chance, raw = random.Random(0), series[2].read_bytes()
    if is_mended:
        copies = list(damaged(raw, 150, 1))
    else:
        places = [chance.randrange(len(raw)) for _ in range(150)]
        copies = [raw[:at] + bytes([raw[at] ^ chance.randrange(1, 256)]) + raw[at + 1 :] for at in places]
    paths, after = [tmp_path / f"damaged{n}.nc" for n in range(len(copies))], alone(series[4], OWN)
    wanted = []
    for path, copy in zip(paths, copies, strict=True):
        path.write_bytes(copy)
        wanted.append(alone(path, OWN))
    clear()
    for other in (*series[:2], series[3], *series[:2]):
        outcome(other, OWN)
    monkeypatch.setattr(Templates, "learn", lambda *_: None)
    n_used, made = [], Template._made
    monkeypatch.setattr(Template, "_made", lambda *x: n_used.append(0) or made(*x))
    for path, group in zip(paths, wanted, strict=True):
        assert_alike(outcome(path, OWN), group)
    assert len(n_used) > 300
    assert_alike(outcome(series[4], OWN), after)

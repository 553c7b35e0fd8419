"""Remote files, with and without an index: what is found is what a walk through the file held locally finds."""

import itertools

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.make_grib import (
    GRIB1,
    ecmwf_index,
    fields_of,
    merged,
    message,
    noaa_index,
    with_data,
    with_local_section,
    write,
)
from tests.formats.groups import group_of
from tests.servers import RangeServer
from virtualstack.errors import MalformedFileError, SourceNotFoundError
from virtualstack.formats.grib import sidecars
from virtualstack.formats.grib.sidecars import SidecarError, parse_sidecar
from virtualstack.readers import GRIB

NAME = "fc.grib2"
LARGE = {"Ni": 300, "Nj": 300, "iDirectionIncrementInDegrees": 0.1, "jDirectionIncrementInDegrees": 0.05}


def hollow(n, **keys):
    head, length = with_data(message({"shortName": "t", "typeOfLevel": "isobaricInhPa", **keys}), n)
    return head + bytes(length - len(head) - 4) + b"7777"


def plain():
    return [hollow(90_000 + 1_000 * (i * i % 17), level=100 + i) for i in range(20)]


def bitmaps():
    values = np.where(np.arange(90_000) % 5 == 0, np.nan, np.random.default_rng(0).random(90_000))
    return [message({"shortName": "t", "step": i, **LARGE}, values=values) for i in range(8)]


def fields_in_one():
    one = merged([message({"shortName": name, **LARGE}, seed=i) for i, name in enumerate("tuv")])
    return [one, hollow(200_000), one]


def embedded():
    """Data that hold a whole message, which is none of the file."""
    inner = message({"shortName": "u"})
    head, length = with_data(message({"shortName": "t"}), 100_000 + len(inner))
    one = head + inner + bytes(100_000) + b"7777"
    assert len(one) == length
    return [*plain(), one]


FILES = {
    "plain": plain,
    "GRIB 1": lambda: [message({"indicatorOfParameter": 11, "level": i, **LARGE}, sample=GRIB1) for i in range(8)],
    "bitmaps": bitmaps,
    "long headers": lambda: [with_local_section(x, 5_000 + i) for i, x in enumerate(plain())],
    "very long headers": lambda: [with_local_section(x, 70_000) for x in plain()],
    "several fields in a message": fields_in_one,
    "a message in the data of another": embedded,
    "one length": lambda: [hollow(90_000, level=100 + i) for i in range(40)],
    "two lengths": lambda: [hollow(90_000 + (i % 5 == 4), level=100 + i) for i in range(40)],
    "small messages": lambda: [hollow(1_000 + i % 7, level=1 + i % 30) for i in range(1_500)],
    "headings": lambda: [b"\r\r\nHTXX88 KWBC 011200\r\r\n" + x + bytes(9) for x in plain()],
    "padding": lambda: [x + bytes(5_000) for x in plain()],
    "much junk": lambda: [*plain(), b"GRIB is text" * 9_000, *plain()],
}


@pytest.fixture(scope="module")
def files():
    made = {}

    def make(name):
        if name not in made:
            made[name] = b"".join(FILES[name]())
            assert len(made[name]) > 1 << 20
        return made[name]

    return make


def offsets_of(data, tmp_path):
    path = tmp_path / "offsets.grib"
    path.write_bytes(data)
    return [offset for offset, _ in fields_of(path)]


def begins(data):
    """Where messages begin, by a search of all there is; each holds its length."""
    at, found = data.find(b"GRIB"), []
    while at >= 0:
        edition = data[at + 7]
        n = int.from_bytes(data[at + 8 : at + 16] if edition == 2 else data[at + 4 : at + 7], "big")
        if data[at + n - 4 : at + n] == b"7777":
            found.append((at, n))
            at += n
        else:
            at += 4
        at = data.find(b"GRIB", at)
    return found


def scanned(url, **options):
    """Give all that a scan finds but for the place, and what it notes of an index."""
    group = group_of(url, GRIB(**options), is_part=True)
    said = dict(group.attributes)
    del said["location"]
    notes = said.pop("notes")
    return said, notes


def local(data, tmp_path):
    path = tmp_path / "local.grib2"
    path.write_bytes(data)
    found, notes = scanned(path)
    assert notes == ()
    return found


SIDECARS = {
    "none": lambda places: {},
    "NOAA": lambda places: {NAME + ".idx": noaa_index(offset for offset, _ in places)},
    "ECMWF": lambda places: {"fc.index": ecmwf_index(places)},
    "ECMWF's other name": lambda places: {NAME + ".index": ecmwf_index(places)},
}


MOST_REQUESTS = {
    "very long headers": 2,
    "bitmaps": 2,
    "several fields in a message": 3,
    "padding": 3,
    "two lengths": 2,
}
"""Of a message, without an index; of others one."""


@pytest.mark.parametrize("kind", SIDECARS)
@pytest.mark.parametrize("name", FILES)
def test_remote_files_are_found_as_local_ones(name, kind, files, tmp_path):
    """With any index or none, each in its own number of requests."""
    data = files(name)
    places = begins(data)
    with RangeServer({NAME: data, **SIDECARS[kind](places)}) as server:
        found, notes = scanned(server.url(NAME))
        n_requests = server.n_requests
    assert found == local(data, tmp_path)
    assert notes == ()
    if kind == "none":
        assert n_requests <= 10 + MOST_REQUESTS.get(name, 1) * len(places)
    elif name != "very long headers":
        assert n_requests <= 8 + (3 if name == "padding" else 2) * len(places)


def test_indexes_are_what_the_files_have(files, tmp_path):
    """The offsets of these tests are those of eccodes."""
    for name in ("plain", "GRIB 1", "several fields in a message", "headings"):
        data = files(name)
        assert sorted(set(offsets_of(data, tmp_path))) == [offset for offset, _ in begins(data)]


def test_messages_of_one_length_are_read_ahead(files):
    """A file of them takes a logarithm of rounds; small messages and small files hardly any requests."""
    with RangeServer({NAME: files("small messages"), "small": b"".join(plain()[:5])}) as server:
        scanned(server.url(NAME), index=None)
        assert server.n_requests <= 12
        server.reset()
        scanned(server.url("small"))
        assert server.n_requests == 2


def test_much_padding_takes_few_requests(files):
    """More is read at a time the further there is nothing."""
    data = files("plain")
    with RangeServer({NAME: data, "padded": data + bytes(5 << 20)}) as server:
        scanned(server.url(NAME), index=None)
        n_plain = server.n_requests
        server.reset()
        said, _ = scanned(server.url("padded"), index=None)
        assert said["n_junk"] == 5 << 20
        assert server.n_requests <= n_plain + 12


def moved(places, by):
    return [(offset + by, length) for offset, length in places]


def other(places):
    return [(offset * 3 // 4 + 5, length) for offset, length in places]


WRONG = {
    "shifted by one": lambda p: (noaa_index(o + 1 for o, _ in p), "differ at 40 offsets"),
    "shifted in ECMWF's": lambda p: (ecmwf_index(moved(p[:-1], 8)), "differ at 39 offsets"),
    "of another file": lambda p: (noaa_index(o for o, _ in other(p)), "the file has 20. They differ at"),
    "of a longer file": lambda p: (noaa_index(o * 2 for o, _ in p), "but the file has"),
    "of the first half": lambda p: (noaa_index(o for o, _ in p[:10]), "the file has 20. They differ at 10 offsets"),
    "of the last half": lambda p: (noaa_index(o for o, _ in p[10:]), "the file has 20. They differ at 10 offsets"),
    "of every second": lambda p: (noaa_index(o for o, _ in p[::2]), "the file has 20. They differ at 10 offsets"),
    "with offsets in data": lambda p: (
        noaa_index(sorted([*(o for o, _ in p), p[3][0] + 50_000])),
        "lists 21 messages, and the file has 20. They differ at 1 offset,",
    ),
    "with other lengths": lambda p: (ecmwf_index([(o, n - 1) for o, n in p]), "differ at 20 offsets"),
    "cut in a line": lambda p: (
        noaa_index(o for o, _ in p)[:-39].rpartition(b":")[0],
        "lists 19 messages, and the file has 20. They differ at 1 offset,",
    ),
    "cut in ECMWF's": lambda p: (ecmwf_index(p)[:-9], "not JSON with integers"),
    "a page of a server": lambda p: (
        b"<html><body>Sign in</body></html>\n" * 9,
        "lines that are not those of an index",
    ),
    "noise": lambda p: (np.random.default_rng(0).bytes(5_000), "lines that are not those of an index"),
    "empty": lambda p: (b"", "is empty"),
    "nothing but lines": lambda p: (b"\n\r\n\n", "is empty"),
    "negative": lambda p: (b"1:-5:d=2020010100:TMP:\n", "lines that are not those of an index"),
    "negative in ECMWF's": lambda p: (ecmwf_index([(-5, 100)]), "at byte -5"),
    "beyond all": lambda p: (b"1:999999999999999999:d=2020010100:TMP:\n", "but the file has"),
    "beyond 64 bits": lambda p: (b'{"_offset": 99999999999999999999999, "_length": 1}', "not JSON with integers"),
    "of no integers": lambda p: (b'{"_offset": true, "_length": 1.5}', "not JSON with integers"),
    "of lists": lambda p: (b'{"a":1}\n[1, 2]\n', "not JSON with integers"),
    "of two lengths": lambda p: (ecmwf_index([p[0], (p[0][0], 5)]), "two lengths"),
    "of too many": lambda p: (noaa_index(range(200_000)), "more than there are messages"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_indexes_change_nothing(name, files, tmp_path):
    """They are noted, and the file is walked through."""
    data = files("plain")
    sidecar, words = WRONG[name](begins(data))
    suffix = ".index" if sidecar[:1] == b"{" else ".idx"
    with RangeServer({NAME: data, NAME + suffix: sidecar}) as server:
        found, notes = scanned(server.url(NAME))
        (note,) = notes
        assert words in note
        assert NAME + suffix in note
        assert server.bytes_sent < 0.4 * len(data) + 2 * len(sidecar)
        (refusal,) = group_of(server.url(NAME), GRIB()).refusals
        assert (refusal.kind, refusal.reason) == ("noted", note)
    assert found == local(data, tmp_path)


@pytest.mark.parametrize("name", ["plain", "headings", "a message in the data of another", "one length", "bitmaps"])
def test_lies_change_nothing(name, files, tmp_path):
    """Any offsets, some right and some not."""
    data = files(name)
    expected, places = local(data, tmp_path), [offset for offset, _ in begins(data)]
    rng = np.random.default_rng(0)
    inner = [i for i in range(len(data)) if data.startswith(b"GRIB", i)] if name.startswith("a message") else places
    for i in range(12):
        some = rng.choice(inner, rng.integers(1, len(inner) + 1), replace=False).tolist()
        wrong = rng.integers(0, len(data), rng.integers(0, 5)).tolist() if i % 2 else []
        near = (rng.choice(places, 3) + rng.integers(-4, 9, 3)).clip(0).tolist() if i % 3 == 2 else []
        with RangeServer({NAME: data, NAME + ".idx": noaa_index(sorted(some + wrong + near))}) as server:
            found, notes = scanned(server.url(NAME))
        assert found == expected
        assert bool(notes) == (set(some + wrong + near) != set(places))


def test_order_and_repeats_do_not_matter(files, tmp_path):
    data = files("plain")
    places = begins(data)
    with RangeServer({NAME: data, "fc.index": ecmwf_index([*places[::-1], *places[:5]])}) as server:
        found, notes = scanned(server.url(NAME))
    assert found == local(data, tmp_path)
    assert notes == ()


@pytest.mark.parametrize(("status", "n_notes"), [(404, 0), (403, 0), (400, 3)])
def test_an_index_that_cannot_be_had_costs_a_request_for_each_name(status, n_notes, files, tmp_path):
    """Whether there is none, or one may not look, is not news; other errors are."""
    data = files("plain")
    with RangeServer({NAME: data}, fault=lambda path: None if path == NAME else status) as server:
        found, notes = scanned(server.url(NAME))
        asked = [path for _, path, *_ in server.log if path != f"/{NAME}"]
        assert sorted(asked) == sorted([f"/{NAME}.idx", "/fc.index", f"/{NAME}.index"])
        assert len(notes) == n_notes
        server.reset()
        assert scanned(server.url(NAME), index=None) == (found, ())
        assert {path for _, path, *_ in server.log} == {f"/{NAME}"}
    assert found == local(data, tmp_path)


def test_an_index_that_may_not_be_looked_for_leaves_caches_valid(files, tmp_path):
    """A bucket whose list is not public says 403 of what is not there."""
    data = files("plain")
    with RangeServer({NAME: data}, fault=lambda path: None if path == NAME else 403) as server:
        for n in (20, 2):
            server.reset()
            vs.scan([server.url(NAME)], cache=tmp_path / "cache", reader=GRIB())
            assert (server.n_requests > n) == (n == 20)


def test_an_index_is_named(files, tmp_path):
    """Of local files, too; that it is not there is an error then."""
    data = files("bitmaps")
    expected = local(data, tmp_path)
    index = tmp_path / "elsewhere.txt"
    index.write_bytes(noaa_index(offset for offset, _ in begins(data)))
    assert scanned(tmp_path / "local.grib2", index=str(index)) == (expected, ())
    with RangeServer({NAME: data}) as server:
        assert scanned(server.url(NAME), index=index) == (expected, ())
        with pytest.raises(SourceNotFoundError, match="nowhere"):
            scanned(server.url(NAME), index=server.url("nowhere"))
    index.write_bytes(b"1:7:")
    found, (note,) = scanned(tmp_path / "local.grib2", index=index)
    assert found == expected
    assert "It lists 1 message, and the file has 8. They differ at 9 offsets" in note
    index.write_bytes(b"other")
    assert "it is not used" in scanned(tmp_path / "local.grib2", index=index)[1][0]


def test_indexes_without_end_are_not_read(files, tmp_path, monkeypatch):
    monkeypatch.setattr(sidecars, "_MAX_INDEX_BYTES", 99)
    data = files("plain")
    with RangeServer({NAME: data, NAME + ".idx": noaa_index(o for o, _ in begins(data))}) as server:
        found, (note,) = scanned(server.url(NAME))
    assert "at most 99 are read" in note
    assert found == local(data, tmp_path)


@pytest.mark.parametrize("kind", ["none", "NOAA"])
def test_damage_is_found_with_an_index(kind, files):
    """It is the file that is damaged."""
    data = files("plain")
    places = begins(data)
    (at, length), (last, _) = places[7], places[-1]
    damaged = data[: at + length - 1] + b"8" + data[at + length :]
    for broken, offset in ((damaged, at), (data[:-10], last)):
        server = RangeServer({NAME: broken, **SIDECARS[kind](places)})
        with server, pytest.raises(MalformedFileError, match=f"at byte {offset}"):
            scanned(server.url(NAME))


def test_values_are_those_of_the_file(tmp_path):
    """From beginning to end, through an index that is right and one that is not."""
    keys = itertools.product((500, 850), (0, 6, 12, 18))
    fields = [
        message({"shortName": "t", "typeOfLevel": "isobaricInhPa", "level": n, "step": s, **LARGE}, seed=n + s)
        for n, s in keys
    ]
    path = write(tmp_path / NAME, fields)
    with vs.open_virtual_dataset(path).virtual.open() as found:
        expected = found.load()
    places = [offset for offset, _ in fields_of(path)]
    for offsets in (places, [x + 1 for x in places]):
        (tmp_path / f"{NAME}.idx").write_bytes(noaa_index(offsets))
        with RangeServer(tmp_path) as server:
            xr.testing.assert_identical(vs.open_virtual_dataset(server.url(NAME)).virtual.open().load(), expected)


def test_lines_of_both_kinds_are_understood():
    noaa = b"1:0:d=2020010100:UGRD:10 m:anl:\r\n1.2:0:d=2020010100:VGRD:10 m:anl:\r\n2:500:d=2020010100:TMP:\n"
    assert parse_sidecar(noaa, 1_000, url="x") == {0: None, 500: None}
    assert parse_sidecar(ecmwf_index([(500, 400), (0, 500)]), 1_000, url="x") == {0: 500, 500: 400}
    with pytest.raises(SidecarError, match="'x' has a message of 501 bytes at byte 500, but the file has 1000"):
        parse_sidecar(ecmwf_index([(500, 501)]), 1_000, url="x")

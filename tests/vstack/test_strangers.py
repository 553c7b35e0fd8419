"""Stores from strangers, which are read and written to: traps on a local disk."""

import base64
import contextlib
import gzip
import json
import os
import shutil
import subprocess
import time
import zlib

import h5py
import numpy as np
import pytest
import xarray as xr
from numcodecs import blosc

import virtualstack as vs
from tests.data.arrays import array_of, inline_chunks, referenced
from tests.data.stores import load as read
from tests.data.watching import memory_below, recorded_calls
from tests.vstack.archive import change_snapshot as change
from tests.vstack.archive import days, join, newest_snapshot
from virtualstack.cli.command import main
from virtualstack.errors import (
    ChunkDecodeError,
    ForbiddenLocationError,
    MalformedFileError,
    ManifestError,
    ReaderError,
    SourceNotFoundError,
    StorageError,
    UnsupportedFeatureError,
    VirtualStackError,
    WriterError,
)
from virtualstack.manifests import ENTRY, INLINE, ChunkEncoding, ChunkManifest, Fill, ManifestGroup
from virtualstack.storage import ObjectStore, Permission, Storage
from virtualstack.verify import open_independently
from virtualstack.vstack.format import history
from virtualstack.vstack.format.archive import Archive
from virtualstack.vstack.format.names import HINT, snapshot_number
from virtualstack.vstack.format.rows import index_length
from virtualstack.vstack.log import read_log
from virtualstack.vstack.refresh import Refreshed
from virtualstack.vstack.save import save


@pytest.fixture
def strangers(tmp_path):
    """A store of two files beside it."""
    folder = tmp_path / "given"
    join(days(folder, 2)).virtual.to_vstack(folder / "x.vstack", relative=True)
    return folder / "x.vstack"


NO_CHUNKS = {"bundled": None, "placements": {"pages": [], "tail": []}}
"""What a document says of an array of which nothing is there."""


def test_a_store_that_was_changed_does_not_follow_links(strangers, tmp_path):
    """With listed places, what was a link out of the folder before is one after a commit of ours."""
    outside = tmp_path / "outside.nc"
    (strangers.parent / "000.nc").rename(outside)
    (strangers.parent / "000.nc").symlink_to(outside)
    for allow in (vs.Listed(), vs.Listed(strangers.parent)):
        with pytest.raises(ForbiddenLocationError, match="which is a link to"):
            read(strangers, allow=allow)
        vs.Repository.open(strangers, allow=allow).write("lat", ..., np.zeros(6))
    read(strangers)


@pytest.mark.parametrize("name", [".vstack", ".vstack/segments", ".vstack/snapshots", ".vstack/bundles"])
def test_objects_behind_links_are_not_read_unless_allowed(strangers, tmp_path, name):
    """With listed places, out of the folder that holds the store; within it they are."""
    shutil.copytree(strangers.parent, tmp_path / "copy")
    expected = read(tmp_path / "copy" / "x.vstack")  # rows that were read once are kept
    shutil.move(strangers / name, tmp_path / "else" / "where")
    (strangers / name).symlink_to(tmp_path / "else" / "where")
    with pytest.raises(ForbiddenLocationError, match=r"which is a link to .* allow=vs.Listed\("):
        read(strangers, allow=vs.Listed())
    xr.testing.assert_identical(read(strangers, allow=vs.Listed(tmp_path / "else")), expected)
    shutil.move(tmp_path / "else" / "where", strangers.parent / "beside")
    (strangers / name).unlink()
    (strangers / name).symlink_to(strangers.parent / "beside")
    xr.testing.assert_identical(read(strangers, allow=vs.Listed()), expected)


@pytest.mark.parametrize("name", [".vstack", ".vstack/segments", ".vstack/snapshots", ".vstack/bundles"])
def test_nothing_is_written_behind_links(strangers, tmp_path, name):
    """Not even where reading is allowed."""
    outside = tmp_path / "outside"
    shutil.move(strangers / name, outside)
    (strangers / name).symlink_to(outside)
    before = {path: path.stat().st_mtime_ns for path in outside.rglob("*")}
    repository = vs.Repository.open(strangers, allow=outside)
    variable = sorted(read(strangers, allow=outside).data_vars)[0]
    with pytest.raises(ForbiddenLocationError, match="nothing is written"):
        repository.write(variable, ..., 0).write("lat", ..., np.zeros(6))
    assert {path: path.stat().st_mtime_ns for path in outside.rglob("*")} == before


def test_a_store_that_is_a_link_is_written_to(strangers, tmp_path):
    """Its user has named it."""
    (tmp_path / "link.vstack").symlink_to(strangers)
    vs.Repository.open(tmp_path / "link.vstack", allow=strangers.parent).write("lat", ..., np.zeros(6))
    assert vs.Repository.open(strangers).snapshot.number == 1


@pytest.mark.parametrize("pattern", ["snapshots/*", "bundles/*", "segments/*/refs/c/0/0"])
def test_objects_larger_than_they_can_be_take_no_memory(strangers, pattern):
    """Files with holes, which take no place on disk and in archives."""
    (path,) = (strangers / ".vstack").glob(pattern)
    os.truncate(path, 1 << 42)
    with pytest.raises(StorageError, match="damaged or malicious"):
        read(strangers)


def relocated(prefixes, old, new):
    moves = [{"old": old, "new": new, "n_prefixes": 1 << 30}] * 256
    return lambda x: x.update(prefixes=prefixes, relocations=moves)


def with_attribute(attribute):
    return lambda x: x["groups"][""]["attributes"].update(odd=attribute)


def with_heap(x):
    """Let fill values and an attribute be text that is none."""
    x["heap"] = base64.b64encode(b"\xff" * 8 + base64.b64decode(x["heap"])[8:]).decode()
    with_attribute({"array": ["<U2", [1], [0, 8]]})(x)


TOO_LARGE = "is recorded with 1099511627776 bytes"
NO_BYTES = "that has no bytes"  # whoever makes lists of these, as a view does, would fill the memory
TRAPS = {
    "size of the bundle": (lambda x: x["bundle"].update(size=1 << 40), TOO_LARGE),
    "size of a shard": (lambda x: x["segments"]["tail"][0].update(shards=[1 << 40]), TOO_LARGE),
    # a store of kilobytes cannot name gigabytes of beginnings
    "long": (relocated([f"s3://b{i}/" for i in range(200)], "", "s3://b/" + "a" * 20_000), "damaged or malicious"),
    "many": (relocated(["s3://b/" + "x" * i for i in range(2000)], "s3://c/", "s3://b/"), "damaged or malicious"),
    "longer each time": (relocated(["s3://b/"] * 200, "s3://b/", "s3://b/" + "a" * 100), "damaged or malicious"),
    "floats": (with_attribute({"array": ["<f8", [1 << 40, 0], [0, 0]]}), NO_BYTES),
    "raw": (with_attribute({"array": ["|V0", [1 << 40], [0, 0]]}), NO_BYTES),
    "strings": (with_attribute({"strings": [[1 << 40, 0], []]}), NO_BYTES),
    "field": (with_attribute({"scalar": [[["a", "<f8", [1 << 20, 0]]], [], [0, 0]]}), NO_BYTES),
    "fields": (with_attribute({"scalar": [[["a", [["b", "<f8", [1 << 20, 0]]], [2]]], [], [0, 0]]}), NO_BYTES),
    "text": (with_heap, "which is not a character"),
}


@pytest.mark.parametrize("name", TRAPS)
def test_a_snapshot_that_is_a_trap_is_refused(strangers, name):
    """Before memory is taken for what it says."""
    edit, message = TRAPS[name]
    change(strangers, edit)
    with pytest.raises(MalformedFileError, match=message):
        read(strangers)


def test_many_arrays_cannot_share_a_bomb(strangers):
    """Each may be large; all together are bounded before memory is taken for any."""
    frame = blosc.compress(bytes(1 << 28), b"zstd", 1, 0, 0, 1)

    def edit(document):
        (strangers / ".vstack" / "bundles" / document["bundle"]["name"]).write_bytes(frame)
        document["bundle"] |= {"size": len(frame), "crc32": zlib.crc32(frame)}
        bundled = [x for x in document["arrays"].values() if x["bundled"]]
        for array in (*bundled, bundled[0], bundled[0]):
            array["bundled"] = [0, len(frame)]
        for i in range(3):
            document["arrays"][f"/more{i}"] = bundled[0]

    change(strangers, edit)
    with pytest.raises(MalformedFileError, match="in the bundle of a snapshot"):
        read(strangers)


def test_a_writer_bundles_what_a_reader_takes(tmp_path, monkeypatch):
    """The smallest variables; others are chunks in the store."""
    values = {name: (name, np.arange(n) / 7) for name, n in {"a": 10, "b": 100, "c": 50}.items()}
    dataset = xr.Dataset(coords=values)
    for module in ("format.history", "write.write", "write.commit"):
        monkeypatch.setattr(f"virtualstack.vstack.{module}.MAX_BUNDLE_BYTES", 8 * 60)
    dataset.virtual.to_vstack(tmp_path / "x.vstack")
    snapshot = vs.Repository.open(tmp_path / "x.vstack").snapshot
    assert {path for path, node in snapshot.arrays.items() if node.bundled} == {"/a", "/c"}
    xr.testing.assert_identical(read(tmp_path / "x.vstack"), dataset)
    assert history.MAX_BUNDLE_BYTES == 480


def nested(depth):
    group = ManifestGroup(arrays={"v": referenced([0], [1], (1,))})
    for _ in range(depth):
        group = ManifestGroup(groups={"g": group})
    return group


def test_groups_that_lie_too_deep_are_refused(strangers, tmp_path):
    """By writers, and by readers of what others have written."""
    save(nested(99), tmp_path / "deep.vstack")
    assert "/g" * 99 + "/v" in vs.Repository.open(tmp_path / "deep.vstack").snapshot.arrays
    with pytest.raises(WriterError, match="100 deep"):
        save(nested(100), tmp_path / "deeper.vstack")
    change(strangers, lambda x: x["groups"].update({"/g" * n: x["groups"][""] for n in range(1, 3000)}))
    with pytest.raises(MalformedFileError, match="more than 100 parts"):
        read(strangers)


def test_servers_that_have_everything_are_refused():
    """Where a store cannot be listed, snapshots behind the newest one are looked for, but not for ever."""

    class Endless:
        url = "https://host/x.vstack/"

        def __init__(self):
            self.n_asked = 0

        def first(self, _prefix):
            raise StorageError("no listing here")

        def get(self, key, **_):
            self.n_asked += 1
            return history.hint(7) if key == HINT else b""

    objects = Endless()
    with pytest.raises(MalformedFileError, match="Its server answers every request"):
        history.newest(objects)
    assert objects.n_asked < 2000


def test_a_log_ends_where_snapshots_were_expired():
    """Where a store cannot be listed, a number of twelve digits is not counted down to 0."""
    last = 10**11

    class Unlisted:
        url = "https://host/x.vstack/"
        n_asked = 0

        def first(self, _prefix):
            raise StorageError("no listing here")

        list = first

        def get(self, key, **_):
            self.n_asked += 1
            if key == HINT:
                return history.hint(last)
            number = snapshot_number(key)
            if not last - 1500 < number <= last:
                raise SourceNotFoundError(key)
            document = {"vstack_format": 1, "number": number, "time": 0, "message": None, "changes": []}
            return gzip.compress(json.dumps(document).encode(), 1)

    objects = Unlisted()
    assert len(read_log(objects, None)) == 1500
    assert objects.n_asked < 4000


def references(to, path):
    """Write a kerchunk document that refers to what another file holds."""
    path.write_text(json.dumps(vs.open_virtual_dataset(to).virtual.to_kerchunk()))


def test_a_source_that_refers_elsewhere_is_not_refreshed(strangers, tmp_path):
    """Neither its values are read, which loaded ones are compared with, nor is it written what it refers to."""
    (secret,) = days(tmp_path / "secret", 1)
    references(secret, strangers.parent / "000.nc")
    done = vs.Repository.open(strangers, allow=vs.Listed()).refresh()
    assert (done.refreshed, done.repository.snapshot.number) == ((), 0)
    assert "which is a local file" in done.left[0][1]
    done = vs.Repository.open(strangers, allow=vs.Listed(secret.parent)).refresh()
    assert (len(done.refreshed), done.repository.snapshot.number) == (1, 1)
    with pytest.raises(ForbiddenLocationError, match="which is a local file"):
        read(strangers, allow=vs.Listed())


@contextlib.contextmanager
def not_opened(path):
    """Make a pipe, and fail where somebody opens it to read."""
    os.mkfifo(path)
    with subprocess.Popen(["sh", "-c", f"exec > '{path}'"]) as waits:  # until somebody does
        try:
            yield
            assert waits.poll() is None
        finally:
            waits.kill()


@pytest.mark.parametrize("kind", ["external", "text", "virtual", "link"])
def test_the_hdf5_library_opens_nothing_that_strangers_files_name(strangers, tmp_path, kind):
    """It opens local files by name: with listed places, `verify` and `refresh` leave that out."""
    secret = tmp_path / "secret"
    source = strangers.parent / "000.nc"
    with h5py.File(source, "a") as file:
        if kind == "external":
            file.create_dataset("leak", (6,), "f8", external=[(str(secret), 0, 48)]).make_scale("leak")
        elif kind == "text":
            file.create_dataset("leak", (1,), h5py.string_dtype(), external=[(str(secret), 0, 16)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((3,), "f8")
            layout[:] = h5py.VirtualSource(secret, "v", (3,))
            file.create_virtual_dataset("leak", layout).make_scale("leak")
        else:
            file.create_group("deep")["leak"] = h5py.ExternalLink(str(secret), "/v")
    size = source.stat().st_size

    def index(document):
        sources = document["segments"]["tail"][0]["sources"]
        sources["size"][sources["suffix"].index("000.nc")] = size
        sources["mtime"] = sources["digest"] = [None, None]

    with not_opened(secret):
        done = vs.Repository.open(strangers, allow=vs.Listed()).refresh()
        change(strangers, index)
        found = vs.Repository.open(strangers, allow=vs.Listed()).verify(sample=100).chunks
    assert done.refreshed == (f"file://{source}",)
    reasons = [chunk.reason for chunk in found if chunk.url.endswith("000.nc")]
    assert reasons
    assert all("the HDF5 library would open" in reason for reason in reasons)


def test_a_user_block_hides_no_hdf5_file(strangers, tmp_path):
    """One that begins as netCDF-3 does: the netCDF library looks further for HDF5, and h5py opens what that names."""
    secret = tmp_path / "secret"
    source = strangers.parent / "000.nc"
    with h5py.File(source, "w", userblock_size=512) as file:
        file.create_dataset("leak", (6,), "f8", external=[(str(secret), 0, 48)])
    source.write_bytes(b"CDF\x09" + source.read_bytes()[4:])
    storage = Storage.from_option().only(Permission.from_allow(strangers, vs.Listed()))
    with (
        not_opened(secret),
        pytest.raises(ForbiddenLocationError, match="the HDF5 library would open"),
        open_independently(f"file://{source}", None, storage) as dataset,
    ):
        dataset.load()


def grow(document):
    """Let the time be of 2^40 steps."""
    for array in document["arrays"].values():
        if "time" in array["dimension_names"]:
            array["shape"][0], array["chunk_shapes"][0] = 1 << 40, 1 << 40
            array |= NO_CHUNKS


def test_coordinates_that_take_all_memory_are_not_read(strangers):
    """They are when a store is opened, and a few bytes say how long they are."""
    change(strangers, grow)
    with pytest.raises(UnsupportedFeatureError, match=r"drop_variables=\['time'\]"):
        xr.open_dataset(strangers, engine="virtualstack")
    with xr.open_dataset(strangers, engine="virtualstack", drop_variables="time") as dataset:
        assert dataset.sizes["time"] == 1 << 40


def test_coordinates_in_chunks_that_take_all_memory_are_not_read(strangers):
    """A chunk is decoded whole, however little of it is shown."""

    def edit(document):
        lat = document["arrays"]["/lat"] | NO_CHUNKS
        lat["encodings"][0] |= {"shape": [1 << 40], "codecs": [{"name": "zstd", "configuration": {}}]}
        document["arrays"]["/lat"] = lat

    change(strangers, edit)
    with pytest.raises(UnsupportedFeatureError, match=r"of 8796093022208 bytes.*drop_variables=\['lat'\]"):
        xr.open_dataset(strangers, engine="virtualstack")


CHANGES = {
    "update": lambda store, part: vs.Repository.open(store).update(part, dim="time"),
    "append": lambda store, part: part.virtual.to_vstack(store, append_dim="time"),
    "region": lambda store, part: part.virtual.to_vstack(store, region="auto"),
    "write": lambda store, part: vs.Repository.open(store).write("lat", ..., np.zeros(6)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_coordinates_that_take_all_memory_are_not_changed(strangers, tmp_path, name):
    """Nothing is committed."""
    part = vs.open_virtual_dataset(days(tmp_path / "more", 3)[2])
    change(strangers, grow)
    with pytest.raises(UnsupportedFeatureError, match="has dimension coordinates of 4398046511104 bytes"):
        CHANGES[name](strangers, part)
    assert vs.Repository.open(strangers).snapshot.number == 0


def endless(store):
    """Let one row show 10^11 cells."""

    def edit(document):
        for array in document["arrays"].values():
            for row in array["placements"]["tail"]:
                ndim = len(array["shape"])
                array["shape"][0], array["chunk_shapes"][0] = 10**11, 1
                row[4], row[4 + 2 * ndim] = 0, 10**11

    change(store, edit)


WORK = {
    "verify": lambda store: vs.Repository.open(store).verify(),
    "sample": lambda store: vs.Repository.open(store).verify(sample=0.5),
    "refresh": lambda store: vs.Repository.open(store).refresh(),
    "compact": lambda store: vs.Repository.open(store).compact(),
    "json": lambda store: vs.convert(store, store.parent / "o.json"),
    "parquet": lambda store: vs.convert(store, store.parent / "o.parq"),
    "store": lambda store: vs.convert(store, store.parent / "o.vstack"),
}


@pytest.mark.parametrize("name", WORK)
def test_grids_that_nobody_goes_through(strangers, name):
    """No cell of a grid costs a byte."""
    endless(strangers)
    if name == "compact":
        change(strangers, twice)
    if name in ("verify", "refresh"):
        (strangers.parent / "001.nc").write_bytes(b"x")
    with pytest.raises(ManifestError, match=r"malicious|at most"):
        WORK[name](strangers)


@pytest.mark.parametrize("length", [1, 40_000])
def test_many_placements_take_no_time(strangers, length):
    """Out of order, and over each other: each was compared with all, or all were added up for each."""

    def edit(document):
        array = document["arrays"]["/t"]
        row = [*array["placements"]["tail"][0][:4], 0, 0, 0]
        n = 40_000
        array.update(shape=[2 * n, 6, 4], chunk_shapes=[1, 6, 4])
        rows = [[*row, i * 7919 % n, 0, 0, length, 1, 1] for i in range(n)]
        document["groups"][""].update(loaded=[], coordinates=[], dimensions={})
        document.update(arrays={"/t": array | {"placements": {"pages": [], "tail": rows}}})

    change(strangers, edit)
    begin = time.process_time()
    assert vs.Repository.open(strangers).verify().is_good
    assert time.process_time() - begin < 10


def twice(document):
    for array in document["arrays"].values():
        array["placements"]["tail"] *= 2


def test_what_strangers_say_moves_no_cursor(strangers, capsys):
    """Text of a store is shown, and is not a command for the terminal, nor a line of the log that is not there."""
    many = ["\x1b[31mred"] * 5000
    change(strangers, lambda x: x.update(message="\x1b]0;title\x07a\n     9  2020", changes=many))
    assert main(["log", str(strangers)]) == 0
    out = capsys.readouterr().out
    assert r"\x1b]0;title\x07a      9  2020" in out
    assert out.endswith("... and 4000 more\n")
    assert out.replace("\n", "").isprintable()
    assert str(vs.Repository.open(strangers).log()).replace("\n", "").isprintable()
    change(strangers, lambda x: x.update(prefixes=["ftp://\x1b[2J/" for _ in x["prefixes"]]))
    assert main(["verify", str(strangers)]) == 1
    seen = capsys.readouterr()
    assert r"ftp://\x1b[2J/" in seen.out + seen.err
    assert (seen.out + seen.err).replace("\n", "").isprintable()


def test_what_methods_show_moves_no_cursor(strangers):
    """Names and locations in what is shown of a store."""

    def name(document):
        document["arrays"]["/lat"]["dimension_names"] = ["\x1b[5mlat"]
        document["arrays"]["/lat\x1b[2J"] = document["arrays"]["/lat"]
        document["segments"]["tail"][0]["sources"]["suffix"][0] += "\u202e"

    change(strangers, name)
    repository = vs.Repository.open(strangers, allow="file:///").write("lat", ..., np.zeros(6))
    for shown in (repository.diff(0), vs.Repository.open(strangers, at=0).diff(1), repository.verify(sample=20)):
        assert len(repr(shown)) > 50
        assert repr(shown).replace("\n", "").isprintable()
    shown = Refreshed(repository=repository, refreshed=(), masked=(), left=(("\x1b[2J", "\x07"),))
    assert repr(shown).replace("\n", "").isprintable()


def test_differences_of_many_variables_read_values_once(strangers, monkeypatch):
    """However many of them lie in one bundle, which may be large."""

    def more(document):
        for i in range(50):
            document["arrays"][f"/more{i}"] = document["arrays"]["/lat"]

    change(strangers, more)
    repository = vs.Repository.open(strangers).write("lat", ..., np.zeros(6))
    read_objects = recorded_calls(monkeypatch, ObjectStore, "get", lambda self, key, **options: key)
    assert set(repository.diff(0).changed) == {"lat"}
    assert len([key for key in read_objects if "bundles" in key]) == 2


def test_nothing_is_written_behind_the_last_number(strangers):
    """It would be there for nobody."""
    last = 10**12 - 1
    folder = newest_snapshot(strangers).parent
    shutil.copyfile(newest_snapshot(strangers), folder / f"{0:012d}.json.gz")
    change(strangers, lambda document: document.update(number=last))
    with pytest.raises(ManifestError, match="not the number of a snapshot"):
        vs.Repository.open(strangers).write("lat", ..., np.zeros(6))
    assert len(list(folder.iterdir())) == 2


def test_sources_that_are_not_there_take_no_memory(strangers):
    """However many a segment says that it has."""
    change(strangers, lambda document: document["segments"]["tail"][0].update(n_sources=1 << 34, sources=None))
    with memory_below(32 << 20), pytest.raises(SourceNotFoundError, match="sources/0"):
        vs.Repository.open(strangers).verify()


def test_variables_that_form_no_dataset_are_named(strangers):
    """By the store and both."""
    change(strangers, lambda document: document["groups"][""].update(loaded=[]))
    change(strangers, lambda document: document["arrays"]["/t"].update(shape=[40, 6, 4]))
    with pytest.raises(
        ReaderError, match=r"dimension 'time' of 'file://.*x\.vstack' has 4 elements in variable 'flag'"
    ):
        read(strangers)
    assert "t" not in read(strangers, drop_variables="t")


def test_loaded_variables_that_are_not_there_are_no_matter(strangers):
    """Of those that a store names as such."""
    change(strangers, lambda document: document["groups"][""]["loaded"].append("gone"))
    vs.Repository.open(strangers).write("lat", ..., np.zeros(6))
    assert not read(strangers)["lat"].any()


def test_a_long_inline_chunk_takes_no_more_memory_than_a_few_of_it(tmp_path):
    """Zeros of 256 MiB may come of a few bytes of a bundle; they are inline where values beside them are written."""
    n = 1 << 24
    entries, encodings = np.array([(INLINE, 0, 0, n)], ENTRY), (ChunkEncoding.c_order("u1", (n,)),)
    manifest = ChunkManifest(entries=entries, inline=bytes(n), encodings=encodings, fills=(Fill.zero("u1"),))
    with memory_below(12 * n):
        save(ManifestGroup(arrays={"v": array_of(manifest, (n,))}), tmp_path / "x.vstack")
    assert not read(tmp_path / "x.vstack")["v"].values.any()


def retype(store, path, dtype, *, encoded):
    """Say that an array has another dtype; in its encodings too, or there alone."""

    def edit(document):
        array = document["arrays"][path]
        array["dtype"] = dtype
        for encoding in array["encodings"]:
            encoding["dtype"] = encoded

    change(store, edit)


@pytest.mark.parametrize(
    ("dtype", "encoded", "message"),
    [
        ("<i4", "<f4", "only in byte order and padding"),  # else numpy casts, without a word
        ("|S4", "<f4", "only in byte order and padding"),
        ("<U1", "<f4", "only in byte order and padding"),
        ("<U1", "<U1", "which is not a character"),  # numpy raises SystemError, and Python may crash
        ([["a", "<U1"]], [["a", ">U1"]], "which is not a character"),
    ],
)
def test_values_are_of_the_dtype_that_they_are_said_to_have(strangers, dtype, encoded, message):
    """They differ in byte order at most, and text is text."""
    retype(strangers, "/t", dtype, encoded=encoded)
    for key in ({}, {"time": 1, "lat": 2, "lon": 3}):
        with pytest.raises((MalformedFileError, ChunkDecodeError), match=message):
            xr.open_dataset(strangers, engine="virtualstack", decode_cf=False)["t"].isel(key).load()
    assert main(["verify", str(strangers), "--sample", "2"]) in (0, 1)


@pytest.mark.parametrize("kind", ["M8", "m8"])
def test_times_have_a_unit(strangers, kind):
    """Without one they are no times for pandas."""
    retype(strangers, "/lat", f"<{kind}", encoded=f"<{kind}")
    for function in (read, vs.open_virtual_dataset, lambda store: vs.Repository.open(store).verify(sample=5)):
        with pytest.raises((MalformedFileError, ManifestError), match="have no unit"):
            function(strangers)


def test_packing_that_is_damaged_is_named(strangers):
    """However its metadata are read."""

    def edit(document):
        for encoding in document["arrays"]["/t"]["encodings"]:
            encoding["codecs"].insert(0, {"name": "virtualstack.cf", "configuration": {"x": "\x1b[2J"}})

    change(strangers, edit)
    with pytest.raises(VirtualStackError, match="is configured with 'data_type' and 'attributes'") as caught:
        read(strangers)
    assert "\x1b" not in str(caught.value)


def test_characters_of_a_text_that_nothing_holds(strangers):
    """Numpy's text has less than 2^31 bytes."""

    def edit(document):
        array = document["arrays"]["/lat"]
        array.update(dtype="|S1", shape=[1 << 32], chunk_shapes=[1 << 32], dimension_names=["z"], cf={})
        array.update(fill_values=array["fill_values"][:1], **NO_CHUNKS)
        array["fill_values"][0][1] = 1
        array["encodings"] = []

    change(strangers, edit)
    with pytest.raises(UnsupportedFeatureError, match="cannot be referenced as text"):
        vs.open_virtual_dataset(strangers)


@pytest.mark.parametrize("deep", [65, 400])
def test_dtypes_with_fields_in_each_other_are_bounded(strangers, tmp_path, deep):
    """Python's calls do not go as deep; nor is written what is not read."""
    nested = "<f4"
    for _ in range(deep):
        nested = [["a", nested]]

    def edit(document):
        array = document["arrays"]["/t"] | {"dtype": nested, "encodings": [], "attributes": {}, "cf": {}}
        document["arrays"]["/t"] = array | NO_CHUNKS

    change(strangers, edit)
    with pytest.raises(MalformedFileError, match="fields in each other more than 64 deep"):
        vs.open_virtual_dataset(strangers)
    dtype = np.dtype("f4")
    for _ in range(65):
        dtype = np.dtype([("a", dtype)])
    with pytest.raises(WriterError, match="fields in each other more than 64 deep"):
        xr.Dataset({"a": ("x", np.zeros(2, dtype))}).virtual.to_vstack(tmp_path / "y.vstack")


def test_arrays_of_more_axes_than_chunks_are_found_of(strangers):
    """Numpy has 64 axes, and broadcasts 32."""

    def edit(document):
        array = document["arrays"]["/t"] | {"shape": [1] * 33, "chunk_shapes": [1] * 33, "encodings": []}
        array["dimension_names"] = [f"d{i}" for i in range(33)]
        document["arrays"]["/t"] = array | NO_CHUNKS

    change(strangers, edit)
    with pytest.raises(ManifestError, match=r"x\.vstack/' has an array of 33 axes; chunks of 32 are found"):
        read(strangers)
    assert "flag" in read(strangers, drop_variables="t")


def test_names_that_no_file_has(strangers, tmp_path):
    """References of parquet are files."""
    change(strangers, lambda document: document["arrays"].update({"/a\0b": document["arrays"].pop("/t")}))
    with pytest.raises(VirtualStackError, match=r"a.b"):
        vs.convert(strangers, tmp_path / "refs.parq")
    assert not (tmp_path / "refs.parq").exists()


def test_an_encoding_beyond_64_bits_is_refused(strangers):
    """Its size is compared with lengths of chunks, which are numbers of 64 bits."""
    change(strangers, lambda document: document["arrays"]["/t"]["encodings"][0].update(shape=[1 << 61, 3, 4]))
    with pytest.raises(MalformedFileError, match=r"has an encoding of 2\^62 bytes or more: shape"):
        read(strangers)


def test_an_inline_chunk_of_another_length_is_damaged(tmp_path, monkeypatch):
    """Though another row has the same bytes to begin with: what the second one shows has another checksum."""
    array = inline_chunks((2,), "u1", b"ab", b"cd", dimension_names=("x",))
    save(ManifestGroup(arrays={"v": array}), tmp_path / "x.vstack")
    rows = Archive.rows

    def changed(self, segment, page):
        found = rows(self, segment, page).copy()
        found[1:3, 1] = found[1, 0], 1
        return found

    monkeypatch.setattr(Archive, "rows", changed)
    with pytest.raises(MalformedFileError, match="damaged inline chunks"):
        read(tmp_path / "x.vstack")


def test_rows_of_another_object_are_refused(strangers):
    """Such as one of another segment, which a backup put in their place."""
    (path,) = strangers.glob(".vstack/segments/*/refs/c/0/0")
    data = bytearray(path.read_bytes())
    data[-index_length(1)] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        MalformedFileError, match=r"is another object than its name says|contains another page than its name says"
    ):
        read(strangers)


@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        (0, 5, "a row has a source beyond those of its segment"),
        (0, -9, "a row has an invalid source"),
        (1, 1 << 40, "inline chunks beyond the heap"),
        (1, 10**6, "inline chunks beyond the heap"),
        (1, -5, "inline chunks beyond the heap"),
        (2, 10**6, "inline chunks beyond the heap"),
        (2, -4, "inline chunks beyond the heap"),
        (3, -1, "a row has a code beyond its table"),
        (3, 9, "has a code beyond its table"),
        (3, 1 << 33, "a row has a code beyond its table"),
        (4, -1, r"cell \(0,\) of variable 'v' shows elements -1 to 0"),
        (4, 10**12, r"cell \(0,\) of variable 'v' shows elements 1000000000000 to"),
    ],
)
def test_numbers_of_rows_that_lead_nowhere_are_named(tmp_path, monkeypatch, column, value, reason):
    """Whichever number of a row is damaged, no other bytes are read in place of its chunk."""
    array = inline_chunks((2,), "u1", b"ab", b"cd", dimension_names=("x",))
    save(ManifestGroup(arrays={"v": array}), tmp_path / "x.vstack")
    rows = Archive.rows

    def changed(self, segment, page):
        found = rows(self, segment, page)
        made = np.zeros((max(column + 1, len(found)), found.shape[1]), np.int64)
        made[: len(found)] = found
        made[column, 0] = value
        return made

    monkeypatch.setattr(Archive, "rows", changed)
    with pytest.raises(ManifestError if column == 4 else MalformedFileError, match=reason):
        read(tmp_path / "x.vstack")

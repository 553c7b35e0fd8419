"""Everything that people hold in their hands opens, with the values that xarray reads from the same bytes."""

import gzip
import io
import json
import pickle
import re
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import obstore
import pytest
import xarray as xr
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from obspec_utils.readers import EagerStoreReader
from obspec_utils.registry import ObjectStoreRegistry
from obspec_utils.wrappers import CachingReadableStore
from obstore.store import HTTPStore, LocalStore, MemoryStore
from upath import UPath

import virtualstack as vs
from tests.servers import RangeServer
from virtualstack.errors import ForbiddenLocationError, SourceNotFoundError, StorageError, WriterError
from virtualstack.storage import Permission, Storage

PAGE = Path(__file__).parents[2] / "docs/how-to/what-opens.md"


class Place:
    """One file in a folder, in fsspec's memory, in an object store and on a web server."""

    def __init__(self, folder: Path, server: RangeServer) -> None:
        self.path = folder / "day.nc"
        self.expected = xr.Dataset({"rain": ("time", np.arange(50.0))}, {"time": np.arange(50)})
        self.expected.to_netcdf(self.path, engine="h5netcdf")
        self.bytes = self.path.read_bytes()
        self.gzip = folder / "day.gz"
        self.gzip.write_bytes(gzip.compress(self.bytes))
        self.web = f"{server.root}day.nc"
        self.memory = MemoryFileSystem()
        self.memory.pipe("/handles/day.nc", self.bytes)
        self.store = MemoryStore()
        self.store.put("day.nc", self.bytes)

    def references(self) -> dict[str, Any]:
        """Return references to the file, in kerchunk's form."""
        found: dict[str, Any] = vs.open_virtual_dataset(self.path).virtual.to_kerchunk()
        return found


def opened(file: Any, position: int = 3) -> Any:
    """Return a file at a position that must not change."""
    file.seek(position)
    return file


FILE, WEB, MEMORY, NONE = "file", "web", "memory", "none"

ROWS: dict[str, tuple[str, Callable[[Place], Any]]] = {
    "a path": (FILE, lambda x: str(x.path)),
    "a URL": (WEB, lambda x: x.web),
    "`pathlib.Path`": (FILE, lambda x: x.path),
    "`UPath`": (FILE, lambda x: UPath(x.path)),
    "`UPath` of a URL": (WEB, lambda x: UPath(x.web)),
    "`UPath` with options": (WEB, lambda x: UPath(x.web, block_size=1 << 16)),
    '`open(path, "rb")`': (FILE, lambda x: opened(x.path.open("rb"))),
    "`fsspec.open(path)`": (FILE, lambda x: fsspec.open(x.path)),
    "`fsspec.open(url)`": (WEB, lambda x: fsspec.open(x.web)),
    "an open file of fsspec": (WEB, lambda x: opened(fsspec.open(x.web).open())),
    "an open file of fsspec's memory": (MEMORY, lambda x: opened(x.memory.open("/handles/day.nc"))),
    "a local file opened by fsspec": (FILE, lambda x: opened(fsspec.open(x.path).open())),
    "a file of obstore's `FsspecStore`": (
        WEB,
        lambda x: obstore.fsspec.FsspecStore("http", client_options={"allow_http": True}).open(x.web),
    ),
    "a `memory://` URL of fsspec": (MEMORY, lambda x: "memory://handles/day.nc"),
    "a cache of fsspec and a path": (WEB, lambda x: (fsspec.filesystem("simplecache", target_protocol="http"), x.web)),
    "a filesystem of fsspec and a path": (MEMORY, lambda x: (x.memory, "/handles/day.nc")),
    "a `DirFileSystem` and a path": (MEMORY, lambda x: (DirFileSystem("/handles", x.memory), "day.nc")),
    "a `LocalStore` of obstore and a path": (FILE, lambda x: (LocalStore(x.path.parent), "day.nc")),
    "a `HTTPStore` of obstore and a path": (WEB, lambda x: (_web_store(x), "day.nc")),
    "a `MemoryStore` of obstore and a path": (NONE, lambda x: (x.store, "day.nc")),
    "a store of obspec and a path": (NONE, lambda x: (CachingReadableStore(x.store), "day.nc")),
    "a reader of obspec-utils": (NONE, lambda x: opened(EagerStoreReader(x.store, "day.nc"))),
    "a reader of obstore": (NONE, lambda x: opened(obstore.open_reader(x.store, "day.nc"))),
    '`fsspec.open(path, compression="gzip")`': (NONE, lambda x: fsspec.open(x.gzip, compression="infer")),
    "`gzip.open(path)`": (NONE, lambda x: opened(gzip.GzipFile(x.gzip))),
    "`io.BytesIO`": (NONE, lambda x: opened(io.BytesIO(x.bytes))),
    "`bytes`": (NONE, lambda x: x.bytes),
    "a dict of kerchunk references": (FILE, lambda x: x.references()),
    "a repository, session or store of Icechunk": (FILE, lambda x: _repository(x)),
}


def _repository(place: Place) -> Any:
    """Return a repository in memory whose virtual chunks are those of the file."""
    icechunk = pytest.importorskip("icechunk")
    prefix = f"file://{place.path.parent}/"
    config = icechunk.RepositoryConfig.default()
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(prefix, icechunk.local_filesystem_store(prefix)))
    access = icechunk.containers_credentials({prefix: icechunk.Credentials.LocalFileSystemAccess()})
    made = icechunk.Repository.create(icechunk.in_memory_storage(), config, authorize_virtual_chunk_access=access)
    session = made.writable_session("main")
    vs.open_virtual_dataset(place.path, loadable_variables=["time"]).virtual.to_icechunk(session.store)
    session.commit("day")
    return made


def _web_store(place: Place) -> HTTPStore:
    return HTTPStore(place.web.rpartition("/")[0], client_options={"allow_http": True})


@pytest.fixture
def place(tmp_path):
    import obstore.fsspec  # noqa: F401 - an attribute of the package once it is imported

    with RangeServer(tmp_path) as server:
        yield Place(tmp_path, server)


@pytest.mark.parametrize("name", ROWS)
def test_each_form_opens_by_each_way_with_the_values_of_xarray(place, name):
    """Whichever function opens it, values equal; a file keeps its position and stays open."""
    _, make = ROWS[name]
    ways: list[Callable[[Any], xr.Dataset]] = [
        lambda x: vs.open_virtual_dataset(x, loadable_variables=[]).virtual.open(),
        lambda x: vs.open_virtual_datatree(x).virtual.open().to_dataset(),
        lambda x: vs.open_virtual_mfdataset([x], loadable_variables=[]).virtual.open(),
        lambda x: xr.open_dataset(x, engine="virtualstack"),
        lambda x: vs.scan([x]).datasets()[0].virtual.open(),
        lambda x: not vs.survey([x]).failures.shape[0] and vs.open_virtual_mfdataset(x).virtual.open(),
    ]
    for way in ways:
        held = make(place)
        before = held.tell() if hasattr(held, "tell") else None
        with way(held) as found:
            xr.testing.assert_identical(found.load().drop_attrs(), place.expected)
        if before is not None:
            assert held.tell() == before
            held.close()


@pytest.mark.parametrize("name", ROWS)
def test_references_name_the_url_or_hold_the_values(place, name):
    """What has a URL is named by it; the values of what has none are in the references."""
    kind, make = ROWS[name]
    held = make(place)
    vds = vs.open_virtual_dataset(held, loadable_variables=["time"])
    if hasattr(held, "close"):
        held.close()
    refs = vds.virtual.to_kerchunk()["refs"]
    urls = {value[0] for value in refs.values() if isinstance(value, list)}
    named = {FILE: {f"file://{place.path}"}, WEB: {place.web}, MEMORY: {"memory:///handles/day.nc"}, NONE: set()}
    assert urls == named[kind] or (kind == MEMORY and urls == {"memory://handles/day.nc"})
    if kind in (FILE, WEB, NONE):
        xr.testing.assert_identical(xr.open_dataset(refs, engine="virtualstack").load().drop_attrs(), place.expected)


def test_the_page_lists_what_the_tests_open():
    """Each row of the table of the page is a row here."""
    rows = re.findall(r"^\| (.+?) \| .+ \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [name for name, _ in rows if name not in ("You have", "---")]
    assert set(ROWS) <= set(listed)


def test_what_has_no_url_pickles_if_it_is_small(place, monkeypatch):
    vds = vs.open_virtual_dataset(io.BytesIO(place.bytes), loadable_variables=[])
    again = pickle.loads(pickle.dumps(vds))
    xr.testing.assert_identical(again.virtual.open().load().drop_attrs(), place.expected)
    monkeypatch.setattr("virtualstack.storage.memory._MAX_PICKLED_BYTES", 100)
    with pytest.raises(StorageError, match=r"that are sent to other processes. Write it to a file"):
        pickle.dumps(vds)


@pytest.mark.parametrize("target", ["refs.json", "rain.vstack", "rain.icechunk"])
def test_writers_refuse_what_has_no_url_and_is_large(place, tmp_path, target):
    """The error says why, and what to do; small variables are written."""
    large = xr.Dataset({"rain": ("time", np.random.default_rng(0).random(200_000))})
    large.to_netcdf(tmp_path / "large.nc", engine="h5netcdf")
    vds = vs.open_virtual_dataset(io.BytesIO((tmp_path / "large.nc").read_bytes()))
    write = {"json": "to_kerchunk", "vstack": "to_vstack", "icechunk": "to_icechunk"}[target.rpartition(".")[2]]
    with pytest.raises(
        WriterError, match=r"'/?rain' has chunks in 'bytes://.*, such as a BytesIO.* Write the object to"
    ):
        getattr(vds.virtual, write)(tmp_path / target)
    getattr(vs.open_virtual_dataset(io.BytesIO(place.bytes)).virtual, write)(tmp_path / target)
    with xr.open_dataset(tmp_path / target, engine="virtualstack") as found:
        np.testing.assert_array_equal(found.rain.values, place.expected.rain.values)


def test_convert_and_repositories_take_objects(place, tmp_path):
    with place.path.open("rb") as file:
        vs.convert(file, tmp_path / "a.json")
    assert "day.nc" in (tmp_path / "a.json").read_text()
    vs.open_virtual_dataset(place.path).virtual.to_vstack(tmp_path / "a.vstack")
    later = place.expected.assign_coords(time=place.expected.time + 50)
    later.to_netcdf(tmp_path / "later.nc", engine="h5netcdf")
    vs.Repository.open(tmp_path / "a.vstack").append(fsspec.open(tmp_path / "later.nc"), dim="time")
    with xr.open_dataset(tmp_path / "a.vstack", engine="virtualstack") as found:
        assert found.sizes["time"] == 100


def archive(path: Path, name: str, data: bytes, *, is_stored: bool) -> Path:
    """Write a zip or tar archive of two members."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if is_stored else zipfile.ZIP_DEFLATED) as file:
            file.writestr("other.txt", b"other")
            file.writestr(name, data)
    else:
        with tarfile.open(path, "w" if is_stored else "w:gz") as tar:
            for key, content in (("other.txt", b"other"), (name, data)):
                info = tarfile.TarInfo(key)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize("is_web", [False, True])
@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_members_of_archives_are_byte_ranges_if_they_are_stored(place, kind, is_stored, is_web):
    """References name the archive; the values of compressed members are in the references."""
    path = archive(place.path.with_name(f"days.{kind}"), "2020/day.nc", place.bytes, is_stored=is_stored)
    outer = place.web.replace("day.nc", path.name) if is_web else str(path)
    url = f"{kind}://2020/day.nc::{outer}"
    forms = [url, UPath(url)] if kind == "tar" and not is_stored else [url, UPath(url), fsspec.open(url)]
    for held in forms:
        vds = vs.open_virtual_dataset(held, loadable_variables=["time"])
        xr.testing.assert_identical(vds.virtual.open().load().drop_attrs(), place.expected)
        refs = vds.virtual.to_kerchunk()["refs"]
        urls = {x[0] for x in refs.values() if isinstance(x, list)}
        assert urls == ({outer if is_web else f"file://{path}"} if is_stored else set())
        with xr.open_dataset(refs, engine="virtualstack") as found:
            xr.testing.assert_identical(found.load().drop_attrs(), place.expected)


def test_archives_in_archives_and_references_in_archives(place, tmp_path):
    inner = archive(tmp_path / "inner.zip", "day.nc", place.bytes, is_stored=True)
    outer = archive(tmp_path / "outer.tar", "inner.zip", inner.read_bytes(), is_stored=True)
    vds = vs.open_virtual_dataset(f"zip://day.nc::tar://inner.zip::{outer}", loadable_variables=[])
    xr.testing.assert_identical(vds.virtual.open().load().drop_attrs(), place.expected)
    urls = {x[0] for x in vds.virtual.to_kerchunk()["refs"].values() if isinstance(x, list)}
    assert urls == {f"file://{outer}"}
    text = json.dumps(place.references()).encode()
    path = archive(tmp_path / "refs.zip", "refs.json", text, is_stored=False)
    with xr.open_dataset(f"zip://refs.json::{path}", engine="virtualstack") as found:
        xr.testing.assert_identical(found.load().drop_attrs(), place.expected)


def test_a_password_before_an_archive_is_in_no_location(place, tmp_path):
    path = archive(tmp_path / "days.zip", "day.nc", place.bytes, is_stored=False)
    url = place.web.replace("http://", "http://me:secret@").replace("day.nc", path.name)
    vds = vs.open_virtual_dataset(f"zip://day.nc::{url}", loadable_variables=[])
    assert vds.encoding["source"] == f"zip://day.nc::{url.replace('me:secret@', '')}"
    xr.testing.assert_identical(vds.virtual.open().load().drop_attrs(), place.expected)


def test_caches_before_a_url_are_left_out(place):
    vds = vs.open_virtual_dataset(f"simplecache::{place.web}", loadable_variables=[])
    assert vds.encoding["source"] == place.web
    xr.testing.assert_identical(vds.virtual.open().load().drop_attrs(), place.expected)


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("zip://none.nc::{zip}", "has no member 'none.nc'; it has 'other.txt', 'day.nc'"),
        ("tar://none.nc::{tar}", "has no member 'none.nc'; it has 'other.txt', 'day.nc'"),
        ("zip://day.nc::{tar}", "is damaged, or is not a zip archive"),
        ("tar://day.nc::{zip}", "is damaged, or is not a tar archive"),
        ("zip://day.nc::{packed}", "compressed, so it has no byte ranges\\. .* Unpack it first"),
        ("zip://day.nc::/nowhere.zip", "no file at 'file:///nowhere.zip'"),
        ("libarchive://day.nc::{zip}", "is a chained URL of an unsupported kind. Supported are"),
    ],
)
def test_an_archive_that_does_not_open_says_why(place, tmp_path, monkeypatch, url, what):
    paths = {
        "zip": archive(tmp_path / "a.zip", "day.nc", place.bytes, is_stored=True),
        "tar": archive(tmp_path / "a.tar", "day.nc", place.bytes, is_stored=True),
        "packed": archive(tmp_path / "packed.zip", "day.nc", place.bytes, is_stored=False),
    }
    monkeypatch.setattr("virtualstack.storage.chained._MAX_MEMBER_BYTES", 1000)
    with pytest.raises(StorageError, match=what):
        vs.open_virtual_dataset(url.format(**paths))


def test_a_permission_judges_a_chained_url_by_the_file_that_it_is_in(place):
    """A member of an archive at a forbidden place is refused as the archive is."""
    storage = Storage().only(Permission.from_allow("https://8.8.8.8/x/"))
    for url in ("zip://a.nc::http://10.0.0.1/x.zip", "zip://a.nc::tar://x.zip::file:///etc/x.tar"):
        with pytest.raises(ForbiddenLocationError):
            storage.source(url)
        with pytest.raises(ForbiddenLocationError):
            storage.check([url])


def test_many_files_of_two_filesystems_are_each_read_by_their_own(tmp_path):
    """Two filesystems with one beginning of URLs do not see each other's files."""
    held = []
    for number in range(2):
        path = tmp_path / f"{number}.nc"
        xr.Dataset({"rain": ("time", [float(number)])}, {"time": [number]}).to_netcdf(path, engine="h5netcdf")
        filesystem = _Private(number)
        filesystem.files = {"/day.nc" if number else "/other.nc": path.read_bytes()}
        held.append((filesystem, "/day.nc" if number else "/other.nc"))
    vds = vs.open_virtual_mfdataset(held, loadable_variables=["time"])
    np.testing.assert_array_equal(vds.virtual.open().rain.values, [0.0, 1.0])


class _Private(fsspec.AbstractFileSystem):
    protocol = "private"
    cachable = False
    files: dict[str, bytes]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("private://").lstrip("/")

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        return {"name": path, "size": len(self.files[self._strip_protocol(path)]), "type": "file"}

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        return self.files[self._strip_protocol(path)][start:end]


def test_a_registry_of_obspec_utils_is_a_storage(place):
    registry = ObjectStoreRegistry({"s3://bucket/deep": CachingReadableStore(place.store)})
    vds = vs.open_virtual_dataset("s3://bucket/deep/day.nc", storage=registry, loadable_variables=[])
    xr.testing.assert_identical(vds.virtual.open().load().drop_attrs(), place.expected)
    with pytest.raises(SourceNotFoundError):
        vs.open_virtual_dataset("s3://bucket/deep/none.nc", storage=registry)


def test_a_dir_filesystem_is_a_storage_for_a_prefix(place):
    storage = {"s3://bucket/sub/": DirFileSystem("/handles", place.memory)}
    vds = vs.open_virtual_dataset("s3://bucket/sub/day.nc", storage=storage, loadable_variables=[])
    xr.testing.assert_identical(vds.virtual.open().load().drop_attrs(), place.expected)


def test_patterns_are_matched_wherever_a_list_is_taken(place, tmp_path):
    pattern = str(tmp_path / "*.nc")
    assert list(vs.scan([pattern]).urls) == [f"file://{place.path}"]
    assert vs.survey([pattern]).failures.empty
    storage = {"s3://bucket/": place.store}
    assert list(vs.scan(["s3://bucket/*.nc"], storage=storage).urls) == ["s3://bucket/day.nc"]
    with pytest.raises(SourceNotFoundError, match=r"is a pattern, .* open_virtual_mfdataset"):
        vs.open_virtual_dataset(pattern)
    found = vs.scan([str(tmp_path / "*.none"), place.path], on_error="skip")
    assert len(found) == 1
    assert found.failures.error.tolist() == ["SourceNotFoundError"]


@pytest.mark.parametrize(
    ("held", "what"),
    [
        (5, "of type 'int', which does not open"),
        (io.StringIO("x"), "open for reading text; open it with mode 'rb'"),
        ({"a": object()}, "not a set of kerchunk references"),
        (None, "of type 'NoneType'"),
    ],
)
def test_what_does_not_open_gives_one_error_that_lists_the_forms(held, what):
    for way in (
        vs.open_virtual_dataset,
        vs.open_virtual_mfdataset,
        lambda x: xr.open_dataset(x, engine="virtualstack"),
    ):
        with pytest.raises(StorageError, match=what) as caught:
            way(held)
        assert "a BytesIO" in str(caught.value)
        assert "number 0" not in str(caught.value)  # one object has no number


def test_an_empty_text_is_not_the_working_directory(tmp_path, monkeypatch):
    """A store would be opened where a variable of a program was not set."""
    xr.Dataset({"a": ("x", [1.0])}).to_zarr(tmp_path, zarr_format=3, consolidated=False)
    monkeypatch.chdir(tmp_path)
    for way in (vs.open_virtual_dataset, lambda x: xr.open_dataset(x, engine="virtualstack")):
        with pytest.raises(StorageError, match="'' is no URL or path"):
            way("")
        assert list(way(".").data_vars) == ["a"]


@pytest.mark.parametrize("is_open", [True, False])
def test_a_file_that_is_not_compressed_as_it_says(place, is_open):
    """The error names it."""
    held = fsspec.open(place.path, compression="gzip")
    with pytest.raises(StorageError, match=r"day\.nc.* cannot be read .*Not a gzipped file"):
        vs.open_virtual_dataset(held.open() if is_open else held)


def test_a_file_that_is_closed_or_too_large_says_so(place, monkeypatch):
    file = EagerStoreReader(place.store, "day.nc")
    monkeypatch.setattr("virtualstack.storage.handles._MAX_READ_BYTES", 10)
    with pytest.raises(StorageError, match=r"has more than the .* Give its URL, or a pair of the store"):
        vs.open_virtual_dataset(file)
    held = io.BufferedReader(io.BytesIO(place.bytes))
    held.close()
    with pytest.raises(StorageError, match=r"cannot be read from its beginning: "):
        vs.open_virtual_dataset(held)

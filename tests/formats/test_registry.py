import functools
import os
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import virtualstack.readers
from tests.data.files import file_of
from tests.data.make_hdf5 import make
from tests.data.processes import run_python
from tests.object_server import ObjectServer
from tests.servers import RangeServer
from virtualstack.cli.command import main
from virtualstack.errors import (
    AccessDeniedError,
    MalformedFileError,
    MissingDependencyError,
    ReaderError,
    SourceNotFoundError,
    UnknownFormatError,
    UnsupportedFeatureError,
)
from virtualstack.formats import registry
from virtualstack.readers import GRIB, HDF5, TIFF, Format, ReadOptions, find_reader, list_readers
from virtualstack.storage import Storage
from virtualstack.storage.listing import find_urls

STORAGE = Storage.from_option(None)
READERS = {"hdf5": HDF5(), "grib": GRIB(), "tiff": TIFF()}


@pytest.fixture
def write(tmp_path):
    """Write bytes to a name in the folder of the test."""
    return lambda name, data: file_of(tmp_path / name, data)


@pytest.mark.parametrize("name", ["layouts", "user_block_latest"])
def test_hdf5_is_found_by_its_signature_whatever_the_suffix(name, tmp_path):
    """The signature may stand behind a user block."""
    path = make(name, tmp_path).rename(tmp_path / "data.bin")
    assert find_reader(path, STORAGE) == HDF5()


@pytest.mark.parametrize(
    ("reader", "data"),
    [
        pytest.param("hdf5", bytes(1 << 20) + b"\x89HDF\r\n\x1a\n", id="behind a user block of 1 MiB"),
        ("grib", b"GRIB\0\0\0\x02"),
        pytest.param("grib", b"\r\r\n001\r\r\nHTXA11 ECMG 041200\r\r\nGRIB\0", id="behind headings of a bulletin"),
        *(("tiff", x) for x in (b"II*\0\x08\0\0\0", b"MM\0*\0\0\0\x08", b"II+\0\x08\0\0\0", b"MM\0+\0\x08\0\0")),
        ("kerchunk", b'{"version": 1, "refs": {}}'),
        pytest.param("kerchunk", b'\xef\xbb\xbf\n {"refs": {}}', id="behind a byte order mark"),
    ],
)
def test_formats_are_found_by_their_first_bytes(reader, data, write):
    """Whatever the suffix, and what may stand before them."""
    name = {"kerchunk": "refs.json", "tiff": "data.nc"}.get(reader, "x")
    found = find_reader(write(name, data), STORAGE)
    assert found == READERS.get(reader, found)
    assert found.name == reader


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (b"<!DOCTYPE html><html>login", "is a web page.*Check the URL and credentials. Or end the URL"),
        (b"\n <HTML>", "web page"),
        (b"\xfd7zXZ\0\0", "compressed with xz"),
        (b"\x28\xb5\x2f\xfd\0", "compressed with zstd"),
        (b"PAR1\x15\x04", "one parquet file"),
        (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
    ],
)
def test_what_is_no_data_is_recognised(data, hint, write):
    """The message says what it is and what to do."""
    with pytest.raises(UnknownFormatError, match=hint):
        find_reader(write("x.nc", data), STORAGE)


@pytest.mark.parametrize(
    ("name", "data", "error", "said"),
    [
        ("x.dat", b"abc", UnknownFormatError, r"61 62 63.*suffix '\.dat'.*vs\.list_readers\(\).*reader="),
        ("x.nc", b"abc", MalformedFileError, "named like HDF5 / netCDF-4 or netCDF-3, but begins with.*61 62 63"),
        ("x.nc", b"", MalformedFileError, r"is empty \(0 bytes\).*Fetch it again"),
        ("x.nc", None, SourceNotFoundError, "no file at"),
    ],
    ids=["unknown", "misnamed", "empty", "missing"],
)
def test_a_file_of_no_format_is_told_with_what_was_tried(name, data, error, said, write, tmp_path):
    """First bytes in hex, suffix and where readers are listed; what is empty or absent is not of an unknown format."""
    path = tmp_path / name if data is None else write(name, data)
    with pytest.raises(error, match=said):
        find_reader(path, STORAGE)


@pytest.mark.parametrize("status", [404, 403])
@pytest.mark.parametrize(("name", "n"), [("x.nc", 1), ("x.tif", 1), ("x.parq", 2), ("x", 8)])
def test_a_missing_file_on_a_web_server_takes_few_requests(name, n, status):
    """Only stores that its suffix may mean are looked for; without one or with a slash, any."""
    with RangeServer({}, mode="status", status=status) as server:
        with pytest.raises((SourceNotFoundError, AccessDeniedError)):
            find_reader(server.url(name), STORAGE)
        assert server.n_requests == n
    with RangeServer({f"{name}/zarr.json": b"{}"}) as server:
        assert find_reader(server.url(f"{name}/"), STORAGE).name == "zarr"
        if name == "x":
            assert find_reader(server.url(name), STORAGE).name == "zarr"


@pytest.mark.parametrize("may_list", [True, False])
def test_a_bucket_is_listed_before_stores_are_looked_for(may_list):
    """One request says that nothing is there, or which of the files of stores cannot be there.

    Another one finds a pattern for what a folder has.
    """
    with ObjectServer() as server:
        storage = Storage.from_option({"s3://bucket": server.options})
        server.objects |= {f"bucket/{key}": b"{}" for key in ("v3/c/0", "v3/zarr.json", "v2/.zattrs", "v2/.zgroup")}
        server.may_list = may_list
        for name in ("missing", "missing/"):
            server.requests.clear()
            with pytest.raises((SourceNotFoundError, UnknownFormatError)):
                find_reader(f"s3://bucket/{name}", storage)
            assert server.requests.total() == (2 if may_list else 9) + name.endswith("/")
        for name in ("v3", "v2", "v3/", "v2/"):
            assert find_reader(f"s3://bucket/{name}", storage).name == "zarr"


def test_directories_are_found_by_what_is_in_them(write, tmp_path):
    """Kerchunk's parquet references and zarr both have a ``.zmetadata``; a word in it tells them apart."""
    write("refs/.zmetadata", b'{"metadata": {}, "record_size": 100}')
    assert find_reader(tmp_path / "refs", STORAGE).name == "kerchunk"
    write("store/.zmetadata", b'{"metadata": {}}')
    assert find_reader(tmp_path / "store", STORAGE).name == "zarr"
    write("store.zarr/.vstack/zarr.json", b'"virtualstack"')
    assert find_reader(tmp_path / "store.zarr", STORAGE).name == "vstack"
    assert find_reader("s3://bucket/store.zarr", STORAGE).name == "zarr"
    assert find_reader(write("a.zip", b"PK\3\4"), STORAGE).name == "zarr"
    write("other/readme", b"")
    with pytest.raises(UnknownFormatError, match=r"is a directory, and not a store .* Name its files, .*/\*\.nc'"):
        find_reader(tmp_path / "other", STORAGE)


@pytest.mark.parametrize(
    ("names", "pattern"),
    [
        (["a.nc", "b.nc"], r"/\*\.nc'"),
        (["2020/01/31/a.grib2", "2020/02/01/a.grib2", ".cache/x"], r"/\*\*/\*\.grib2'"),
        ([], r"/\*\.nc'"),
    ],
)
def test_the_files_of_a_folder_are_found_by_the_pattern_that_is_named(names, pattern, tmp_path):
    """At their depth, and with their suffix."""
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(UnknownFormatError, match=pattern) as error:
        find_reader(tmp_path, STORAGE)
    found = find_urls([re.search("such as '([^']*)'", str(error.value))[1]]) if names else []
    assert len(found) == sum(not name.startswith(".") for name in names)


def test_directories_on_a_server_are_found_too(write, tmp_path):
    """Nothing is at the URL itself, but its ``.zmetadata`` is."""
    write("refs/.zmetadata", b'{"metadata": {}, "record_size": 100}')

    class Remote(Storage):
        def source(self, url):
            if url == "s3://bucket/refs":
                raise SourceNotFoundError("nothing there", url=url)
            return STORAGE.source(url.replace("s3://bucket", f"file://{tmp_path}"))

    assert find_reader("s3://bucket/refs", Remote()).name == "kerchunk"
    with pytest.raises(SourceNotFoundError, match="nothing there"):
        find_reader("s3://bucket/refs", type("Empty", (Remote,), {"source": _nothing})())


def _nothing(self, url):
    raise SourceNotFoundError("nothing there", url=url)


def test_the_reader_asked_for_is_given(tmp_path):
    """By name or as an object; then nothing is read, and there need not be anything."""
    nowhere = tmp_path / "nowhere"
    assert find_reader(nowhere, STORAGE, "hdf5") == HDF5()
    reader = HDF5()
    assert find_reader(nowhere, STORAGE, reader) is reader
    with pytest.raises(
        UnknownFormatError,
        match=r"there is no reader 'hdf6'\. Did you mean 'hdf5'\? See all readers with vs\.list_readers",
    ):
        find_reader(nowhere, STORAGE, "hdf6")


@pytest.fixture
def plugins(monkeypatch):
    def install(*rows):
        monkeypatch.setattr(registry, "_plugins", lambda: rows)

    return install


def test_a_format_that_is_known_and_not_read_is_named(plugins, write):
    plugins(Format(name="x", title="X", target=None, magic=((b"XXX", (0,)),)))
    with pytest.raises(UnsupportedFeatureError, match="is X, which virtualstack cannot read yet"):
        find_reader(write("a", b"XXX"), STORAGE)


def test_plugins_are_found_by_signature_and_by_suffix(plugins, write):
    """A row of an entry point is asked after the built-in ones; a format without signature has its suffix."""
    target = "virtualstack.formats.hdf5.reader:HDF5"
    plugins(
        Format(name="a", title="A", target=target, magic=((b"AAAA", (0, 8192)),)),
        Format(name="b", title="B", target=target, suffixes=(".b",)),
    )
    assert [row.name for row in list_readers()][-2:] == ["a", "b"]
    for path in (write("x", b"AAAA..."), write("y", bytes(8192) + b"AAAA"), write("z.b", b"anything")):
        assert find_reader(path, STORAGE) == HDF5()


def test_entry_points_load_rows(monkeypatch):
    """Each entry point of the group gives a row; readers stay unimported."""

    class Entry:
        def load(self):
            return Format(name="plugin", title="Plugin", target="no_such_module:Reader")

    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [Entry()])
    monkeypatch.setattr(registry, "_plugins", functools.cache(registry._plugins.__wrapped__))
    assert list_readers()[-1].name == "plugin"


def test_a_missing_extra_is_told_with_the_pip_command(plugins, write):
    """A reader whose module needs what is not installed."""
    plugins(Format(name="a", title="A", target="no_such_module:Reader", magic=((b"AAAA", (0,)),), extra="tiff"))
    with pytest.raises(MissingDependencyError, match=r"reading A .*pip install 'virtualstack\[tiff\]'$"):
        find_reader(write("x", b"AAAA"), STORAGE)
    plugins(Format(name="a", title="A", target="no_such_module:Reader", magic=((b"AAAA", (0,)),)))
    with pytest.raises(ReaderError, match="'no_such_module:Reader' cannot be loaded: ModuleNotFoundError"):
        find_reader(write("x", b"AAAA"), STORAGE)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("virtualstack.formats.base:Gone", "AttributeError"),
        ("virtualstack.formats.base:ManifestGroup", "TypeError"),
        ("builtins:object", "TypeError: a object has no method read"),
    ],
)
def test_a_reader_that_cannot_be_made_is_named(plugins, write, target, reason, capsys):
    """A source of another format opens, and the command lists the readers."""
    plugins(Format(name="a", title="A", target=target, suffixes=(".a",)))
    with pytest.raises(ReaderError, match=f"is A, whose reader '{target}' cannot be loaded: {reason}"):
        find_reader(write("x.a", b"AAAA"), STORAGE)
    assert main(["readers"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-1] == "broken"


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": b"AAA"},
        {"magic": ((b"AAA", 0),)},
        {"magic": (("AAA", (0,)),)},
        {"magic": ((b"", (0,)),)},
        {"magic": ((b"AAA", (-3,)),)},
        {"magic": None},
        {"children": ("x",)},
        {"suffixes": ".a"},
        {"suffixes": [".a"]},
        {"title": None},
        {"name": 5},
        {"target": object},
        {"target": "module"},
    ],
)
def test_a_row_with_fields_of_other_types_is_an_error(fields):
    """Where a plugin makes it, which is then left out; else the search for the readers of all files would fail."""
    with pytest.raises(TypeError, match="has a field of another type"):
        Format(**{"name": "a", "title": "A", "target": "module:A", **fields})


def test_classes_are_imported_when_asked_for():
    """Finding out a format imports no reader; asking for the class does."""
    code = (
        "import sys, virtualstack.readers as r; dir(r); r.list_readers(); module = 'virtualstack.formats.hdf5.reader';"
        "assert not {module, 'h5py'} & sys.modules.keys(); r.HDF5; assert module in sys.modules"
    )
    run_python(code)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'; the readers are"):
        getattr(virtualstack.readers, "Nothing")  # noqa: B009 - what a wrong name does
    assert "HDF5" in dir(virtualstack.readers)


def test_an_error_page_with_status_200_is_recognised():
    """A server that answers with a login page instead of the file."""

    class Handler(BaseHTTPRequestHandler):
        body = b"<html>please log in</html>"

        def do_HEAD(self):
            self.send_response(200)
            self.send_header("Content-Length", str(len(self.body)))
            self.end_headers()

        def do_GET(self):
            self.do_HEAD()
            self.wfile.write(self.body)

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(UnknownFormatError, match="web page"):
                find_reader(f"http://127.0.0.1:{server.server_port}/x.nc", STORAGE)
        finally:
            server.shutdown()


INSTALLED = """
from virtualstack.readers import Format

GOOD = Format(name="mine", title="Mine", target="my_plugin_reader:Mine", magic=((b"MINE", (0,)),), suffixes=(".mine",))
TAKEN = Format(name="hdf5", title="Another", target="my_plugin_reader:Mine")
NOT_ONE = 5
"""
READER = """
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from virtualstack.manifests import ManifestGroup, inline_array


@dataclass(frozen=True)
class Mine:
    name: ClassVar[str] = "mine"

    def read(self, url, storage, options):
        value = np.frombuffer(storage.source(url).read(4, 4), "<i4")
        return ManifestGroup(arrays={"v": inline_array(value, name="v", dims=("x",), attributes={})}, url=url)
"""


def test_an_installed_plugin(tmp_path):
    """A distribution with entry points is listed, detected and used; those that are broken warn, and are left out."""
    site = tmp_path / "site"
    info = site / "my_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[virtualstack.readers]\ngood = my_plugin:GOOD\ntaken = my_plugin:TAKEN\nno_format = my_plugin:NOT_ONE\n"
        "gone = my_plugin:GONE\nbroken = my_plugin_broken:ROW\nabsent = my_plugin_absent:ROW\n"
        "leaves = my_plugin_leaves:ROW\n"
    )
    (site / "my_plugin.py").write_text(INSTALLED)
    (site / "my_plugin_reader.py").write_text(READER)
    (site / "my_plugin_broken.py").write_text("1 +")
    (site / "my_plugin_leaves.py").write_text("raise SystemExit(3)")
    (tmp_path / "x.dat").write_bytes(b"MINE" + bytes([7, 0, 0, 0]))
    code = """if True:
        import sys, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import virtualstack as vs
            vds = vs.open_virtual_dataset(sys.argv[1])
            assert "my_plugin_reader" in sys.modules
            assert [row.name for row in vs.readers.list_readers()][-1] == "mine"
            vs.open_virtual_dataset(sys.argv[1], reader="mine")
        print(vds.virtual.open()["v"].values.tolist())
        for line in sorted(str(x.message) for x in caught if "plugin" in str(x.message)):
            print(line)
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    values, *warned = run_python(code, tmp_path / "x.dat", env=env).splitlines()
    assert values == "[7]"
    told = ["'absent' cannot be loaded: ModuleNotFoundError", "'broken' cannot be loaded: SyntaxError"]
    told += ["'gone' cannot be loaded: AttributeError", "'leaves' cannot be loaded: SystemExit"]
    told += ["'no_format' gives a int, which is not a Format"]
    told += ["'taken' has the name of another reader, 'hdf5'"]
    assert len(warned) == len(told)
    for line, expected in zip(warned, told, strict=True):
        assert expected in line


def test_a_group_that_is_no_path_is_refused():
    """Before a file is opened."""
    with pytest.raises(TypeError, match="group=5 is not a path of a group"):
        ReadOptions(group=5)

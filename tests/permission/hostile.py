"""References of every form to places that nobody has allowed."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import h5py
import icechunk
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xarray as xr
import zarr

from tests.data import make_dmrpp
from tests.data.arrays import referenced
from tests.icechunk.repositories import may_refer_to
from tests.servers import RangeServer
from virtualstack.manifests import ManifestGroup
from virtualstack.vstack.save import save

__all__ = [
    "BY_SERVER",
    "FOREIGN",
    "HOSTILE",
    "LINKS",
    "LOCAL",
    "NUMBERS",
    "SECRET",
    "World",
    "link",
    "references",
    "version_1",
    "vstack",
]

SECRET = b"root:x:0:"
ZARRAY = {"shape": [9], "chunks": [9], "dtype": "|u1", "compressor": None, "filters": None, "fill_value": None}
ZARRAY |= {"order": "C", "zarr_format": 2}
ZATTRS = {"_ARRAY_DIMENSIONS": ["x"]}
NUMBERS = np.frombuffer(SECRET, "u1")


@dataclass(frozen=True)
class World:
    """The places of a test.

    Parameters
    ----------
    folder
        Folder of the references.
    secrets
        Files that nothing may open.
    canary
        Server on loopback to which nothing may send a request.
    web
        Another server on loopback, which serves the folder of the references.
    """

    folder: Path
    secrets: tuple[Path, ...]
    canary: RangeServer
    web: RangeServer

    @property
    def outside(self) -> Path:
        """Folder of the secrets."""
        return self.raw.parent

    @property
    def raw(self) -> Path:
        return self.secrets[0]

    @property
    def hdf5(self) -> Path:
        return self.secrets[1]

    @property
    def port(self) -> str:
        return self.canary.root.rpartition(":")[2].rstrip("/")


# -- places -------------------------------------------------------------------------------------------------------

LOCAL: dict[str, Callable[[World], str]] = {
    "path": lambda w: str(w.raw),
    "URL": lambda w: f"file://{w.raw}",
    "URL in capitals": lambda w: f"FILE://{w.raw}",
    "URL with a host": lambda w: f"file://localhost{w.raw}",
    "local URL": lambda w: f"local://{w.raw}",
    "two slashes": lambda w: f"/{w.raw}",
    "dots": lambda w: "../../../outside/secret",
    "dots in a URL": lambda w: f"file://{w.folder}/../../outside/secret",
    "encoded dots": lambda w: f"file://{w.folder}/%2e%2e/%2E%2E/outside/secret",
    "relative encoded dots": lambda w: "%2e%2e/%2e%2e/%2e%2e/outside/secret",
    "twice encoded dots": lambda w: f"file://{w.folder}/%252e%252e/%252e%252e/outside/secret",
    "backslashes": lambda w: "..\\..\\..\\outside\\secret",
    "link": lambda w: "link",
    "folder that is a link": lambda w: "links/secret",
    "URL of a link": lambda w: f"file://{w.folder}/0/link",
    "hidden file": lambda w: f"file://{w.folder.parent}/.ssh/id",
    "behind a cache": lambda w: f"simplecache::file://{w.raw}",
    "member of a zip": lambda w: f"zip://secret::file://{w.raw}",
    "member of a tar": lambda w: f"tar://secret::{w.raw}",
    "line break": lambda w: f"file://{w.raw}\n",
}
FOREIGN: dict[str, Callable[[World], str]] = {
    "loopback": lambda w: f"http://127.0.0.1:{w.port}/secret",
    "loopback in capitals": lambda w: f"HTTP://127.0.0.1:{w.port}/secret",
    "localhost": lambda w: f"http://localhost:{w.port}/secret",
    "localhost with a dot": lambda w: f"http://localhost.:{w.port}/secret",
    "decimal": lambda w: f"http://2130706433:{w.port}/secret",
    "octal": lambda w: f"http://0177.0.0.1:{w.port}/secret",
    "hexadecimal": lambda w: f"http://0x7f000001:{w.port}/secret",
    "short": lambda w: f"http://127.1:{w.port}/secret",
    "zero": lambda w: f"http://0.0.0.0:{w.port}/secret",
    "IPv6": lambda w: f"http://[::1]:{w.port}/secret",
    "IPv4 in IPv6": lambda w: f"http://[::ffff:127.0.0.1]:{w.port}/secret",
    "IPv4 in IPv6 by numbers": lambda w: f"http://[::ffff:7f00:1]:{w.port}/secret",
    "user before the host": lambda w: f"http://data.org@127.0.0.1:{w.port}/secret",
    "query before the host": lambda w: f"http://data.org?@127.0.0.1:{w.port}/secret",
    "fragment before the host": lambda w: f"http://data.org#@127.0.0.1:{w.port}/secret",
    "encoded host": lambda w: f"http://%31%32%37.0.0.1:{w.port}/secret",
    "wide digits": lambda w: f"http://１２７.0.0.1:{w.port}/secret",
    "backslash": lambda w: f"http://127.0.0.1:{w.port}\\@data.org/secret",
    "private name": lambda w: "http://wiki.internal/secret",
    "name without a dot": lambda w: f"http://intranet:{w.port}/secret",
    "metadata of a cloud": lambda w: "http://169.254.169.254/latest/meta-data/",
    "metadata of a cloud in IPv6": lambda w: "http://[fd00:ec2::254]/latest/meta-data/",
    "web server behind a cache": lambda w: f"simplecache::http://127.0.0.1:{w.port}/secret",
    "zip on a web server": lambda w: f"zip://secret::http://127.0.0.1:{w.port}/secret",
    "memory": lambda w: "memory://secret",
    "other references": lambda w: "reference://secret",
    "GitHub": lambda w: "github://org:repo@main/secret",
    "dav": lambda w: f"webdav://127.0.0.1:{w.port}/secret",
}

# -- forms --------------------------------------------------------------------------------------------------------


def hidden(folder: Path, path: Path) -> None:
    """Move a part of references out of their folder, and leave a link to it."""
    target = folder.parents[2] / "outside" / folder.name / path.name
    target.parent.mkdir(exist_ok=True)
    path.rename(target)
    path.symlink_to(target)


def kerchunk(*reference: object, **more: object) -> str:
    """Return references of version 1 to one chunk."""
    refs = {".zgroup": '{"zarr_format": 2}', "x/.zarray": json.dumps(ZARRAY), "x/.zattrs": json.dumps(ZATTRS)}
    return json.dumps({"version": 1, **more, "refs": {**refs, **({"x/0": [*reference]} if reference else {})}})


def version_1(folder: Path, place: str) -> Path:
    (folder / "p.json").write_text(kerchunk(place, 0, 9))
    return folder / "p.json"


def version_0(folder: Path, place: str) -> Path:
    (folder / "p.json").write_text(json.dumps(json.loads(kerchunk(place, 0, 9))["refs"]))
    return folder / "p.json"


def whole_file(folder: Path, place: str) -> Path:
    (folder / "p.json").write_text(kerchunk(place))
    return folder / "p.json"


def template(folder: Path, place: str) -> Path:
    begin, end = place[:3], place[3:]
    (folder / "p.json").write_text(kerchunk("{{a}}{{b}}", 0, 9, templates={"a": begin, "b": end}))
    return folder / "p.json"


def generator(folder: Path, place: str) -> Path:
    gen = {"key": "x/{{i}}", "url": "{{a}}", "offset": "0", "length": "9", "dimensions": {"i": [0]}}
    (folder / "p.json").write_text(kerchunk(templates={"a": place}, gen=[gen]))
    return folder / "p.json"


def parquet(folder: Path, place: str) -> Path:
    path = folder / "p.parq"
    (path / "x").mkdir(parents=True)
    metadata = {".zgroup": {"zarr_format": 2}, "x/.zarray": ZARRAY, "x/.zattrs": ZATTRS}
    (path / ".zmetadata").write_text(json.dumps({"metadata": metadata, "record_size": 10}))
    row = {"path": [place], "offset": [0], "size": [9], "raw": pa.array([None], pa.binary())}
    pq.write_table(pa.table(row), path / "x/refs.0.parq")
    return path


def vstack(folder: Path, place: str) -> Path:
    array = referenced([0], [9], (9,), location=place, dims="x", name="x")
    save(ManifestGroup(arrays={"x": array}), folder / "p.vstack")
    return folder / "p.vstack"


def icechunk_(folder: Path, place: str) -> Path:
    path = folder / "p.icechunk"
    target = place.removeprefix("file://").rpartition("/")[0]
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path)), may_refer_to(target))
    session = repository.writable_session("main")
    group = zarr.create_group(session.store)
    group.create_array("x", shape=(9,), chunks=(9,), dtype="u1", dimension_names=["x"], compressors=None)
    session.store.set_virtual_ref("x/c/0", place, offset=0, length=9)
    session.commit("a")
    return path


def dmrpp(folder: Path, place: str) -> Path:
    with h5py.File(folder / "p.h5", "w") as file:
        file["x"] = NUMBERS
        file["x"].make_scale("x")
    found = make_dmrpp.write(folder / "p.h5", href=place)
    (folder / "p.h5").unlink()
    return found


def zarr_link(folder: Path, place: str) -> Path:
    """A zarr store whose one chunk is a link."""
    path = folder / "p.zarr"
    (path / "x").mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    (path / "x" / ".zarray").write_text(json.dumps(ZARRAY))
    (path / "x" / ".zattrs").write_text(json.dumps(ZATTRS))
    (path / "x" / "0").symlink_to(place)
    return path


def zarr_folder(folder: Path, place: str) -> Path:
    """A zarr store whose array is a link to a folder with a secret."""
    path = zarr_link(folder, place)
    (path / "x" / "0").unlink()
    (path / "x" / "0").write_bytes(SECRET)
    hidden(folder, path / "x")
    return path


def zarr_attributes(folder: Path, place: str) -> Path:
    """A zarr store whose attributes are a link to a document with a secret."""
    path = zarr_link(folder, place)
    (path / "x" / "0").unlink()
    (path / "x" / "0").write_bytes(bytes(9))
    (path / "x" / ".zattrs").write_text(json.dumps({**ZATTRS, "password": SECRET.decode()}))
    hidden(folder, path / "x" / ".zattrs")
    return path


def zarr_zip(folder: Path, place: str) -> Path:
    """A zarr store in an archive, in which a chunk is a link."""
    member = zipfile.ZipInfo("x/0")
    member.create_system, member.external_attr = 3, 0o120777 << 16
    with zipfile.ZipFile(folder / "p.zarr.zip", "w") as file:
        file.writestr(".zgroup", '{"zarr_format": 2}')
        file.writestr("x/.zarray", json.dumps({**ZARRAY, "shape": [len(place)], "chunks": [len(place)]}))
        file.writestr("x/.zattrs", json.dumps(ZATTRS))
        file.writestr(member, place)
    return folder / "p.zarr.zip"


def parquet_link(folder: Path, place: str) -> Path:
    """References as parquet, of which one file is a link to a secret."""
    path = parquet(folder, place)
    row = {"path": [None], "offset": [0], "size": [0], "raw": pa.array([SECRET], pa.binary())}
    pq.write_table(pa.table(row), path / "x/refs.0.parq")
    hidden(folder, path / "x/refs.0.parq")
    return path


def vstack_link(folder: Path, place: str) -> Path:
    """A vstack whose objects are links to a secret."""
    path = folder / "p.vstack"
    xr.Dataset({"x": ("x", NUMBERS)}).virtual.to_vstack(path)
    for file in [x for x in path.rglob("*") if x.is_file()]:
        hidden(folder, file)
    return path


def icechunk_link(folder: Path, place: str) -> Path:
    """A repository with a chunk of its own, which is a link to a secret."""
    path = folder / "p.icechunk"
    session = icechunk.Repository.create(icechunk.local_filesystem_storage(str(path))).writable_session("main")
    group = zarr.create_group(session.store)
    array = group.create_array("x", shape=(9000,), chunks=(9000,), dtype="u1", dimension_names=["x"], compressors=None)
    array[:] = np.tile(NUMBERS, 1000)
    session.commit("a")
    for chunk in (path / "chunks").iterdir():
        hidden(folder, chunk)
    return path


def external(folder: Path, place: str) -> Path:
    with h5py.File(folder / "p.h5", "w") as file:
        file.create_dataset("x", (9,), "u1", external=[(place, 0, 9)])
    return folder / "p.h5"


def external_text(folder: Path, place: str) -> Path:
    with h5py.File(folder / "p.h5", "w") as file:
        file.create_dataset("x", (1,), "S9", external=[(place, 0, 9)])
    return folder / "p.h5"


def link(folder: Path, place: str) -> Path:
    with h5py.File(folder / "p.h5", "w") as file:
        file["y"] = np.array([file.ref], h5py.ref_dtype)
        file["x"] = h5py.ExternalLink(place, "x")
    return folder / "p.h5"


def virtual(folder: Path, place: str) -> Path:
    with h5py.File(folder / "p.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((9,), "u1")
        layout[:] = h5py.VirtualSource(place, "x", (9,))
        file.create_virtual_dataset("x", layout)
    return folder / "p.h5"


def growing(folder: Path, place: str) -> Path:
    with h5py.File(folder / "p.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((9,), "u1", maxshape=(None,))
        source = h5py.VirtualSource(place, "grows", (9,), maxshape=(None,))
        layout[: h5py.h5s.UNLIMITED] = source[: h5py.h5s.UNLIMITED]
        file.create_virtual_dataset("x", layout)
    return folder / "p.h5"


def file_of(hdf5: bool) -> Callable[[World], str]:
    return lambda w: str(w.hdf5 if hdf5 else w.raw)


FEW = {name: (LOCAL | FOREIGN)[name] for name in ("URL", "loopback", "metadata of a cloud", "memory", "hidden file")}
FILES = {"path": file_of(False), "dots": lambda w: "../../../outside/secret"}
HDF5S = {"path": file_of(True), "dots": lambda w: "../../../outside/secret.h5"}
HOSTILE = [
    *((version_1, name, place) for name, place in (LOCAL | FOREIGN).items()),
    *((form, name, FEW[name]) for form in (version_0, whole_file, template, generator) for name in FEW),
    *((form, name, FEW[name]) for form in (parquet, vstack, dmrpp) for name in FEW),
    (icechunk_, "URL", LOCAL["URL"]),
    (icechunk_, "hidden file", LOCAL["hidden file"]),
    *((form, "path", file_of(False)) for form in (zarr_link, zarr_folder, zarr_attributes, zarr_zip)),
    *((form, "path", file_of(False)) for form in (parquet_link, vstack_link, icechunk_link)),
    *((form, name, place) for form in (external, external_text) for name, place in FILES.items()),
    *((form, name, place) for form in (link, virtual, growing) for name, place in HDF5S.items()),
]
"""Form, name and place of each reference."""

LINKS = {zarr_link, zarr_folder, zarr_attributes, parquet_link, vstack_link, icechunk_link}
"""Forms that are links on a disk: a web server that follows links itself would serve what they lead to."""

BY_SERVER = {"link", "folder that is a link", "relative encoded dots"}
"""Places that the server of the tests itself would look for on its disk."""


def references(world: World, number: int) -> Path:
    """Return the references of a number, which are written once."""
    form, _, place = HOSTILE[number]
    folder = world.folder / f"{number}"
    if not folder.exists():
        folder.mkdir()
        (folder / "link").symlink_to(world.raw)
        (folder / "links").symlink_to(world.outside)
        form(folder, place(world))
    (path,) = folder.glob("p.*")
    return path

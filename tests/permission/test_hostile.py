"""References of every form, through every entry: nothing that they may not name is opened or requested."""

from __future__ import annotations

import json
import urllib.request
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.data.opened import opened_files
from tests.permission.hostile import (
    BY_SERVER,
    FOREIGN,
    HOSTILE,
    LINKS,
    LOCAL,
    NUMBERS,
    SECRET,
    World,
    link,
    references,
    version_1,
    vstack,
)
from tests.servers import RangeServer
from virtualstack.cli.command import main
from virtualstack.errors import CombineError, ForbiddenLocationError, UnsupportedFeatureError, VirtualStackError
from virtualstack.readers import KerchunkDriver, ReadOptions

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Secrets on disk, on a server and in memory, and a folder for references."""
    base = tmp_path_factory.mktemp("hostile")
    folder = base / "inside" / "given"
    outside = base / "outside"
    for path in (folder, outside, folder.parent / ".ssh"):
        path.mkdir(parents=True)
    secrets = outside / "secret", outside / "secret.h5", folder.parent / ".ssh" / "id"
    for path in (secrets[0], secrets[2]):
        path.write_bytes(SECRET)
    with h5py.File(secrets[1], "w") as file:
        file["x"] = NUMBERS
        file.create_dataset("grows", data=NUMBERS, maxshape=(None,), chunks=(9,))
    fsspec.filesystem("memory").pipe("/secret", SECRET)
    files = {"secret": SECRET, "secret.h5": secrets[1].read_bytes()}
    with RangeServer(files) as canary, RangeServer(folder) as web:
        yield World(folder, secrets, canary, web)
    fsspec.filesystem("memory").rm("/secret")


# -- entries ------------------------------------------------------------------------------------------------------


def values_of(found: Any) -> list[object]:
    """Return the bytes of all variables, and all attributes."""
    nodes = [x.to_dataset(inherit=False) for x in found.subtree] if isinstance(found, xr.DataTree) else [found]
    arrays = [x for node in nodes for x in node.variables.values()]
    attributes = [x.attrs for x in (*nodes, *arrays)]
    return [*(x.values.tolist() if x.dtype.kind in "TUO" else x.values.tobytes() for x in arrays), *attributes]


def read(url: object, allow: Sequence[str]) -> list[object]:
    return values_of(xr.load_dataset(url, engine="virtualstack", allow=allow))


def virtual(url: str, allow: Sequence[str], **options: Any) -> list[object]:
    return values_of(vs.open_virtual_dataset(url, allow=allow, **options).virtual.open())


def group_of(url: str, allow: Sequence[str], **options: Any) -> Any:
    return vs.scan([url], options=ReadOptions.from_options(allow=allow), **options)[0]


def by_manifest_store(url: str, out: Path, allow: Sequence[str]) -> object:
    group = zarr.open_group(vs.ManifestStore(group_of(url, allow)), mode="r")
    return [group[name][...].tobytes() for name in group.array_keys()]


def by_driver(url: str, out: Path, allow: Sequence[str]) -> object:
    """Read what a driver translates: the JSON itself, or an HDF5 file."""
    if url.endswith(".h5"):
        return virtual(url, allow, reader=KerchunkDriver("kerchunk.hdf:SingleHdf5ToZarr", masks_fill_value=False))
    return virtual(url, allow, reader=KerchunkDriver(as_written)) if url.endswith(".json") else None


def as_written(url: str, storage_options: object = None) -> Any:
    url = url.removeprefix("virtualstack://")
    if url.startswith("http"):
        with urllib.request.urlopen(url) as file:
            return json.load(file)
    return json.loads(Path(url.removeprefix("file://")).read_bytes())


def by_command(allow: Sequence[str], *arguments: str) -> None:
    if main([*arguments, *(x for place in allow for x in ("--allow", place))]) != 0:
        raise VirtualStackError("the command failed")


def by_command_into(target: Path, allow: Sequence[str], *arguments: str) -> object:
    by_command(allow, *arguments)
    return read(target, allow)


def appended(url: str, out: Path, allow: Sequence[str], change: str) -> object:
    xr.Dataset({"x": ("x", np.zeros(9, "u1"))}).virtual.to_vstack(out / "own.vstack")
    getattr(vs.Repository.open(out / "own.vstack", allow=allow), change)(url, "x")
    return read(out / "own.vstack", allow)


def converted(url: str, target: Path, allow: Sequence[str], **options: Any) -> object:
    """Convert references, and read what was written as one's own."""
    vs.convert(url, target, allow=allow, **options)
    return read(target, allow)


def created(url: str, out: Path, allow: Sequence[str]) -> object:
    vs.Repository.create(out / "a.vstack", url, allow=allow)
    return read(out / "a.vstack", allow)


ENTRIES: dict[str, Callable[[str, Path, Sequence[str]], object]] = {
    "open_virtual_dataset": lambda url, out, allow: virtual(url, allow),
    "skipping": lambda url, out, allow: virtual(url, allow, unsupported="skip"),
    "open_virtual_datatree": lambda url, out, allow: values_of(
        vs.open_virtual_datatree(url, allow=allow).virtual.open()
    ),
    "open_virtual_mfdataset": lambda url, out, allow: values_of(
        vs.open_virtual_mfdataset([url], allow=allow).virtual.open()
    ),
    "engine": lambda url, out, allow: read(url, allow),
    "tree by the engine": lambda url, out, allow: values_of(xr.open_datatree(url, engine="virtualstack", allow=allow)),
    "ManifestStore": by_manifest_store,
    "KerchunkDriver": by_driver,
    "scan": lambda url, out, allow: group_of(url, allow),
    "scan with a cache": lambda url, out, allow: [group_of(url, allow, cache=out / "cache") for _ in range(2)],
    "survey": lambda url, out, allow: vs.survey([url], allow=allow),
    "convert to vstack": lambda url, out, allow: converted(url, out / "a.vstack", allow),
    "convert to kerchunk": lambda url, out, allow: converted(
        url, out / "a.json", allow, rewrite="64MiB", unsupported="skip"
    ),
    "Repository.create": created,
    "Repository.append": lambda url, out, allow: appended(url, out, allow, "append"),
    "Repository.update": lambda url, out, allow: appended(url, out, allow, "update"),
    "Repository.open": lambda url, out, allow: values_of(vs.Repository.open(url, allow=allow).open_dataset()),
    "Repository.verify": lambda url, out, allow: vs.Repository.open(url, allow=allow).verify(sample=5),
    "Repository.refresh": lambda url, out, allow: vs.Repository.open(url, allow=allow).refresh(),
    "virtualstack inspect": lambda url, out, allow: by_command(allow, "inspect", url),
    "virtualstack build": lambda url, out, allow: by_command_into(
        out / "a.vstack", allow, "build", url, "-o", str(out / "a.vstack")
    ),
    "virtualstack build --verify": lambda url, out, allow: by_command(
        allow, "build", url, "-o", str(out / "a.vstack"), "--verify"
    ),
    "virtualstack convert": lambda url, out, allow: by_command_into(
        out / "a.icechunk", allow, "convert", url, str(out / "a.icechunk")
    ),
    "virtualstack verify": lambda url, out, allow: by_command(allow, "verify", url, "--sample", "5"),
    "virtualstack survey": lambda url, out, allow: by_command(allow, "survey", url),
}
REFUSALS = ForbiddenLocationError, UnsupportedFeatureError
NO_VALUES = {"scan", "scan with a cache", "survey", "Repository.refresh", "virtualstack inspect", "virtualstack survey"}
"""Entries that read no values of references."""
OF_VSTACKS = {"Repository.open", "Repository.verify", "Repository.refresh", "virtualstack verify"}
"""Entries that open a vstack, and nothing else."""


def names(cell: tuple[int, bool]) -> str:
    form, name, _ = HOSTILE[cell[0]]
    return f"{form.__name__.strip('_')}-{name}-{'served' if cell[1] else 'local'}"


CELLS = [
    (number, True) for number, (form, name, _) in enumerate(HOSTILE) if form not in LINKS and name not in BY_SERVER
]
CELLS += [(number, False) for number, (form, name, _) in enumerate(HOSTILE) if form is not version_1 or name in LOCAL]
"""Numbers of references, and whether a web server serves them; otherwise they are local, and places are listed."""


@pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.apart)])
@pytest.mark.parametrize("cell", CELLS, ids=names)
def test_nothing_outside_is_read(cell, each, world, tmp_path, capsys):
    """No entry opens a file, or sends a request, for references to a place that they may not name.

    The engine is tried with all references, and ``each`` n-th of the other entries, not the same ones every time.
    """
    number, is_served = cell
    entries = {name: run for name, run in ENTRIES.items() if is_served or not name.startswith("virtualstack ")}
    entries = {
        name: run for i, (name, run) in enumerate(entries.items()) if (i + number) % each == 0 or name == "engine"
    }
    path = references(world, number)
    url = world.web.url(str(path.relative_to(world.folder))) if is_served else str(path)
    is_foreign = HOSTILE[number][0] is version_1 and HOSTILE[number][1] in FOREIGN
    moved = [x for x in (world.outside / f"{number}").rglob("*") if x.is_file()]
    world.canary.reset()
    failures = []
    for i, (entry, run) in enumerate(entries.items()):
        out = tmp_path / f"{i}"
        out.mkdir()
        found: object = None
        with opened_files(*world.secrets, *moved) as opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = run(url, out, () if is_served else vs.Listed())
            except VirtualStackError as error:
                said = repr(error) + repr(error.__cause__)
                if is_foreign and entry == "engine" and not isinstance(error, REFUSALS):
                    failures.append(f"{entry} does not refuse it: {error!r}")
            except Exception as error:  # noqa: BLE001 - all entries go on
                said = repr(error)
                failures.append(f"{entry} raises {error!r}")
            else:
                said = repr(found)
        if opened:
            failures.append(f"{entry} opens {opened}")
        if world.canary.log:
            failures.append(f"{entry} requests {world.canary.log[0][:2]}")
            world.canary.reset()
        printed = capsys.readouterr()
        made = b"".join(x.read_bytes() for x in out.rglob("*") if x.is_file())
        text = (said + printed.out + printed.err).encode(errors="replace") + made
        if SECRET in text or str(list(SECRET))[1:-1].encode() in text:
            failures.append(f"{entry} shows it")
    assert not failures, "\n".join(failures)


def test_there_are_enough_of_them():
    """Of every form, and through every entry."""
    assert len(HOSTILE) >= 40
    assert len({form for form, *_ in HOSTILE}) == 21
    assert sum(is_served for _, is_served in CELLS) >= 60
    assert len(ENTRIES) >= 20


@pytest.mark.parametrize("place", ["URL", "loopback"])
@pytest.mark.parametrize("form", [version_1, vstack])
def test_what_is_allowed_is_read(form, place, world, tmp_path, capsys):
    """Otherwise nothing would be proved: with ``allow=``, every entry that reads values is seen to read the secret."""
    (number,) = (i for i, x in enumerate(HOSTILE) if x[:2] == (form, place))
    url = world.web.url(str(references(world, number).relative_to(world.folder)))
    allow = [str(world.outside), world.canary.root]
    reading = ENTRIES.keys() - NO_VALUES - (OF_VSTACKS if form is version_1 else {"KerchunkDriver"})
    reading -= {"virtualstack build --verify"}  # of files that a library opens, not of references
    seen, failures = set(), []
    for i, entry in enumerate(sorted(reading)):
        (tmp_path / f"{i}").mkdir()
        world.canary.reset()
        with opened_files(*world.secrets) as opened, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = ENTRIES[entry](url, tmp_path / f"{i}", allow)
            except CombineError as error:  # its labels were read, and are no labels
                found = error
            except Exception as error:  # noqa: BLE001 - all entries go on
                failures.append(f"{entry}: {error!r} {capsys.readouterr()}")
                continue
        if opened if place == "URL" else world.canary.log:
            seen.add(entry)
        if isinstance(found, list) and SECRET not in repr(found).encode():
            failures.append(f"{entry}: {found!r}")
    assert not failures, "\n".join(failures)
    assert seen == reading


def test_links_of_local_files_are_followed(world, tmp_path):
    """``build --verify`` lets the library open what an HDF5 file on this disk names."""
    number = next(i for i, x in enumerate(HOSTILE) if x[0] is link)
    with opened_files(*world.secrets) as opened, pytest.raises(VirtualStackError):  # the cube lacks the linked values
        ENTRIES["virtualstack build --verify"](str(references(world, number)), tmp_path, [])
    assert opened

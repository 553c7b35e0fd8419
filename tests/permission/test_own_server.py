"""References on a web server that redirects the data that they name on itself: a redirect inside is not followed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr

import virtualstack as vs
from tests.permission.hostile import (
    NUMBERS,
    SECRET,
    dmrpp,
    external,
    generator,
    parquet,
    version_1,
    virtual,
    vstack,
)
from tests.permission.test_hostile import ENTRIES
from tests.servers import RangeServer
from virtualstack.errors import ForbiddenLocationError, StorageError, VirtualStackError

pytestmark = pytest.mark.filterwarnings("ignore")


class Leading(RangeServer):
    """A server that answers some paths with a redirect."""

    def __init__(self, files: Path, leads: Callable[[str], bool]) -> None:
        super().__init__(files, fault=lambda path: 302 if leads(path) else None, body=b"")


@pytest.fixture
def canary() -> Iterator[RangeServer]:
    """A server that nothing may ask."""
    files = {"secret": SECRET}
    with RangeServer(files) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "web" / "0"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def web(folder: Path, canary: RangeServer) -> Iterator[RangeServer]:
    """The server of the references; it redirects ``a.nc`` to the canary."""
    with Leading(folder.parent, lambda path: path.endswith(("a.nc", "a.h5"))) as running:
        running.headers = {"Location": canary.url("secret")}
        yield running


def own_chunks(folder: Path) -> Path:
    """Write a zarr store."""
    group = zarr.create_group(folder / "p.zarr", zarr_format=2)
    array = group.create_array("x", shape=(9,), chunks=(9,), dtype="u1", compressors=None)
    array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
    array[:] = NUMBERS
    zarr.consolidate_metadata(folder / "p.zarr", zarr_format=2)
    return folder / "p.zarr"


FORMS = [version_1, generator, parquet, vstack, dmrpp, external, virtual]


def failures_of(url: str, out: Path, canary: RangeServer, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what went wrong when all entries opened references."""
    failures = []
    for i, (entry, run) in enumerate(ENTRIES.items()):
        (out / f"{i}").mkdir(parents=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                said = repr(run(url, out / f"{i}", ()))
            except VirtualStackError as error:
                said = repr(error)
            except Exception as error:  # noqa: BLE001 - all entries go on
                said = repr(error)
                failures.append(f"{entry} raises {error!r}")
        if canary.log:
            failures.append(f"{entry} requests {canary.log[0][:2]}")
            canary.reset()
        printed = capsys.readouterr()
        if SECRET in (said + printed.out + printed.err).encode(errors="replace"):
            failures.append(f"{entry} shows it")
    return failures


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_data_beside_the_references(form, folder, web, canary, tmp_path, capsys):
    """Through every entry: the server of the references is no way to another host."""
    name = "a.h5" if form is virtual else "a.nc"
    place = name if form in (external, virtual) else web.url(f"0/{name}")
    path = form(folder, place)
    failures = failures_of(web.url(f"0/{path.name}"), tmp_path / "out", canary, capsys)
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("retries", [None, 2])
@pytest.mark.parametrize("storage", [None, "earthdata", {"https://": {"headers": {"x": "y"}}}, "options"])
def test_options_that_are_no_login(storage, retries, folder, web, canary):
    """They do not lead elsewhere either."""
    storage = {web.root: {"timeout": "30s"}} if storage == "options" else storage
    path = version_1(folder, web.url("0/a.nc"))
    group = vs.scan([web.url(f"0/{path.name}")], storage=storage, retries=retries)[0]
    with pytest.raises(ForbiddenLocationError, match=r"redirects to .* at 127\.0\.0\.1, which is loopback"):
        zarr.open_group(vs.ManifestStore(group), mode="r")["x"][...]
    assert not canary.log


@pytest.mark.parametrize("what", ["chunks", "records", "segments", "bundles"])
def test_parts_of_the_references(what, folder, web, canary, tmp_path, capsys):
    """Objects of a store that the server redirects."""
    (folder / "b.nc").write_bytes(bytes(9))
    if what == "chunks":
        path, part = own_chunks(folder), "x/0"
    elif what == "records":
        path, part = parquet(folder, web.url("0/b.nc")), "refs.0.parq"
    elif what == "segments":
        path, part = vstack(folder, web.url("0/b.nc")), "segments/"
    else:
        path, part = folder / "p.vstack", "bundles/"
        xr.Dataset({"x": ("x", NUMBERS)}).virtual.to_vstack(path)
    assert any(part in str(x) for x in path.rglob("*") if x.is_file())
    web.fault = lambda path: 302 if part in path else None
    failures = failures_of(web.url(f"0/{path.name}"), tmp_path / "out", canary, capsys)
    assert not failures, "\n".join(failures)


def test_references_to_their_own_document(folder, web, canary):
    """It was read when it was opened; where its chunks lead is checked."""
    path = version_1(folder, web.url("0/p.json"))
    web.fault = lambda path: 302 if web.n_requests > 1 else None
    with pytest.raises(ForbiddenLocationError, match="redirects to"):
        xr.load_dataset(web.url(f"0/{path.name}"), engine="virtualstack")
    assert not canary.log


def test_the_error_names_what_grants_it(folder, web, canary, monkeypatch):
    """The option that it names lets the redirect be followed, and so does the environment."""
    url = web.url(f"0/{version_1(folder, web.url('0/a.nc')).name}")

    def read(**options: object) -> bytes:
        return bytes(xr.open_dataset(url, engine="virtualstack", **options)["x"].values)

    with pytest.raises(ForbiddenLocationError, match=r"redirects to .* allow=\[\"http") as caught:
        read()
    assert not canary.log
    monkeypatch.setenv("VIRTUALSTACK_ALLOW", str(caught.value).rpartition('allow=["')[2].removesuffix('"]'))
    assert read() == SECRET
    monkeypatch.delenv("VIRTUALSTACK_ALLOW")
    assert read(allow=[canary.root]) == SECRET
    with pytest.raises(StorageError):
        read()


def test_a_server_of_references_may_be_private(folder, web, canary):
    """Its own data are read, also where it redirects to itself."""
    (folder / "b.nc").write_bytes(SECRET)
    url = web.url(f"0/{version_1(folder, web.url('0/b.nc')).name}")
    assert bytes(xr.open_dataset(url, engine="virtualstack")["x"].values) == SECRET
    web.fault = lambda path: 302 if path == "0/b.nc" else None
    (folder / "c.nc").write_bytes(SECRET)
    for lead in (web.url("0/c.nc"), "/0/c.nc", "c.nc"):
        web.headers = {"Location": lead}
        assert bytes(xr.open_dataset(url, engine="virtualstack")["x"].values) == SECRET


@pytest.mark.parametrize("allow", [True, False])
def test_a_server_that_local_references_name(allow, folder, web, canary):
    """It may be private, and where it redirects to is checked, so that nothing widens by a conversion."""
    path = version_1(folder, web.url("0/a.nc"))
    options = {"allow": [web.root]} if allow else {}
    with pytest.raises(ForbiddenLocationError, match="redirects to"):
        xr.open_dataset(path, engine="virtualstack", **options).load()
    assert not canary.log
    (folder / "b.nc").write_bytes(SECRET)
    path = version_1(folder, web.url("0/b.nc"))
    assert bytes(xr.open_dataset(path, engine="virtualstack", **options)["x"].values) == SECRET


def test_what_is_opened_by_name_may_redirect(tmp_path, canary):
    """As the user of the URL wants it; also its chunks, after a join, and in another process."""
    xr.Dataset({"t": ("x", np.arange(30_000.0))}).to_netcdf(tmp_path / "a.h5", engine="h5netcdf")
    with RangeServer(tmp_path) as data, Leading(tmp_path, lambda path: True) as web:
        web.headers = {"Location": data.url("a.h5")}
        vds = vs.open_virtual_dataset(web.url("a.h5"))
        for found in (vds, xr.concat([vds, vds], "x"), vs.open_virtual_mfdataset([web.url("a.h5")])):
            np.testing.assert_array_equal(found.virtual.open()["t"].values[:30_000], np.arange(30_000.0))

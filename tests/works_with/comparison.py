"""What virtualstack, VirtualiZarr and kerchunk make of the same files: ``python -m tests.works_with.comparison``.

The first table says what each makes of files that differ, and a test compares it with the page. The second has CPU
seconds, which depend less on other programs of the machine than the time of a clock does. Each tool has a process.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

N_FILES = 100
TOOLS = ("virtualstack", "virtualizarr", "kerchunk")

type Encodings = list[dict[str, Any]]

ALIKE: dict[str, Any] = {"zlib": True, "chunksizes": (2, 3)}
CASES: dict[str, Encodings] = {
    "files that are alike": [ALIKE] * 3,
    "one file without compression": [ALIKE, {"chunksizes": (2, 3)}, ALIKE],
    "one file with other chunks": [ALIKE, {"zlib": True, "chunksizes": (4, 2)}, ALIKE],
    "one file that ends within a chunk": [ALIKE, ALIKE | {"n": 3}, ALIKE],
    "one file with numbers of another type": [ALIKE, ALIKE | {"dtype": "f8"}, ALIKE],
    "files with a `scale_factor` of their own": [
        ALIKE | {"dtype": "i2", "scale_factor": 2.0**-i, "_FillValue": -1} for i in (2, 3, 4)
    ],
}
"""Encodings of the variable of each file, by what differs."""


# -- files ----------------------------------------------------------------------------------------------------


def write_files(folder: Path, encodings: Encodings, /, *, n: int = 4, shape: tuple[int, ...] = (6,)) -> list[str]:
    """Write a file for each encoding, and return their paths; ``n`` is the number of times in a file."""
    folder.mkdir(parents=True)
    paths, first = [], 0
    rng = np.random.default_rng(0)
    for i, encoding in enumerate(encodings):
        options = dict(encoding)
        length = options.pop("n", n)
        values = rng.integers(0, 400, (length, *shape)).astype("f4") / 4
        hours = ("time", np.arange(first, first + length), {"units": "hours since 2026-01-01"})
        dims = ("time", *("y", "x")[-len(shape) :])
        path = str(folder / f"{i:04}.nc")
        xr.Dataset({"rain": (dims, values)}, {"time": hours}).to_netcdf(
            path, engine="netcdf4", encoding={"rain": options}, unlimited_dims=["time"]
        )
        paths.append(path)
        first += length
    return paths


# -- tools ----------------------------------------------------------------------------------------------------


def _join_by_virtualstack(paths: list[str], **options: Any) -> Any:
    import virtualstack as vs

    return vs.open_virtual_mfdataset(paths, **options)


def _join_by_virtualizarr(paths: list[str], **options: Any) -> Any:
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import LocalStore
    from virtualizarr import open_virtual_mfdataset
    from virtualizarr.parsers import HDFParser

    return open_virtual_mfdataset(
        [Path(path).as_uri() for path in paths],
        registry=ObjectStoreRegistry({"file://": LocalStore()}),
        parser=HDFParser(),
        combine="by_coords",
        data_vars="minimal",
        coords="minimal",
        compat="override",
        **options,
    )


def _join_by_kerchunk(paths: list[str]) -> Any:
    from kerchunk.combine import MultiZarrToZarr
    from kerchunk.hdf import SingleHdf5ToZarr

    return MultiZarrToZarr([SingleHdf5ToZarr(path).translate() for path in paths], concat_dims=["time"]).translate()


def _write_json(joined: dict[str, Any], target: str) -> None:
    Path(target).write_text(json.dumps(joined))


def _write_parquet(joined: dict[str, Any], target: str) -> None:
    from kerchunk.df import refs_to_dataframe

    refs_to_dataframe(joined, target)


def _icechunk(folder: str, target: str) -> Any:
    """Return a repository whose virtual chunks may lie in a folder."""
    import icechunk

    config = icechunk.RepositoryConfig.default()
    store = icechunk.local_filesystem_store(folder.removeprefix("file://"))
    config.set_virtual_chunk_container(icechunk.VirtualChunkContainer(folder, store))
    storage = icechunk.local_filesystem_storage(target)
    return icechunk.Repository.open_or_create(storage, config=config, authorize_virtual_chunk_access={folder: None})


def _to_icechunk(write: Callable[[Any, Any], None]) -> Callable[[Any, str, str], None]:
    def commit(joined: Any, target: str, folder: str) -> None:
        session = _icechunk(folder, target).writable_session("main")
        write(joined, session.store)
        session.commit("files")

    return commit


_JOINS: dict[str, Callable[..., Any]] = {
    "virtualstack": _join_by_virtualstack,
    "virtualizarr": _join_by_virtualizarr,
    "kerchunk": _join_by_kerchunk,
}
_WRITES: dict[tuple[str, str], Callable[..., Any]] = {
    ("virtualstack", "vstack"): lambda joined, target: joined.virtual.to_vstack(target),
    ("virtualstack", "json"): lambda joined, target: joined.virtual.to_kerchunk(target),
    ("virtualstack", "parq"): lambda joined, target: joined.virtual.to_kerchunk(target),
    ("virtualstack", "icechunk"): _to_icechunk(lambda joined, store: joined.virtual.to_icechunk(store)),
    ("virtualizarr", "json"): lambda joined, target: joined.vz.to_kerchunk(target, format="json"),
    ("virtualizarr", "parq"): lambda joined, target: joined.vz.to_kerchunk(target, format="parquet"),
    ("virtualizarr", "icechunk"): _to_icechunk(lambda joined, store: joined.vz.to_icechunk(store)),
    ("kerchunk", "json"): _write_json,
    ("kerchunk", "parq"): _write_parquet,
}
FORMS = {"vstack": "vstack", "json": "JSON of kerchunk", "parq": "parquet of kerchunk", "icechunk": "Icechunk"}
WAYS = tuple(_WRITES)
"""Each tool with each form that it writes, by the suffix of the form."""


def write(tool: str, form: str, paths: list[str], target: str, /, **options: Any) -> Callable[[], xr.Dataset]:
    """Join files, write references to them, and return how the usual reader of this form opens these."""
    target = f"{target}.{form}"
    folder = [f"{Path(paths[0]).parent.as_uri()}/"] if form == "icechunk" else []
    _WRITES[tool, form](_JOINS[tool](paths, **options), target, *folder)
    if form == "icechunk":
        return lambda: xr.open_zarr(
            _icechunk(*folder, target).readonly_session("main").store, consolidated=False, chunks=None
        )
    if form == "vstack":
        return lambda: xr.open_dataset(target, engine="virtualstack")
    options = {"remote_protocol": "file"} if form == "parq" else {}  # fsspec cannot tell it if the first is inline
    return lambda: xr.open_dataset(target, engine="kerchunk", storage_options=options)


def outcome(tool: str, encodings: Encodings, folder: Path, /, *, form: str | None = None, **options: Any) -> str:
    """Return what a tool makes of files: the values that xarray reads from them, an error, or other values."""
    paths = write_files(folder / "files", encodings)
    wanted = xr.concat([xr.open_dataset(path, engine="netcdf4") for path in paths], "time")["rain"].values
    when = "error"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opens = write(tool, form or next(x for name, x in WAYS if name == tool), paths, f"{folder}/to", **options)
            when = "error when values are read"
            found = opens()["rain"].values
    except Exception as error:  # noqa: BLE001 - of another package
        kind = type(error)
        name = kind.__name__ if kind.__name__ != "error" else f"{kind.__module__}.error"
        return f"{when} ({name})"
    is_equal = found.shape == wanted.shape and np.array_equal(found, wanted.astype(found.dtype), equal_nan=True)
    return "right values" if is_equal else "other values"


# -- figures --------------------------------------------------------------------------------------------------


def measure(tool: str, form: str, folder: str) -> dict[str, Any]:
    """Return CPU seconds and bytes of a tool that joins the files of a folder, in a process that has imported it."""
    paths = sorted(str(path) for path in Path(folder, "files").iterdir())
    with tempfile.TemporaryDirectory() as warm:
        write(tool, form, write_files(Path(warm, "files"), [ALIKE] * 2), f"{warm}/to")().load()
    begin = time.process_time()
    opens = write(tool, form, paths, f"{folder}/{tool}")
    joined = time.process_time()
    float(opens()["rain"][-1, 0, 0])
    read = time.process_time()
    made = Path(folder, f"{tool}.{form}")
    n_bytes = sum(x.stat().st_size for x in (made.rglob("*") if made.is_dir() else [made]) if x.is_file())
    return {"join": joined - begin, "read": read - joined, "bytes": n_bytes}


def machine() -> str:
    """Describe when, where and with which versions this ran."""
    packages = ("virtualstack", "virtualizarr", "kerchunk", "icechunk", "zarr", "xarray", "h5py")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    info = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", info.read_text(), re.MULTILINE) if info.exists() else []
    today = datetime.datetime.now(datetime.UTC).date()
    python = f"Python {platform.python_version()} on {platform.system()}"
    return f"{today}; {python}, {os.cpu_count()} cores of {(names or [platform.machine()])[0]}; {versions}"


def main() -> None:
    """Print both tables."""
    print(machine(), end="\n\n")
    print(f"| Files | {' | '.join(TOOLS)} |\n| --- |{' --- |' * len(TOOLS)}")
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, encodings) in enumerate(CASES.items()):
            found = [outcome(tool, encodings, Path(folder, f"{tool}{i}")) for tool in TOOLS]
            print(f"| {name} | {' | '.join(found)} |")
        files = write_files(
            Path(folder, "figures", "files"),
            [{"zlib": True, "chunksizes": (1, 32, 32)}] * N_FILES,
            n=24,
            shape=(64, 64),
        )
        n_bytes = sum(Path(path).stat().st_size for path in files)
        print(f"\n{N_FILES} files, {n_bytes / 1e6:.1f} MB, {N_FILES * 24 * 4:,} chunks\n")
        print("| Tool | References | open, join and write, CPU s | open and read a value, CPU s | size, kB |")
        print("| --- | --- | --- | --- | --- |")
        for tool, form in WAYS:
            command = [sys.executable, "-W", "ignore", "-m", __spec__.name, tool, form, f"{folder}/figures"]
            found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout.splitlines()[-1])
            figures = f"{found['join']:.2f} | {found['read']:.3f} | {found['bytes'] / 1e3:,.0f}"
            print(f"| {tool} | {FORMS[form]} | {figures} |")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*sys.argv[1:])))
    else:
        main()

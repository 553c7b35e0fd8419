"""The examples that help and the reference show: each runs as typed, in a folder with files of its names."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import virtualstack as vs
from tests.docs.page import Block, find_free_port, serving
from virtualstack.cli.group import cli

EXAMPLES = sorted({x for command in cli.commands.values() for x in command.examples} | set(cli.examples))


def write(path, start, days=1):
    """Write hours of rain and temperature, and a group."""
    time = pd.date_range(start, periods=24 * days, freq="h")
    rain = np.arange(24.0 * days * 6).reshape(-1, 6).astype("f4")
    data = xr.Dataset({"rain": (("time", "lat"), rain)}, {"time": time, "lat": np.arange(6.0)})
    data["temperature"] = data["rain"] + 273
    path.parent.mkdir(parents=True, exist_ok=True)
    data.to_netcdf(path, unlimited_dims=["time"], engine="netcdf4")
    data.to_netcdf(path, group="science", mode="a", unlimited_dims=["time"], engine="netcdf4")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The files and stores that examples name."""
    folder = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for day in ("01", "02"):
            write(Path(f"data/2020-02-{day}.nc"), f"2020-02-{day}")
            write(Path(f"old/folder/2020-01-{day}.nc"), f"2020-01-{day}")
        for name, start in {
            "day": "2020-02-01",
            "jan": "2020-01-03",
            "feb": "2020-02-01",
            "2020-02-03": "2020-02-03",
            "late/a": "2020-02-04",
        }.items():
            write(Path(f"{name}.nc"), start)
        Path("files.txt").write_text("data/2020-02-01.nc\ndata/2020-02-02.nc\n")
        np.save("corrected.npy", np.ones((24, 6), "f4"))
        Path("tiles").mkdir()
        for path in vs.sample.scenes("scenes"):
            if "T32UPU" in path and "B04" in path:
                shutil.copy(path, Path("tiles") / Path(path).name.replace("-", ""))
        cube = vs.open_virtual_mfdataset("old/folder/*.nc")
        cube.virtual.to_vstack("cube.vstack", relative=True)
        repo = vs.Repository.open("cube.vstack")
        for value in (1.0, 2.0):
            repo = repo.write("rain", {"time": 0, "lat": 1}, value)
        vs.open_virtual_dataset("day.nc").virtual.to_kerchunk("refs.json", relative=True)
    return folder


@pytest.fixture
def bucket(s3_server, prepared, monkeypatch):
    """The buckets that examples name, which the configuration gives access to."""
    for path in prepared.glob("data/*.nc"):
        s3_server.put(f"2020/02/{path.name}", path.read_bytes())
    for path in prepared.glob("old/folder/*.nc"):
        s3_server.put(f"folder/{path.name}", path.read_bytes())
    monkeypatch.setenv("VIRTUALSTACK_STORAGE", json.dumps({"s3://bucket/": s3_server.options}))
    return s3_server


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example, prepared, bucket, tmp_path, monkeypatch):
    """Only port and host, the old folder and the day of a snapshot are others."""
    if ".icechunk" in example:
        pytest.importorskip("icechunk")
    folder = tmp_path / "folder"
    shutil.copytree(prepared, folder)
    monkeypatch.chdir(folder)
    if example.startswith("virtualstack build"):
        shutil.rmtree("cube.vstack")
    if "--group" in example:
        vs.open_virtual_datatree("day.nc").virtual.to_vstack("cube.vstack", mode="w")
    if "relocate" in example:  # what is relative to the store moves with it
        vs.open_virtual_mfdataset("old/folder/*.nc").virtual.to_vstack("cube.vstack", mode="w")
    if "rechunk" in example:
        parts = [xr.load_dataset(x).expand_dims(lon=40) for x in sorted(Path("old/folder").glob("*.nc"))]
        xr.concat(parts, "time").to_netcdf("long.nc", engine="netcdf4")
        vs.open_virtual_dataset("long.nc").virtual.to_vstack("cube.vstack", mode="w")
    if re.match(r"virtualstack (sync|ledger|health|recipe show|watch|segment|commit) ", example):
        shutil.rmtree("cube.vstack")
        url, storage = re.search(r"(s3://bucket/)?cube.vstack", example)[0], {"s3://bucket/": bucket.options}
        files = "s3://bucket/folder/*.nc" if "s3:" in url else "old/folder/*.nc"
        Path("recipe.toml").write_text(f'files = ["{files}"]\ndim = "time"\n')
        for key in bucket.client.list_objects_v2(Bucket="bucket", Prefix="cube.vstack/").get("Contents", ()):
            bucket.client.delete_object(Bucket="bucket", Key=key["Key"])
        if not example.startswith(("virtualstack segment", "virtualstack commit")):
            vs.Repository.build(url, "recipe.toml", storage=storage)
        elif example.startswith("virtualstack commit"):
            vs.Repository.segment(url, "recipe.toml", storage=storage)
    if example.startswith("virtualstack watch"):
        write(Path("old/folder/2020-01-05.nc"), "2020-01-05")
        if "s3:" in example:
            bucket.put("folder/2020-01-05.nc", Path("old/folder/2020-01-05.nc").read_bytes())
        program = Path(sys.executable).with_name("virtualstack")
        with subprocess.Popen([program, *shlex.split(example)[1:]], stdout=subprocess.PIPE, text=True) as process:
            said = process.stdout.readline()
            process.terminate()
            assert process.wait(60) == 0
        assert "1 placed" in said
        return
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).strftime("%Y-%m-%d")
    command = example.replace("/old/folder", f"{folder}/old/folder").replace("2026-01-31", tomorrow)
    if example.startswith("virtualstack serve"):
        command = re.sub(" --port .*", "", command).replace("0.0.0.0", "127.0.0.1")
        with serving(command, f"127.0.0.1:{find_free_port()}"):
            return
    Block("bash", command, 1).run({}, folder)

"""Clients that know zarr, but not virtualstack, read a served cube as xarray joins its files."""

import shutil
import subprocess
import sys
import urllib.error
import urllib.request

import aiohttp
import fsspec
import numpy as np
import pytest
import tensorstore
import xarray as xr
import zarr

import virtualstack as vs
from tests.serve.running import serving
from tests.serve.unlike import cube, joined, write_files


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with the cube of unlike files as vstack, and one file as kerchunk references; and their values."""
    folder = tmp_path_factory.mktemp("served")
    paths = write_files(folder)
    cube(paths).virtual.to_vstack(folder / "cube.vstack")
    vs.open_virtual_dataset(paths[0]).virtual.to_kerchunk(folder / "one.json")
    cubes = {"cube": folder / "cube.vstack", "one": folder / "one.json", "joined": paths[:1] + paths[2:3]}
    with serving(cubes, build={"combine_options": {"combine_attrs": "drop_conflicts"}}) as url:
        yield url, {"cube": joined(paths), "one": joined(paths[:1]), "joined": joined([paths[0], paths[2]])}


@pytest.mark.parametrize("consolidated", [True, False])
@pytest.mark.parametrize("folder", ["", "zarr2/"])
@pytest.mark.parametrize("name", ["cube", "one", "joined"])
def test_xarray(served, name, folder, consolidated):
    """`xr.open_zarr` reads both versions, with and without consolidated metadata, and warns of nothing."""
    url, wanted = served
    with xr.open_zarr(f"{url}/{folder}{name}", consolidated=consolidated, chunks=None) as found:
        xr.testing.assert_equal(found.drop_attrs(), wanted[name].astype(found.t.dtype))


@pytest.mark.parametrize("folder", ["", "zarr2/"])
def test_zarr(served, folder):
    """zarr-python lists the members and reads values."""
    url, wanted = served
    group = zarr.open_group(f"{url}/{folder}cube", mode="r")
    assert sorted(group.array_keys()) == ["t", "time", "x"]
    np.testing.assert_array_equal(group["t"][30:33], wanted["cube"]["t"][30:33])


@pytest.mark.parametrize("driver", ["zarr", "zarr3"])
@pytest.mark.parametrize("name", ["cube", "one", "joined"])
def test_tensorstore(served, name, driver):
    """tensorstore reads both versions, also files with shuffle, of which it knows no codec."""
    url, wanted = served
    folder = "zarr2/" if driver == "zarr" else ""
    spec = {"driver": driver, "kvstore": {"driver": "http", "base_url": f"{url}/{folder}{name}/t/"}}
    found = tensorstore.open(spec).result().read().result()
    np.testing.assert_array_equal(found, wanted[name]["t"].astype(found.dtype))


def test_fsspec(served):
    """fsspec lists folders by their links, reads whole keys, and ranges."""
    url, _ = served
    files = fsspec.filesystem("http")
    assert f"{url}/cube/t/" in files.ls(f"{url}/cube/", detail=False)
    whole = files.cat(f"{url}/cube/t/c/0/0/0")
    assert files.cat_file(f"{url}/cube/t/c/0/0/0", start=8, end=24) == whole[8:24]
    assert files.info(f"{url}/cube/t/c/0/0/0")["size"] == len(whole)


@pytest.mark.parametrize("name", ["cube", "one", "zarr2/cube", "zarr2/one"])
def test_gdal(served, name):
    """GDAL reads a field of each; rasterio runs in a process of its own, as its libraries clash with others."""
    pytest.importorskip("rasterio")
    url, wanted = served
    code = (
        "import rasterio, sys\n"
        f"with rasterio.open('ZARR:\"/vsicurl/{url}/{name}/t\"') as source:\n"
        "    sys.stdout.buffer.write(source.read().astype('f8').tobytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    np.testing.assert_array_equal(
        np.frombuffer(done.stdout), wanted[name.removeprefix("zarr2/")]["t"].values.ravel().astype("f8")
    )


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """A server with a cube whose names are not as they are in URLs, and the names and values."""
    folder = tmp_path_factory.mktemp("names")
    found = {x: np.arange(1.0, 13).reshape(4, 3) + i for i, x in enumerate(["a b", "c#d", "e?f", "g%41", "h%", "ü+@"])}
    tree = xr.DataTree.from_dict({"Data Fields": xr.Dataset({x: (("t", "x"), data) for x, data in found.items()})})
    tree.virtual.to_vstack(folder / "cube.vstack")
    with serving({"cube": folder / "cube.vstack"}) as url:
        yield url, found


def test_names_in_urls_of_gdal(names):
    """GDAL does not quote them, and would show fill values; so it finds them quoted."""
    pytest.importorskip("rasterio")
    url, wanted = names
    code = (
        "import rasterio, sys\n"
        "for name in sys.argv[2:]:\n"
        "    with rasterio.open(f'ZARR:\"/vsicurl/{sys.argv[1]}/zarr2/cube\":/Data%20Fields/{name}') as source:\n"
        "        sys.stdout.buffer.write(source.read().tobytes())"
    )
    shown = ["a%20b", "c%23d", "e%3Ff", "g%2541", "h%25", "ü+@"]
    done = subprocess.run([sys.executable, "-c", code, url, *shown], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    np.testing.assert_array_equal(np.frombuffer(done.stdout), np.concatenate([x.ravel() for x in wanted.values()]))


def test_names_in_urls_of_others(names):
    """Other clients find the names as they are."""
    url, wanted = names
    for folder in ("", "zarr2/"):
        group = zarr.open_group(f"{url}/{folder}cube", path="Data Fields", mode="r")
        assert set(group.array_keys()) == set(wanted)
        for name in ("a b", "h%", "ü+@"):
            np.testing.assert_array_equal(group[name][:], wanted[name])
        with pytest.raises(aiohttp.ClientResponseError, match="Bad Request"):  # fsspec asks for chunks of 'gA'
            group["g%41"][:]


@pytest.mark.parametrize("form", [1, 2], ids=["plain", "compressed"])
@pytest.mark.parametrize("root", ["cube", "zarr2/cube"])
def test_gdal_reports_errors(tmp_path, form, root):
    """It would show the fill value for a chunk with status 502, which other clients get, and the log."""
    pytest.importorskip("rasterio")
    path = write_files(tmp_path)[form]
    with serving({"cube": path}, refresh=1000) as url:
        urllib.request.urlopen(f"{url}/cube/t/zarr.json").close()
        (tmp_path / f"part{form}.nc").unlink()
        code = "import rasterio, sys\nwith rasterio.open(sys.argv[1]) as source:\n    print(source.read())"
        name = f'ZARR:"/vsicurl/{url}/{root}":/t:0'
        done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, timeout=120, check=False)
        assert b"Read failed" in done.stderr
        assert done.stdout == b""
        with urllib.request.urlopen(f"{url}/metrics") as answer:
            assert b'virtualstack_requests_total{cube="cube",status="502"} 1.0' in answer.read()


@pytest.mark.parametrize("form", [1, 2], ids=["plain", "compressed"])
def test_programs_of_gdal_report_errors(tmp_path, form):
    """Also those of GDAL 3.6, which does not send its name."""
    program = shutil.which("gdal_translate")
    if program is None:
        pytest.skip("there is no gdal_translate")
    path = write_files(tmp_path)[form]
    with serving({"cube": path}, refresh=1000) as url:
        command = [program, "-q", "-of", "ENVI", f'ZARR:"/vsicurl/{url}/zarr2/cube":/t:0', tmp_path / "slice"]
        urllib.request.urlopen(f"{url}/zarr2/cube/t/.zarray").close()
        (tmp_path / f"part{form}.nc").unlink()
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        assert done.returncode != 0
        assert b"ERROR" in done.stderr


@pytest.mark.parametrize(("dtype", "status", "size"), [("u1", 502, None), ("i2", 200, 1), ("f8", 200, 7)])
def test_errors_for_gdal_are_shorter_than_the_chunk(tmp_path, dtype, status, size):
    """GDAL reads values from any text that is long enough; no text is shorter than one byte."""
    dataset = xr.Dataset({"a": ("x", np.zeros(1, dtype))})
    dataset.to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding={"a": {"chunksizes": (1,)}})
    with serving({"cube": tmp_path / "a.nc"}, refresh=1000) as url:
        urllib.request.urlopen(f"{url}/cube/a/zarr.json").close()
        (tmp_path / "a.nc").unlink()
        asked = urllib.request.Request(f"{url}/cube/a/c/0", headers={"User-Agent": "GDAL/3.12.2"})
        try:
            answer = urllib.request.urlopen(asked)
        except urllib.error.HTTPError as error:
            answer = error
        with answer:
            assert answer.status == status
            assert size is None or len(answer.read()) == size

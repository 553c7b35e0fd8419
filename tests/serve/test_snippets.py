"""The lines for other programs that the page shows: each runs as it is, and reads the values that xarray joins."""

import json
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

from tests.serve.browser import SOURCES
from tests.serve.running import serving
from tests.serve.test_page import browser  # noqa: F401 - fixture
from tests.serve.unlike import cube, joined, write_files

NAMES = ["cube", "packed", "tree"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """URL of a server of unlike files, of one file that is packed, and of a tree; and the values of each."""
    folder = tmp_path_factory.mktemp("snippets")
    paths = write_files(folder)
    cube(paths).virtual.to_vstack(folder / "cube.vstack")
    wanted = {"cube": joined(paths)["t"], "packed": joined(paths[3:])["t"]}
    wanted["tree"] = wanted["packed"]
    # Groups of HDF-EOS have a space in their names, too.
    part = xr.load_dataset(paths[3], engine="netcdf4")
    xr.DataTree.from_dict({"/inner part": part}).to_netcdf(folder / "tree.nc", engine="netcdf4")
    with serving({"cube": folder / "cube.vstack", "packed": paths[3], "tree": folder / "tree.nc"}) as url:
        yield url, wanted


def find_lines(browser, url, name, title):  # noqa: F811
    """Return what the page shows for variable `t` of a cube."""
    variable = "inner%20part/t" if name == "tree" else "t"
    browser.open(f"{url}/#cube={name}&panel=open&variable={variable}")
    return browser.text(f"[aria-label={title}] pre")


def find_program(name):
    """Return the path of a program, or skip."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"there is no {name}")
    return path


def run(*command, **options):
    """Run a program, and return what it writes to stdout."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_python(browser, served, name):  # noqa: F811
    """xarray has all values, scaled."""
    url, wanted = served
    names = {}
    exec(find_lines(browser, url, name, "Python"), names)
    with names["ds"] as found:
        np.testing.assert_array_equal(found["t"], wanted[name].astype(found["t"].dtype))


@pytest.mark.parametrize("name", NAMES)
def test_javascript(browser, served, name, tmp_path):  # noqa: F811
    """zarrita has the stored numbers."""
    url, wanted = served
    (tmp_path / "node_modules").symlink_to(SOURCES / "node_modules")
    more = "\nconsole.log(JSON.stringify([values.shape, Array.from(values.data, Number), array.attrs]));"
    (tmp_path / "snippet.mjs").write_text(find_lines(browser, url, name, "JavaScript") + more)
    shape, data, attributes = json.loads(run(find_program("node"), "snippet.mjs", cwd=tmp_path))
    values = np.array(data, "f8").reshape(shape)
    values[values == attributes.get("_FillValue")] = np.nan
    values = values * attributes.get("scale_factor", 1) + attributes.get("add_offset", 0)
    np.testing.assert_allclose(values, wanted[name].values, rtol=1e-6 if name != "cube" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_r(browser, served, name, tmp_path):  # noqa: F811
    """stars has all values, scaled, NA where none is, and the times; its dimensions are in reverse order."""
    program = find_program("Rscript")
    if subprocess.run([program, "-e", "library(stars)"], capture_output=True, check=False).returncode:
        pytest.skip("R has no package stars")
    url, wanted = served
    more = """
        writeBin(as.numeric(x[[1]]), "values")
        writeLines(format(st_get_dimension_values(x, "time"), "%Y-%m-%d"), "times")
        writeLines(names(dim(x)), "names")
    """
    (tmp_path / "snippet.R").write_text(find_lines(browser, url, name, "R") + more)
    run(program, "snippet.R", cwd=tmp_path)
    t = wanted[name]
    assert (tmp_path / "names").read_text().split() == [*reversed(t.dims)]
    assert (tmp_path / "times").read_text().split() == [*t["time"].dt.strftime("%Y-%m-%d").values]
    found = np.fromfile(tmp_path / "values").reshape(t.shape)
    np.testing.assert_allclose(found, t.values, rtol=1e-6 if name != "cube" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_gdalmdiminfo(browser, served, name):  # noqa: F811
    """It lists variables and dimensions; values are the stored ones, beside the numbers that scale them."""
    program = find_program("gdalmdiminfo")
    url, wanted = served
    _, source = shlex.split(find_lines(browser, url, name, "GDAL").splitlines()[0])
    group = json.loads(run(program, source))
    found = json.loads(run(program, "-detailed", source))
    if name == "tree":
        group, found = (x["groups"]["inner%20part"] for x in (group, found))
    assert group["arrays"].keys() == {"t", "time", "x"}
    t = found["arrays"]["t"]
    assert t["dimension_size"] == [*wanted[name].shape]
    assert [x.rpartition("/")[2] for x in t["dimensions"]] == [*wanted[name].dims]
    assert found["arrays"]["time"]["unit"] == "days since 2000-01-01"
    values = np.array(t["values"], "f8")
    values = np.where(values == float(t["nodata_value"]), np.nan, values) * t.get("scale", 1) + t.get("offset", 0)
    np.testing.assert_allclose(values, wanted[name].values, rtol=1e-6 if name != "cube" else 0)


@pytest.mark.parametrize("name", NAMES)
def test_gdalinfo(browser, served, name, tmp_path):  # noqa: F811
    """GDAL opens a slice of a variable, and scales it when it is told to."""
    program = find_program("gdal_translate")
    url, wanted = served
    info, source = shlex.split(find_lines(browser, url, name, "GDAL").splitlines()[1])
    assert "Size is 6, 5\n" in run(find_program(info), source)
    run(program, "-q", "-unscale", "-ot", "Float64", "-of", "ENVI", source, tmp_path / "slice")
    found = np.fromfile(tmp_path / "slice").reshape(5, 6)
    first = wanted[name].values[0]
    is_valid = ~np.isnan(first)
    np.testing.assert_allclose(found[is_valid], first[is_valid], rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_rasterio(browser, served, name):  # noqa: F811
    """rasterio opens the same slice, in a process of its own, as its libraries clash with others."""
    pytest.importorskip("rasterio")
    url, wanted = served
    _, source = shlex.split(find_lines(browser, url, name, "GDAL").splitlines()[1])
    code = (
        "import rasterio, sys\n"
        "with rasterio.open(sys.argv[1]) as source:\n"
        "    values = source.read(1, masked=True) * source.scales[0] + source.offsets[0]\n"
        "print(values.astype('f8').filled(float('nan')).tolist())"
    )
    printed = run(sys.executable, "-W", "ignore", "-c", code, source)
    np.testing.assert_allclose(np.array(json.loads(printed.replace("nan", "NaN"))), wanted[name].values[0], rtol=1e-6)

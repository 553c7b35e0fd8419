"""The package as it is installed: what importing costs, what is public, and how a process with every extra ends."""

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack
from tests.servers import RangeServer
from virtualstack.errors import MissingDependencyError
from virtualstack.formats.registry import Format, load_reader

ROOT = Path(__file__).parents[1]
HEAVY = {"h5py", "pyarrow", "obstore", "eccodes", "pyproj", "tifffile", "imagecodecs"}


def run(program, *arguments, path=None):
    """Run a program in a process of its own, outside of the repository's directory; with a folder of modules."""
    paths = [] if path is None else [str(path), str(ROOT)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, check=False, timeout=300, cwd=ROOT.parent, env=environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# -- importing --------------------------------------------------------------------------------------------------

MEASURE = """
import json, sys, time
import xarray, zarr
before, start = set(sys.modules), time.perf_counter()
import virtualstack
seconds = time.perf_counter() - start
print(json.dumps([seconds, sorted(set(sys.modules) - before)]))
"""


def test_importing_adds_no_format_library(record_property, capsys):
    """Whoever has the package for one format does not wait for the libraries of the others, in whatever order."""
    seconds, added = json.loads(run(MEASURE).stdout)
    record_property("import_seconds", seconds)
    with capsys.disabled():
        print(f"\nimport virtualstack: {1000 * seconds:.0f} ms beyond xarray and zarr, {len(added)} modules")
    assert HEAVY.isdisjoint(name.partition(".")[0] for name in added)
    assert len(added) < 250


COLD = """
import json, sys
import xarray as xr
import virtualstack as vs
before = set(sys.modules)
{}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
VS, XARRAY = "vs.open_virtual_dataset(sys.argv[1])", "xr.open_dataset(sys.argv[1], engine=Engine)"
ENGINE = "from virtualstack.engine import VirtualStackBackendEntrypoint as Engine\n"
NOT_NEEDED = {
    *HEAVY, "zarr", "fsspec", "urllib3", "rasterio", "http", "tomllib", "configparser", "numpy.polynomial",
    "virtualstack.scanning.many", "virtualstack.drawing", "virtualstack.combine",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "opens", "most"),
    [
        ("a.nc", VS, 140),
        ("a.vstack", VS, 105),
        ("a.nc", ENGINE + XARRAY, 145),
        ("a.vstack", ENGINE + XARRAY, 110),
    ],
)
def test_a_first_open_imports_little(tmp_path, name, opens, most):
    """Neither the batch machine nor writers; most of the time of a first open is that of imports."""
    days = {"time": ("time", [0, 1], {"units": "days since 2000-01-01"})}
    xr.Dataset({"a": ("time", [0.5, 1.5])}, days).to_netcdf(tmp_path / "a.nc", engine="netcdf4")
    virtualstack.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "a.vstack")
    done = run(COLD.format(opens), str(tmp_path / name))
    assert done.returncode == 0, done.stderr
    added = json.loads(done.stdout)
    not_needed = NOT_NEEDED | ({"dask"} if opens == VS else set())  # xarray imports it to open anything
    assert not [x for x in added if any(x == y or x.startswith(f"{y}.") for y in not_needed)]
    assert len([x for x in added if x.startswith("virtualstack")]) <= most


RUN = """
for days in "01", "0123":
    recipe = vs.Recipe([sys.argv[1] + f"/[{days}].nc"], dim="time", unpack=True)
    url = sys.argv[1] + "/x.vstack"
    vs.Repository.open(url).sync(recipe=recipe) if "2" in days else vs.Repository.build(url, recipe)
"""


@pytest.mark.parametrize("is_scalar", [True, False])
def test_a_run_imports_no_dask(tmp_path, is_scalar):
    """Its import takes longer than a run that finds a few files; xarray imports it to look at the type of values."""
    packed = {"a": {"dtype": "i2", "scale_factor": 0.5, "_FillValue": -1}}
    for day in range(4):
        file = xr.Dataset({"a": (("time", "x"), [[0.5, 1.5]])}, {"time": [np.datetime64(f"2000-01-0{day + 1}", "ns")]})
        file = file.assign_coords(x=[0.0, 1.0]).isel(time=0 if is_scalar else slice(None))
        file.to_netcdf(tmp_path / f"{day}.nc", engine="h5netcdf", encoding=packed)
    done = run(COLD.format(RUN), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "dask.array" not in json.loads(done.stdout)


# -- what is public ---------------------------------------------------------------------------------------------


def test_the_public_names_are_these():
    """Changing them is a decision."""
    assert virtualstack.__all__ == [
        "ChunkEncoding", "ChunkGrid", "ChunkManifest", "Fill", "FromAttribute", "FromName", "Listed", "ManifestArray",
        "ManifestGroup", "ManifestStore", "Recipe", "Repository", "ScanResult", "Survey", "combine_datasets", "convert",
        "errors", "list_readers", "open_virtual_dataset", "open_virtual_datatree", "open_virtual_mfdataset",
        "open_virtual_mfdatatree", "readers", "sample", "scan", "serve", "stac", "survey",
    ]  # fmt: skip
    assert all(hasattr(virtualstack, name) for name in virtualstack.__all__)


def test_the_version_stands_in_one_place(project):
    """Metadata take it from the package."""
    assert importlib.metadata.version("virtualstack") == virtualstack.__version__
    assert project["dynamic"] == ["version"]


@pytest.mark.parametrize(
    ("group", "name", "target"),
    [
        ("scripts", "virtualstack", "virtualstack.cli.start:main"),
        ("xarray.backends", "virtualstack", "virtualstack.engine:VirtualStackBackendEntrypoint"),
    ],
)
def test_entry_points_are_there(project, group, name, target):
    """The command, and xarray's engine, as they are installed next."""
    found = project["scripts"] if group == "scripts" else project["entry-points"][group]
    assert found[name] == target
    assert callable(importlib.metadata.EntryPoint(name, target, group).load())


def test_no_class_has_a_finalizer_in_python():
    """Python loses Ctrl-C that comes within ``__del__``."""
    for path in (ROOT / "virtualstack").rglob("*.py"):
        assert "def __del__" not in path.read_text(), path


# -- what is needed ---------------------------------------------------------------------------------------------


def names(requirements):
    return {re.match(r"[\w.-]+", text).group().lower() for text in requirements}


def test_what_the_three_lines_need_is_no_extra(project):
    """And what one format needs is one."""
    core = names(project["dependencies"])
    assert {"h5py", "obstore", "pyarrow", "xarray", "zarr"} <= core
    assert core.isdisjoint(
        {"cfgrib", "eccodes", "tifffile", "imagecodecs", "icechunk", "dask", "matplotlib", "kerchunk"}
    )
    assert {"grib", "tiff", "icechunk", "dask", "plot", "kerchunk", "sample"} <= project["optional-dependencies"].keys()


def test_all_is_all_extras(project):
    """None is forgotten."""
    extras = project["optional-dependencies"]
    (everything,) = extras["all"]
    listed = re.fullmatch(r"virtualstack\[(.*)\]", everything).group(1).split(",")
    assert set(listed) == extras.keys() - {"all"}


def test_every_dependency_says_from_which_version_on(project):
    """So that an old environment is told, rather than failing later."""
    given = [x for xs in (project["dependencies"], *project["optional-dependencies"].values()) for x in xs]
    assert all(">=" in text for text in given if not text.startswith("virtualstack"))


WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2:]))
import virtualstack as vs
files = [f"{sys.argv[1]}/{day}.nc" for day in range(2)]
assert len(vs.scan(files)) == 2
cube = vs.open_virtual_mfdataset(files)
cube.virtual.to_vstack(f"{sys.argv[1]}/cube.vstack")
print(cube.virtual.open()["a"].values.tolist())
"""


def test_netcdf_files_need_no_extra(project, tmp_path):
    """Files are scanned, joined and written where the packages of the extras are not installed."""
    for day in range(2):
        days = {"time": ("time", [day], {"units": "days since 2000-01-01"})}
        xr.Dataset({"a": ("time", [day + 0.5])}, days).to_netcdf(tmp_path / f"{day}.nc", engine="netcdf4")
    wanted = [x for packages in project["optional-dependencies"].values() for x in packages]
    extras = {re.split(r"[\[>=]", x)[0].replace("-", "_") for x in wanted} | {"upath"}  # which wants fsspec
    done = run(WITHOUT_EXTRAS, str(tmp_path), *sorted(extras - {"virtualstack"}))
    assert (done.returncode, done.stdout) == (0, "[0.5, 1.5]\n"), done.stderr


def test_a_reader_without_its_extra_ends_with_the_pip_command(monkeypatch):
    """The extra is one of the package."""
    row = Format(name="grib", title="GRIB", target="no_such_library:Reader", extra="grib")
    with pytest.raises(MissingDependencyError, match=r"pip install 'virtualstack\[grib\]'$"):
        load_reader(row)


def test_extras_that_errors_name_exist(project):
    """In whatever module they are raised."""
    source = "".join(path.read_text() for path in (ROOT / "virtualstack").rglob("*.py"))
    named = set(re.findall(r"""extra="(\w+)\"""", source))
    assert named
    assert named <= project["optional-dependencies"].keys()


# -- how a process ends -----------------------------------------------------------------------------------------

OPEN = """
import sys, json
import xarray as xr
{first}
{second}
xr.open_dataset({{"version": 1, "refs": {{".zgroup": '{{"zarr_format":2}}'}}}}, engine="virtualstack")
print(json.dumps(sorted(xr.backends.list_engines())))
"""
HERE = "import virtualstack"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (HERE, ""),
        pytest.param(HERE, "import pyproj, eccodes", marks=pytest.mark.apart),
        ("import pyproj", HERE),
        ("from virtualstack.cli.command import main", ""),
    ],
)
def test_a_process_with_every_extra_ends_well(first, second):
    """Though eccodes and pyproj are both loaded, by whomever: pyproj was first."""
    found = run(OPEN.format(first=first, second=second))
    assert found.returncode == 0, found.stderr
    engines = json.loads(found.stdout.splitlines()[-1])
    assert "virtualstack" in engines
    wanted = {"cfgrib": "cfgrib", "rioxarray": "rasterio"}
    assert {engine for module, engine in wanted.items() if importlib.util.find_spec(module)} <= set(engines)


READ = """
import sys
import warnings
import xarray as xr
with warnings.catch_warnings(action="error", category=RuntimeWarning):
    engine = None if sys.argv[1].endswith(".vstack") else "virtualstack"
    with xr.open_dataset(sys.argv[1], engine=engine) as found:
        print(found.a.values.tolist(), {"eccodes", "pyproj"} & sys.modules.keys() == {"eccodes", "pyproj"})
print([x for x in xr.backends.list_engines() if x.lower() == "virtualstack"])
import rasterio
with rasterio.open(f"/vsicurl/{sys.argv[2]}") as image:
    print(int(image.read().sum()))
"""


@pytest.mark.parametrize("name", ["a.nc", "a.vstack"])
def test_whoever_reads_by_the_name_of_the_engine_alone_ends_well(project, tmp_path, name):
    """Though xarray loads eccodes, pyproj and rasterio by itself, and nobody imports virtualstack: exit status 0."""
    pytest.importorskip("cfgrib")
    pytest.importorskip("rioxarray")
    tifffile = pytest.importorskip("tifffile")
    installed = tmp_path / f"virtualstack-{virtualstack.__version__}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: virtualstack\nVersion: {virtualstack.__version__}\n"
    )
    names = project["entry-points"]["xarray.backends"].items()
    (installed / "entry_points.txt").write_text("\n".join(["[xarray.backends]", *map(" = ".join, names)]))
    xr.Dataset({"a": ("x", [1.0, 2.0])}).to_netcdf(tmp_path / "a.nc")
    virtualstack.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "a.vstack")
    tifffile.imwrite(tmp_path / "a.tif", np.full((64, 64), 3, np.uint8))
    with RangeServer(tmp_path) as server:
        found = run(READ, str(tmp_path / name), server.url("a.tif"), path=tmp_path)
    expected = "[1.0, 2.0] True\n['virtualstack']\n12288\n"
    assert (found.returncode, found.stdout) == (0, expected), found.stderr
    assert "loading failed" not in found.stderr


@pytest.mark.parametrize("first", ["", "import eccodes", "import pyproj"])
def test_a_process_that_reads_grib_ends_well(first, tmp_path):
    """Whoever has loaded eccodes before does not get pyproj on top of it."""
    make_grib = pytest.importorskip("tests.data.make_grib")
    path = make_grib.write(tmp_path / "a.grib", [make_grib.message()])
    opens = "print(vs.open_virtual_dataset(sys.argv[1]).virtual.open().t.size)"
    program = f"import sys\n{first}\nimport virtualstack as vs\n{opens}"
    found = run(program, str(path))
    assert (found.returncode, found.stdout) == (0, "24\n"), found.stderr


def test_rasterio_reads_from_servers_in_a_process_that_reads_grib(tmp_path):
    """It crashes if eccodes was loaded before it."""
    make_grib = pytest.importorskip("tests.data.make_grib")
    tifffile = pytest.importorskip("tifffile")
    pytest.importorskip("rasterio")
    make_grib.write(tmp_path / "a.grib", [make_grib.message()])
    tifffile.imwrite(tmp_path / "a.tif", np.full((64, 64), 3, np.uint8))
    program = (
        "import sys\nimport virtualstack as vs\nvs.open_virtual_dataset(sys.argv[1])\nimport rasterio\n"
        "print(int(rasterio.open(f'/vsicurl/{sys.argv[2]}').read().sum()))"
    )
    with RangeServer(tmp_path) as server:
        found = run(program, str(tmp_path / "a.grib"), server.url("a.tif"))
    assert (found.returncode, found.stdout) == (0, "12288\n"), found.stderr


def test_without_pyproj_eccodes_is_loaded_all_the_same():
    pytest.importorskip("eccodes")
    without = (
        "import sys\nsys.modules['pyproj'] = None\nfrom virtualstack.codecs.grib.library import import_eccodes\n"
        "print(import_eccodes().__name__ in sys.modules)"
    )
    assert run(without).stdout == "True\n"

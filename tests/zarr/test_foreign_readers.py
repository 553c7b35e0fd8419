"""The view as others read it: loaded arrays equal, virtual ones an error, and never fill values."""

import importlib.util
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.zarr.views import DIMS, LOADED, a_group, virtual_arrays, write

ZARRITA_JS = "zarrita@0.7.5"
ZARRITA_PY = "zarrita==0.2.7", "attrs", "cattrs", "crc32c", "zstandard"
PATHS = [*virtual_arrays(), "inner/plain"]


@pytest.fixture(scope="module")
def view(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foreign") / "x.vstack"
    write(a_group(), folder)
    return folder


def run(command, *, cwd, seconds=300):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, cwd=cwd)


def printed(command, *, cwd):
    """Run a program, and return what it printed as JSON."""
    result = run(command, cwd=cwd)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def install(command, *, folder, seconds):
    """Install a package into a folder, and return this; skip where that cannot be done."""
    try:
        made = run(command, cwd=folder, seconds=seconds)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the package was not installed within {seconds} s")
    if made.returncode:
        pytest.skip(f"the package could not be installed: {made.stderr.strip().splitlines()[-1:]}")
    return folder


def check_loaded(found, name):
    """What a program printed as JSON of a loaded array."""
    values = LOADED[name]
    assert found["shape"] == list(values.shape)
    assert found["dims"] == DIMS[name]
    got = np.array([{"nan": np.nan, "inf": np.inf}.get(x, x) for x in found["values"]], values.dtype)
    np.testing.assert_array_equal(got, values.reshape(-1))


def check_virtual(found):
    """It was refused when it was opened, or when it was read."""
    assert found.keys() == {"error"}, found


# -- zarr-python where virtualstack is not installed ------------------------------------------------------------

WITHOUT = """
import importlib.metadata, json, sys, warnings
found = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **given: importlib.metadata.EntryPoints(
    x for x in found(**given) if not x.value.startswith("virtualstack")
)
import numpy as np
import xarray as xr
import zarr
from zarr.core.sync import sync

warnings.simplefilter("ignore")
url, loaded, virtual = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
group = zarr.open_group(url, mode="r")

def attempt(do):
    try:
        return repr(do())
    except (ValueError, FileNotFoundError) as error:
        return f"{type(error).__name__}: {error}"

print(json.dumps({
    "virtualstack": any(x.startswith("virtualstack") for x in sys.modules),
    "attributes": dict(group.attrs),
    "loaded": {
        x: {"shape": y.shape, "dims": y.metadata.dimension_names, "values": [str(v) for v in y[...].ravel().tolist()]}
        for x, y in ((x, group[x]) for x in loaded)
    },
    "lists": [attempt(x) for x in (
        lambda: list(group.arrays()), lambda: list(group.members()), lambda: list(group), lambda: group.tree(),
        lambda: xr.open_zarr(url), lambda: xr.open_zarr(url, consolidated=False, drop_variables=virtual),
        lambda: xr.open_datatree(url, engine="zarr"),
    )],
    "virtual": {f"{x} by {how}": attempt(lambda: do(x, f"{url}/{x}")) for x in virtual for how, do in {
        "item": lambda x, at: group[x],
        "get": lambda x, at: group.get(x),
        "in": lambda x, at: x in group,
        "open": lambda x, at: zarr.open(at),
        "load": lambda x, at: zarr.load(at),
        "open_array": lambda x, at: zarr.open_array(at),
        "to write": lambda x, at: zarr.open_array(at, mode="r+"),
        "async": lambda x, at: sync(zarr.AsyncArray.open(at)),
        "version 2": lambda x, at: zarr.open_array(at, zarr_format=2),
        "as a group": lambda x, at: zarr.open_group(at, mode="r"),
        "xarray": lambda x, at: xr.open_zarr(at, consolidated=False),
    }.items()},
}))
"""


def test_zarr_without_virtualstack_reads_loaded_arrays_and_refuses_all_else(view):
    """Listing refuses too, as nothing can be said of a part of what is there."""
    numbers = [name for name in LOADED if name not in ("long", "wide")]
    found = printed([sys.executable, "-c", WITHOUT, str(view), json.dumps(numbers), json.dumps(PATHS)], cwd=view)
    assert not found["virtualstack"]
    assert found["attributes"] == {"title": "of the user", "numbers": [1, 2.5, None]}
    for name in numbers:
        values = [{"True": 1, "False": 0}.get(x, x) for x in found["loaded"][name]["values"]]
        check_loaded({**found["loaded"][name], "values": [float(x) for x in values]}, name)
    unknown = "ValueError: Unknown chunk key encoding: \"Chunk key encoding 'virtualstack.manifest' not found"
    assert all(x.startswith(unknown) for x in found["lists"]), found["lists"]
    other = {
        "version 2": "ArrayNotFoundError: ",
        "as a group": "ContainsArrayError: ",
        "xarray": "ContainsArrayError: ",
    }
    for way, said in found["virtual"].items():
        assert said.startswith(other.get(way.partition(" by ")[2], unknown)), (way, said)
    assert len(found["virtual"]) == 11 * len(PATHS)


# -- tensorstore ------------------------------------------------------------------------------------------------


def opened_by_tensorstore(folder):
    tensorstore = pytest.importorskip("tensorstore", reason="needs tensorstore")
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}
    return tensorstore.open(spec).result()


@pytest.mark.parametrize("name", LOADED)
def test_tensorstore_reads_loaded_arrays(name, view):
    """Values, dtypes, names of dimensions and attributes."""
    array = opened_by_tensorstore(view / name)
    np.testing.assert_array_equal(array.read().result(), LOADED[name])
    assert array.dtype.numpy_dtype == LOADED[name].dtype
    assert list(array.domain.labels) == DIMS[name]
    assert array.spec().to_json()["metadata"]["attributes"] == {"standard_name": name}


@pytest.mark.parametrize("name", PATHS)
def test_tensorstore_refuses_virtual_arrays(name, view):
    """As it does not know where their chunks are."""
    with pytest.raises(ValueError, match=r'"chunk_key_encoding".* received: "virtualstack\.manifest"'):
        opened_by_tensorstore(view / name)


# -- zarrita, in Python -----------------------------------------------------------------------------------------

ZARRITA = """
import json, sys
import zarrita

url, names = sys.argv[1], json.loads(sys.argv[2])
found = {}
for name in names:
    try:
        array = zarrita.Array.open(zarrita.LocalStore(url) / name)
        values = array[(slice(None),) * len(array.metadata.shape)]
        values = [str(x) if x != x or abs(x) == float("inf") else x for x in values.ravel().tolist()]
        found[name] = {"shape": array.metadata.shape, "dims": array.metadata.dimension_names, "values": values}
    except Exception as error:
        found[name] = {"error": repr(error)}
print(json.dumps([found, zarrita.Group.open(zarrita.LocalStore(url)).metadata.attributes]))
"""


@pytest.fixture(scope="module")
def zarrita_folder(tmp_path_factory):
    """A folder with zarrita: it asks for an old zstandard, which has no wheels for new Python, and takes others too."""
    folder = tmp_path_factory.mktemp("zarrita")
    options = ["--quiet", "--no-deps", "--retries=0", "--timeout=10", "--disable-pip-version-check"]
    pip = [sys.executable, "-m", "pip", "install", *options, "--target", folder, *ZARRITA_PY]
    return install(pip, folder=folder, seconds=300)


def test_zarrita_reads_loaded_arrays_and_refuses_virtual_ones(view, zarrita_folder):
    """In a process of its own: importing it changes a setting of numcodecs."""
    names = [name for name in LOADED if name != "flag"]  # it wants to be told the byte order of one byte
    program = f"import sys; sys.path.append({str(zarrita_folder)!r})\n{ZARRITA}"
    found, attributes = printed([sys.executable, "-c", program, str(view), json.dumps([*names, *PATHS])], cwd=view)
    assert attributes == {"title": "of the user", "numbers": [1, 2.5, None]}
    for name in names:
        check_loaded(found[name], name)
    for name in PATHS:
        check_virtual(found[name])


# -- zarrita, in JavaScript -------------------------------------------------------------------------------------

JAVASCRIPT = """
import * as zarr from "zarrita";
import FileSystemStore from "@zarrita/storage/fs";

const [url, names, open] = [process.argv[2], JSON.parse(process.argv[3]), eval(process.argv[4])];
const root = zarr.root(new FileSystemStore(url));
const found = {};
for (const name of names) {
  try {
    const array = await open(root.resolve(name), { kind: "array" });
    const part = await zarr.get(array);
    const values = Array.from(part.data ?? [part], (x) => (Number.isFinite(Number(x)) ? Number(x) : String(x)));
    found[name] = { shape: array.shape, dims: array.dimensionNames, values, attributes: array.attrs };
  } catch (error) {
    found[name] = { error: String(error) };
  }
}
const group = await zarr.open(root, { kind: "group" });
console.log(JSON.stringify([found, group.attrs]));
"""


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory):
    """A folder with zarrita from npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("node")
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=10000"]
    install([npm, "install", *options, "--prefix", str(folder), ZARRITA_JS], folder=folder, seconds=60)
    (folder / "read.mjs").write_text(JAVASCRIPT)
    return folder


@pytest.mark.parametrize("how", ["zarr.open", "zarr.open.v3"])
def test_zarrita_js_reads_loaded_arrays_and_refuses_virtual_ones(how, view, node_folder):
    """Whether it is told the version of zarr or finds it."""
    names = [name for name in LOADED if name != "none"]  # it cannot read what has no elements
    found, attributes = printed(["node", "read.mjs", str(view), json.dumps([*names, *PATHS]), how], cwd=node_folder)
    assert attributes == {"title": "of the user", "numbers": [1, 2.5, None]}
    for name in names:
        values = [{"NaN": np.nan, "Infinity": np.inf}.get(x, x) for x in found[name]["values"]]
        check_loaded({**found[name], "values": values}, name)
        assert found[name]["attributes"]["standard_name"] == name
    for name in PATHS:
        check_virtual(found[name])
        assert how == "zarr.open" or "Unknown chunk key encoding: virtualstack.manifest" in found[name]["error"]


# -- GDAL -------------------------------------------------------------------------------------------------------

GDAL = """
import json, sys, warnings
import rasterio

warnings.simplefilter("ignore")
url, names, found = sys.argv[1], json.loads(sys.argv[2]), {}
for name in names:
    try:
        values = rasterio.open(f'ZARR:"{url}":/{name}').read(1)
        found[name] = {"shape": values.shape, "values": values.ravel().tolist()}
    except rasterio.errors.RasterioIOError as error:
        found[name] = {"error": str(error)}
print(json.dumps(found))
"""


def test_gdal_reads_loaded_arrays_and_refuses_virtual_ones(view):
    """The one in rasterio."""
    if importlib.util.find_spec("rasterio") is None:
        pytest.skip("needs rasterio")
    planes = [name for name, values in LOADED.items() if values.ndim == 2 and values.size]
    found = printed([sys.executable, "-c", GDAL, str(view), json.dumps([*planes, *PATHS])], cwd=view)
    for name in planes:
        check_loaded({**found[name], "dims": DIMS[name]}, name)
    for name in PATHS:
        assert found[name] == {"error": "Unsupported chunk_key_encoding.name"}

"""What a plain installation can do: no extra is installed, and nothing is imported that only an extra brings."""

import importlib.metadata
import re
import subprocess
import sys
import tomllib

import pytest
import xarray as xr
from packaging.requirements import Requirement

from tests.docs.page import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

HIDE = """
import sys
from importlib.machinery import PathFinder

class Present:
    find_distributions = PathFinder.find_distributions

    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.partition(".")[0] in ABSENT else PathFinder.find_spec(name, path, target)

sys.meta_path[:] = [Present if x is PathFinder else x for x in sys.meta_path]

import virtualstack as vs
import xarray as xr
"""

FIRST_LINES = """

vds = xr.combine_nested([vs.open_virtual_dataset(f"{n}.nc") for n in range(3)], concat_dim="time")
vds.virtual.to_kerchunk("refs.parq")
vds.virtual.to_kerchunk("refs.json")
vds.virtual.to_vstack("cube.vstack")
for name in ("refs.parq", "refs.json", "cube.vstack"):
    with xr.open_dataset(name, engine="virtualstack") as found:
        print(found["t"].values.sum(), found["time"].size)
"""


def core():
    """Names of the distributions that a plain installation has."""
    found, left = {"virtualstack"}, list(map(Requirement, PROJECT["dependencies"]))
    while left:
        needed = left.pop()
        name = re.sub(r"[-_.]+", "-", needed.name).lower()
        if name not in found and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
            found.add(name)
            left += map(Requirement, importlib.metadata.requires(name) or ())
    return found


def run(code, folder):
    """Run lines with what is not in the core hidden, and return what they printed."""
    plain = core()
    of_module = importlib.metadata.packages_distributions()
    absent = {
        module
        for module, names in of_module.items()
        if module.isidentifier() and not {re.sub(r"[-_.]+", "-", x).lower() for x in names} & plain
    }
    assert {"dask", "fsspec", "netCDF4"} <= absent
    assert not {"numpy", "pyarrow", "virtualstack", "zarr"} & absent
    done = subprocess.run(
        [sys.executable, "-c", f"ABSENT = {absent}\n{HIDE}{code}"], cwd=folder, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_first_lines_need_no_extra(tmp_path):
    """Open, join, and write references that xarray opens; all other packages are hidden."""
    pytest.importorskip("netCDF4")
    for n in range(3):
        made = xr.Dataset({"t": (("time", "x"), [[1.0, 2.0, n]])}, coords={"time": [n]})
        made.to_netcdf(tmp_path / f"{n}.nc", engine="netcdf4", encoding={"t": {"zlib": True}})
    assert run(FIRST_LINES, tmp_path) == ["12.0 3"] * 3


GRIB = """
from virtualstack.cli.command import main
try:
    vs.open_virtual_dataset("a.grib2")
except vs.errors.MissingDependencyError as error:
    print(error)
main(["readers"])
"""


def test_what_an_extra_brings_is_named(tmp_path):
    """A file of GRIB needs eccodes; the error has the command that installs it, and the list of readers says no."""
    (tmp_path / "a.grib2").write_bytes(b"GRIB" + bytes(100))
    message, *table = run(GRIB, tmp_path)
    assert message.endswith("pip install 'virtualstack[grib]'")
    installed = {line.split()[0]: line.split()[-1] for line in table}
    assert {name: installed[name] for name in ("grib", "icechunk", "hdf5", "tiff")} == {
        "grib": "no", "icechunk": "no", "hdf5": "yes", "tiff": "yes",
    }  # fmt: skip


def test_every_dependency_has_its_reason():
    """One line of docs/reference/dependencies.md for each, and no line for what is not one."""
    text = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    for title, needed in {"Always installed": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items():
        section = re.search(rf"^##+ `?{re.escape(title)}`?\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
        if title == "all":
            continue
        assert section, title
        listed = re.findall(r"^\| `([\w-]+)`", section.group(1), re.MULTILINE)
        assert sorted(listed) == sorted(Requirement(x).name for x in needed), title


def test_the_recipe_for_conda_has_the_same_dependencies():
    """Under the names that conda-forge gives them."""
    text = (ROOT / ".conda" / "recipe.yaml").read_text()
    run = re.findall(r"^    - (\S+) (>=\S+)", text[text.index("  run:\n") : text.index("\ntests:")], re.MULTILINE)
    names = {"pyarrow-core": "pyarrow", "python-isal": "isal"}
    found = {names.get(name, name): bound for name, bound in run}
    assert found.pop("python") == ">=${{"
    assert found == {x.name: str(x.specifier) for x in map(Requirement, PROJECT["dependencies"])}

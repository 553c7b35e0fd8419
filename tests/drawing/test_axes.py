"""Pictures on axes of matplotlib."""

import sys

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.drawing.svg import COLORS, PALETTE
from virtualstack.errors import MissingDependencyError
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkManifest

matplotlib = pytest.importorskip("matplotlib", reason="plots need matplotlib")
matplotlib.use("agg")


@pytest.fixture(autouse=True)
def _closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture
def files(tmp_path):
    """Three days, of which one is missing, and the third compressed."""
    paths = []
    for day in (0, 1, 2, 4):
        part = xr.Dataset({"rain": (("time", "x"), np.ones((1, 4)))}, {"time": [day]})
        paths.append(str(tmp_path / f"{day}.nc"))
        encoding = {"rain": {"zlib": day > 1, "shuffle": False, "chunksizes": (1, 2)}}
        part.to_netcdf(paths[-1], engine="netcdf4", unlimited_dims=["time"], encoding=encoding)
    return paths


def test_chunks_are_drawn_on_axes_of_the_caller(files):
    """A map has one box for each chunk, on the given axes, with the names of dimensions."""
    from matplotlib import colors, pyplot

    cube = vs.open_virtual_mfdataset(files).reindex(time=[0, 1, 2, 3, 4])
    _, ax = pyplot.subplots()
    assert cube.virtual.plot_chunks("rain", ax=ax) is ax
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("chunks of time", "chunks of x")
    (image,) = ax.images
    shown = image.get_array()
    assert shown.shape == (2, 20, 4)
    assert tuple(shown[0, 0, :3]) == pytest.approx(colors.to_rgb(COLORS["referenced"]))
    assert tuple(shown[0, 13, :3]) == pytest.approx(colors.to_rgb(COLORS["empty"]))
    by = cube.virtual.plot_chunks("rain", by="encoding").images[0].get_array()
    assert tuple(by[0, 0, :3]) == pytest.approx(colors.to_rgb(PALETTE[0]))
    assert tuple(by[0, 8, :3]) == pytest.approx(colors.to_rgb(PALETTE[1]))


def test_lost_chunks_are_red_in_part():
    """A quarter of a box is red for each quarter of its chunks that is lost."""
    from matplotlib import colors

    entries = np.zeros(3 * 4096, ENTRY)
    entries["location"] = FIRST
    entries["location"][1], entries["location"][3:6] = 1, 1
    encoding = vs.ChunkEncoding.c_order("<f4", (2,))
    manifest = ChunkManifest(entries, (vs.Fill.zero("f4"),), (encoding,), (Location("s3://b/a.nc"),))
    grid = vs.ChunkGrid.regular((6 * 4096,), (2,))
    array = vs.ManifestArray(manifest=manifest, grid=grid, dtype="f4")
    image = xr.Dataset({"rain": ("time", array)}).virtual.plot_chunks("rain").images[0].get_array()
    is_red = (image[:, :3, :3] == colors.to_rgb(COLORS["absent"])).all(-1)
    assert is_red.tolist() == [[False, True, False]] * 2 + [[True, True, False]] * 2  # one of three, rounded up


def test_trees_have_the_same_plot(files):
    """A variable of a tree is named by its path."""
    tree = xr.DataTree.from_dict({"/sub": vs.open_virtual_mfdataset(files)})
    ax = tree.virtual.plot_chunks("sub/rain")
    assert "chunk map of sub/rain: 4 x 2 chunks" in ax.get_title()
    assert ax.get_xlabel() == "chunks of time"
    assert ax.get_ylabel() == "chunks of x"


def test_timelines_of_a_survey_and_of_a_repository(files, tmp_path):
    """Both draw two eras and one gap."""
    surveyed = vs.survey(files).plot()
    vs.open_virtual_mfdataset(files).virtual.to_vstack(tmp_path / "x.vstack")
    stored = vs.Repository.open(tmp_path / "x.vstack").plot()
    for ax in (surveyed, stored):
        assert ax.get_xlabel() == "time"
        assert [x.get_text() for x in ax.get_xticklabels()] == ["0", "4"]
        assert ax.get_title() == "4 files, 2 eras, 1 gap, 0 duplicates"
        assert len(ax.collections) == 3


def test_new_figures_are_as_high_as_their_rows(files):
    """A flat map and one line of eras do not fill a square; axes of the caller keep their size."""
    cube = vs.open_virtual_mfdataset(files)
    flat = cube.isel(x=slice(2)).virtual.plot_chunks("rain").figure.get_size_inches()
    assert flat.tolist() == [7.0, 1.85]
    assert vs.survey(files).plot().figure.get_size_inches().tolist() == [7.0, 1.6]


def test_names_that_do_not_exist(files):
    """The message lists the virtual variables."""
    cube = vs.open_virtual_mfdataset(files)
    with pytest.raises(KeyError, match=r"there is no virtual variable 'time'; there are \['rain'\]"):
        cube.virtual.plot_chunks("time")
    with pytest.raises(ValueError, match="by='size'; it must be"):
        cube.virtual.plot_chunks("rain", by="size")


def test_formulas_in_names_stay_text():
    """A name with dollar signs is drawn as it is."""
    cube = xr.Dataset({"$x^": ("time", [1.0, 2.0])}).virtual.to_group()
    array = cube.arrays["$x^"]
    ax = xr.Dataset({"$x^": ("time", array)}).virtual.plot_chunks("$x^")
    ax.figure.canvas.draw()
    assert r"\$x^" in ax.get_title()


def test_without_matplotlib(files, monkeypatch):
    """A typed error names the extra."""
    cube, surveyed = vs.open_virtual_mfdataset(files), vs.survey(files)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for plot in (lambda: cube.virtual.plot_chunks("rain"), surveyed.plot):
        with pytest.raises(MissingDependencyError, match=r"pip install 'virtualstack\[plot\]'"):
            plot()

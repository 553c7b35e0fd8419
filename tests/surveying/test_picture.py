"""The map of a cube in a notebook: cells where pyproj and xarray have them, in the colours of the page; its cost."""

import io
import itertools
import pickle
import re
import threading
from base64 import b64decode
from pathlib import Path

import numpy as np
import pyproj
import pytest
import xarray as xr
from matplotlib.image import imread

import virtualstack as vs
from tests.drawing.test_html import check
from tests.latency_server import LatencyServer
from tests.serve.test_picture import ARCHIVES, places
from virtualstack.drawing import colours
from virtualstack.drawing.geometry import mesh
from virtualstack.serve.facts import ASSETS
from virtualstack.surveying import picture
from virtualstack.surveying.picture import Picture


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """A busy machine gets its map, too."""
    monkeypatch.setattr(picture, "_SECONDS", 60)


def drawn(accessor):
    """The map of an accessor as HTML, its pixels, and what it says."""
    shown = check(accessor._repr_html_())
    assert len(shown) < 60_000
    found = re.search(r"<svg[^>]*aria-label=\"(map of [^\"]*)\".*?</svg>", shown)
    if found is None:
        return None
    assert len(found[0]) < 30_000
    data = re.search(r"data:image/png;base64,([^\"]*)", found[0])[1]
    return found[0], np.rint(imread(io.BytesIO(b64decode(data))) * 255).astype(int), found[1]


def coast(html):
    """The points of the coast of a map, in pixels."""
    found = re.search(r'<path d="(M[^"]*)" fill="none"', html)
    lines = [re.findall(r"-?\d+", x) for x in found[1].split("M")[1:]] if found else []
    points = [np.cumsum(np.array(x, float).reshape(-1, 2), axis=0) / 2 for x in lines]
    return np.concatenate([line for x in points for line in dense(x)]) if points else np.zeros((0, 2))


def dense(line):
    """Points along the steps of a line."""
    return [a + (b - a) * np.linspace(0, 1, 20)[:, None] for a, b in itertools.pairwise(line)]


def ramp(shape=(30, 60), **attributes):
    """A dataset of a field over latitude and longitude."""
    lat, lon = np.linspace(-60, 60, shape[0]), np.linspace(0, 100, shape[1])
    field = np.add.outer(lat, lon)
    coords = {"lat": ("lat", lat, {"units": "degrees_north"}), "lon": ("lon", lon, {"units": "degrees_east"})}
    return xr.Dataset({"v": (("lat", "lon"), field, attributes)}, coords)


def virtual(dataset, folder, **options):
    """The dataset as a virtual one of a file."""
    path = folder / "x.nc"
    dataset.to_netcdf(path, engine="netcdf4", **options)
    return vs.open_virtual_dataset(path)


@pytest.mark.parametrize("name", ARCHIVES)
def test_usual_archives(name, tmp_path):
    """The ratio, the place of cells, their colours and the range are those of the page, also in a repository."""
    make, archive = ARCHIVES[name]
    vds = vs.open_virtual_mfdataset(make(tmp_path), **archive.open)
    helpers = [x for x in vds.data_vars if x != archive.variable and vds[x].ndim > 2 and not x.startswith("X")]
    vds = vds.drop_vars(helpers)
    html, image, said = drawn(vds.virtual)
    dataset = vds.virtual.open()
    left, right, bottom, top = archive.extent
    height, width = image.shape[:2]
    assert width / height == pytest.approx((right - left) / (top - bottom), rel=0.02)
    shore = coast(html)
    assert bool(len(shore)) == bool(archive.coast)
    for place in set(archive.coast) - {(-179.917, -16.502)}:  # an island that is smaller than a pixel
        a, b = pyproj.Proj(archive.proj)(*place) if archive.proj != "+proj=longlat" else place
        a, b = np.multiply((a, b), archive.factor)
        at = ((a - left) / (right - left) % 1) * width, (top - b) / (top - bottom) * height
        assert np.hypot(*(shore - at).T).min() <= 1.5, place
    first = dataset[archive.variable].isel(dict.fromkeys(dataset[archive.variable].dims[:-2], 0)).values
    known = first[np.isfinite(first)]
    palette = colours.choose_palette(dataset[archive.variable].attrs, known)
    low, high = np.sort(known)[[0, -1]]
    assert palette.kind == "sequential"
    assert (palette.low, palette.high) == (low, high)
    assert f"values from {low:.4g} to {high:.4g}" in said
    table = palette.table(64)
    _, _, x, y = places(archive, dataset)
    rng, n_missing = np.random.default_rng(0), 0
    for i, j in zip(rng.integers(0, x.shape[0], 200), rng.integers(0, x.shape[1], 200), strict=True):
        if np.isnan(x[i, j]):  # beside the disk of the earth
            continue
        column, row = (x[i, j] - left) / (right - left) * width, (top - y[i, j]) / (top - bottom) * height
        pixel = image[min(int(row), height - 1), min(int(column), width - 1)]
        near = first[max(i - 4, 0) : i + 5, max(j - 4, 0) : j + 5]
        if np.isnan(near).all():
            assert tuple(pixel[:3]) == (128, 128, 128)
            n_missing += 1
        elif not np.isnan(near).any() and 0 < row < height - 1 and 0 < column < width - 1:
            rows = palette.rows(np.array([near.min(), near.max()]), 64)
            assert any((abs(pixel[:3] - table[k]) <= 1).all() for k in range(rows[0], rows[1] + 1))
    assert (n_missing > 0) == (archive.no_value is not None)
    vds.virtual.to_vstack(tmp_path / "x.vstack")
    assert drawn(vs.Repository.open(tmp_path / "x.vstack"))[2] == said


POLAR = {
    "grid_mapping_name": "polar_stereographic", "latitude_of_projection_origin": 90.0, "standard_parallel": 70.0,
    "straight_vertical_longitude_from_pole": -45.0, "semi_major_axis": 6378273.0, "semi_minor_axis": 6356889.449,
}  # fmt: skip


def sea_ice(units, **mapping):
    """A grid around the North Pole, as the NSIDC has it."""
    x, y = 25.0 * np.arange(-154, 150) + 12.5, 25.0 * np.arange(233, -215, -1) + 12.5
    field = np.hypot(*np.meshgrid(x, y)).astype("f4")
    coords = {name: (name, line, {"units": units, "axis": name.upper()}) for name, line in (("x", x), ("y", y))}
    values = {"ice": (("y", "x"), field, {"grid_mapping": "crs"}), "crs": ((), np.int32(0), mapping)}
    return xr.Dataset(values, coords)


def test_the_coast_of_a_projection(tmp_path):
    """It is where pyproj says, in units of the coordinates; none is drawn if the projection or a unit is not known."""
    html, image, _ = drawn(virtual(sea_ice("km", **POLAR), tmp_path).virtual)
    shore, (height, width) = coast(html), image.shape[:2]
    to_plane = pyproj.Proj("+proj=stere +lat_0=90 +lat_ts=70 +lon_0=-45 +a=6378273 +b=6356889.449")
    for place in ((-74.836, 64.678), (21.058, 62.608), (17.595, 77.638), (-27.099, 83.52), (-174.928, 67.205)):
        x, y = np.divide(to_plane(*place), 1000)
        at = (x + 3850) / 7600 * width, (5850 - y) / 11200 * height
        assert np.hypot(*(shore - at).T).min() <= 1.5, place
    for units, mapping in (
        ("km", {"grid_mapping_name": "of_mine"}),
        ("furlong", POLAR),
        ("km", POLAR | {"crs_wkt": "?"}),
    ):
        html, _, said = drawn(virtual(sea_ice(units, **mapping), tmp_path).virtual)
        assert "map of ice" in said
        assert not len(coast(html))


def test_colours_are_those_of_the_page():
    """The numbers of both are the same; the page has them as red, green and blue."""
    source = (ASSETS.parent / "page" / "src" / "colours.ts").read_text()
    for name, kind in (("viridis", "sequential"), ('"blue to red"', "diverging")):
        listed = re.search(rf"{name}: \[(\[.*?\])\],", source)[1]
        stops = [tuple(map(int, x.split(","))) for x in re.findall(r"\[([\d, ]+)\]", listed)]
        assert [tuple(bytes.fromhex(x)) for x in colours.MAPS[kind].split()] == stops
    listed = re.search(r"KINDS = \[(.*?)\]", source)[1]
    assert tuple(re.findall(r"#(\w{6})", listed)) == colours.KINDS


@pytest.mark.parametrize(
    ("attributes", "values", "kind"),
    [
        ({}, [1.0, 2.0], "sequential"),
        ({}, [-1.0, 2.0], "diverging"),
        ({"units": "degC"}, [-1.0, 2.0], "sequential"),
        ({"long_name": "temperature anomaly"}, [1.0, 2.0], "diverging"),
        ({}, [-0.1, 2.0], "sequential"),
        ({"flag_values": [1, 2], "flag_meanings": "wet dry_land"}, [1.0, 2.0], "classes"),
        ({"flag_values": [1, 2], "flag_masks": [1, 2], "flag_meanings": "wet dry_land"}, [1.0, 2.0], "sequential"),
        ({"dtype": "bool"}, [0, 1], "classes"),
    ],
)
def test_palettes(attributes, values, kind):
    """By what a variable is, as ``colours.ts`` says."""
    found = colours.choose_palette(attributes, np.array(values))
    assert found.kind == kind
    assert kind != "diverging" or found.low == -found.high
    texts = {"dtype": ("false", "true"), "flag_values": ("wet", "dry land")}
    assert kind != "classes" or tuple(text for _, text in found.classes) == texts[next(iter(attributes))]


def test_classes_and_missing_values(tmp_path):
    """Classes have their own colours and names; cells without a value are hatched."""
    dataset = ramp(flag_values=np.array([0, 1], "i2"), flag_meanings="sea dry_land", _FillValue=np.int16(-1))
    values = np.where(dataset["v"] > 40, 1, 0)
    dataset["v"] = ("lat", "lon"), np.where(dataset["v"] > 90, -1, values).astype("i2"), dataset["v"].attrs
    html, image, said = drawn(virtual(dataset, tmp_path).virtual)
    assert "dry land" in html
    assert said.endswith("sea, dry land; some have none")
    assert {tuple(x) for x in image.reshape(-1, 4).tolist()} == {
        (0x44, 0x77, 0xAA, 255), (0xDD, 0xAA, 0x33, 255), (128, 128, 128, 40), (128, 128, 128, 130),
    }  # fmt: skip
    assert tuple(image[-1, 0][:3]) == (0x44, 0x77, 0xAA)  # south-west: low latitudes are below


@pytest.mark.parametrize("fill", [{}, {"_FillValue": np.int8(-128)}], ids=["no fill", "fill"])
def test_classes_of_unsigned_numbers(tmp_path, fill):
    """Flags of netCDF-3 are signed, and mean what the stored bytes mean."""
    dataset = ramp(flag_values=np.array([0, -1], "i1"), flag_meanings="clear cloud", _Unsigned="true", **fill)
    dataset["v"] = ("lat", "lon"), np.where(dataset["v"] > 40, -1, 0).astype("i1"), dataset["v"].attrs
    _, image, said = drawn(virtual(dataset, tmp_path).virtual)
    assert said.endswith("clear, cloud")
    assert {tuple(x[:3]) for x in image.reshape(-1, 4).tolist()} == {(0x44, 0x77, 0xAA), (0xDD, 0xAA, 0x33)}


def test_noise_is_small(tmp_path):
    """As it cannot be compressed, fewer pixels are drawn; names of strangers are cut and escaped."""
    dataset = ramp((400, 700), long_name="<b>" * 100_000, units="<i>" * 1000)
    dataset["v"].values[:] = np.random.default_rng(0).normal(size=(400, 700))
    html, image, _ = drawn(virtual(dataset, tmp_path).virtual)
    assert "<b>" not in html
    assert image.shape[0] * image.shape[1] > 5000


def test_a_grid_around_a_pole():
    """The pole is in the middle, and longitude 0 is below it, as on the page."""
    lon, lat = np.meshgrid(np.arange(0, 360, 5.0), np.arange(50, 90, 1.0))
    found = mesh(lon, lat)
    assert found.pole == 1
    height, width = found.cells.shape
    assert width == pytest.approx(height, abs=2)
    middle = lat.reshape(-1)[found.cells[height // 2, width // 2]]
    assert middle > 87
    below = found.cells[3 * height // 4, width // 2]
    assert abs((lon.reshape(-1)[below] + 180) % 360 - 180) <= 5
    assert found.cells[0, 0] == -1


@pytest.mark.parametrize("across", [170, 0])
def test_cells_on_both_sides_of_a_meridian(across):
    """There is no seam, neither at the date line nor at Greenwich."""
    lon, lat = np.meshgrid(np.linspace(across - 15, across + 25, 40), np.linspace(-10, 10, 20))
    found = mesh((lon + 180) % 360 - 180, lat)
    assert found.x[1] - found.x[0] == pytest.approx(41, abs=0.1)
    assert (found.cells >= 0).mean() > 0.99
    assert (np.diff(found.cells[10] % 40) >= 0).all()


def test_nothing_is_drawn_without_two_dimensions_in_space(tmp_path):
    """Lists of stations, spectra and sections are no maps."""
    stations = xr.Dataset({"v": (("time", "station"), np.ones((3, 4)))}, {"lat": ("station", np.arange(4.0))})
    assert drawn(virtual(stations, tmp_path).virtual) is None
    assert drawn(virtual(ramp().isel(lat=0), tmp_path).virtual) is None
    assert drawn(virtual(ramp().isel(lat=[0]), tmp_path).virtual) is None
    assert drawn(virtual(ramp() * np.nan, tmp_path).virtual) is None


@pytest.mark.parametrize("limit", ["_MAX_CHUNKS", "_MAX_BYTES"])
def test_costly_maps_are_not_drawn(limit, tmp_path, monkeypatch):
    """The next variable is, if it costs less."""
    small = ramp((4, 6))
    dataset = ramp().assign(small=(("lat2", "lon2"), small["v"].values))
    dataset = dataset.assign_coords(lat2=("lat2", small["lat"].values, small["lat"].attrs))
    dataset = dataset.assign_coords(lon2=("lon2", small["lon"].values, small["lon"].attrs))
    vds = virtual(dataset, tmp_path, encoding={"v": {"chunksizes": (5, 10), "zlib": True}})
    assert "map of v" in drawn(vds.virtual)[2]
    monkeypatch.setattr(picture, limit, {True: 5, False: {"_MAX_CHUNKS": 5, "_MAX_BYTES": 4000}[limit]})
    assert "map of small" in drawn(vds.copy().virtual)[2]


def test_one_round_of_requests(tmp_path):
    """A map of a server takes as long as one answer; shown again, it takes none."""
    path = Path(tmp_path / "x.nc")
    encoding = {"v": {"chunksizes": (10, 20), "zlib": True}}
    lat2, lon2 = np.meshgrid(np.linspace(0, 9, 30), np.linspace(0, 9, 60), indexing="ij")
    dataset = ramp().drop_vars(["lat", "lon"]).rename(lat="j", lon="i")
    dataset = dataset.assign_coords(lat=(("j", "i"), lat2), lon=(("j", "i"), lon2))
    dataset["lat"].attrs["units"], dataset["lon"].attrs["units"] = "degrees_north", "degrees_east"
    dataset.to_netcdf(path, engine="netcdf4", encoding=encoding)
    with LatencyServer(tmp_path, latency=0.3) as server:
        vds = vs.open_virtual_dataset(server.url("x.nc"), loadable_variables=[])
        server.traffic()
        assert drawn(vds.virtual)
        traffic = server.traffic()
        assert traffic.depth == 1
        assert traffic.n_bytes < 50_000
        assert drawn(vds.virtual)
        assert server.traffic().n_requests == 0


def test_sources_that_fail_or_are_slow(tmp_path, monkeypatch):
    """The facts are shown without the map, and without a word; it is there later, and not read again."""
    vds = virtual(ramp(), tmp_path)
    (tmp_path / "x.nc").rename(tmp_path / "y.nc")
    assert drawn(vds.virtual) is None
    monkeypatch.setattr(picture, "_SECONDS", 0.05)
    free, calls = threading.Event(), []

    def slow(group, storage):
        calls.append(group)
        free.wait(10)
        return "<svg>a map</svg>"

    monkeypatch.setattr(picture, "_draw", slow)
    shown = Picture(vds.virtual.to_group)
    assert shown.html() == ""
    assert shown.html() == ""
    free.set()
    assert shown._drawing.result(10) == shown.html() == "<svg>a map</svg>"
    assert len(calls) == 1


def test_values_of_others_are_not_computed(tmp_path):
    """Neither those that dask would compute, nor many that are in memory."""
    vds = virtual(ramp(), tmp_path)
    assert drawn(vds.assign(w=("t", np.zeros(100))).virtual)
    assert drawn(vds.assign(w=("t", np.zeros(1 << 24))).virtual) is None

    def fail(block):
        raise AssertionError

    lazy = xr.DataArray(np.zeros(4), dims="t").chunk().data.map_blocks(fail, dtype=float)
    assert drawn(vds.assign(w=("t", lazy)).virtual) is None


def test_objects_that_were_shown_can_be_pickled(tmp_path):
    """As before."""
    vds = virtual(ramp(), tmp_path)
    vds.virtual.to_vstack(tmp_path / "x.vstack")
    repository = vs.Repository.open(tmp_path / "x.vstack")
    for shown in (vds, repository):
        before = drawn(getattr(shown, "virtual", shown))[0]
        again = pickle.loads(pickle.dumps(shown))
        assert drawn(getattr(again, "virtual", again))[0] == before


def test_trees(tmp_path):
    """Variables and coordinates are found in their groups, and in the root."""
    xr.DataTree.from_dict({"/": ramp()[["lat", "lon"]], "/a": ramp()}).to_netcdf(tmp_path / "x.nc")
    assert "map of a/v: 0.8475 °W" in drawn(vs.open_virtual_datatree(tmp_path / "x.nc").virtual)[2]

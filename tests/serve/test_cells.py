"""Cells as they are stored: the page gets few bytes, and the values of Python."""

import base64
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.archives.usual import MAKERS
from tests.serve import javascript
from tests.serve.browser import eventually
from tests.serve.groups import states_group
from tests.serve.running import serving
from tests.serve.unlike import cube, write_files
from virtualstack.location import Location
from virtualstack.manifests.serialised.headers import to_array_header
from virtualstack.serve.content import _CODECS


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        how = answer.headers["Virtualstack-Cell"]
        return answer.read(), None if how is None else json.loads(how)


def header(url):
    document = json.loads(get(f"{url}/array.json")[0])
    return to_array_header(document["array"], memoryview(base64.b64decode(document["heap"])), name=None)


@pytest.fixture(scope="module")
def era5(tmp_path_factory):
    paths = MAKERS["era5"](tmp_path_factory.mktemp("era5"))
    return vs.open_virtual_mfdataset(paths, unpack="differing")


def stored_bytes(array, box):
    """Bytes of the stored chunks of a part of the grid."""
    return int(array.in_memory().entries[box]["length"].sum())


def test_a_map_and_a_series_cost_what_is_stored(chromium, era5):
    """Of months that are packed differently: at most a fifth more, with all that the page asks for the variable.

    The range of the colours is from a few values of other chunks.
    """
    (array,) = (x for name, x in era5.virtual.to_group().arrays.items() if name == "t2m")
    with serving({"era5": era5}) as url:
        chromium.open(f"{url}/#panel=look&variable=t2m")
        image = "[data-image][data-ready=yes]"
        chromium.run("await page.locator(given).waitFor()", image)

        def asked():
            """Cells that were asked for whole, and all bytes."""
            sizes = {x: n for x, n in chromium.seen()["sizes"].items() if "/era5/t2m" in x}
            return {x.rpartition("/")[2] for x in sizes} - {"array.json"}, sum(sizes.values())

        of_map = {".".join(map(str, x)) for x in np.ndindex(array.grid.shape) if x[0] == 0}

        def series_costs(n_bytes):
            assert 0 < n_bytes <= 1.2 * stored_bytes(array, np.s_[:, :1, :1])

        def map_costs():
            """What is asked for by the first map: bodies of answers are known a little after the picture."""
            cells, n_bytes = asked()
            assert {x for x in cells if not x.endswith("?some")} == of_map
            assert len(cells - of_map) == 5
            return n_bytes

        first = eventually(map_costs)
        assert 0 < first <= 1.2 * stored_bytes(array, np.s_[:1])
        chromium.run("await page.locator(given).click({ position: { x: 3, y: 3 } })", image)
        chromium.run("await page.locator('.series').waitFor()")
        eventually(lambda: series_costs(asked()[1] - first))
        assert chromium.seen()["errors"] == []


def test_a_series_is_read_from_a_layout_for_it(chromium, tmp_path):
    """It has one chunk at each place; the picture comes from the variable, which is the one that is chosen."""
    values = np.arange(40.0 * 4 * 6).reshape(40, 4, 6)
    axes = {"time": np.arange(40.0), "lat": ("lat", np.arange(4.0), {"units": "degrees_north"})}
    axes["lon"] = ("lon", np.arange(6.0), {"units": "degrees_east"})
    dataset = xr.Dataset({"t": (("time", "lat", "lon"), values)}, axes)
    dataset.to_netcdf(tmp_path / "a.nc", encoding={"t": {"chunksizes": (1, 4, 6)}})
    vs.open_virtual_dataset(tmp_path / "a.nc").virtual.to_vstack(tmp_path / "a.vstack")
    vs.Repository.open(tmp_path / "a.vstack").rechunk("t", {"time": -1, "lat": 2, "lon": 2}, name="t_series")
    with serving({"a": tmp_path / "a.vstack"}) as url:
        chromium.open(f"{url}/#cube=a")
        chromium.run("await page.locator('[data-image][data-ready=yes]').waitFor()")
        assert chromium.text(".panel h2") == "Quick look at t"
        n = len(chromium.seen()["urls"])
        chromium.run("await page.locator('[data-image]').click({ position: { x: 3, y: 3 } })")
        chromium.run("await page.getByText('Values as a table').click()")
        found = chromium.run(
            "return page.locator('[data-value]').evaluateAll((all) => all.map((x) => x.dataset.value))"
        )
        assert [float(x) for x in found] == values[:, 3, 0].tolist()
        asked = [x for x in chromium.seen()["urls"][n:] if "/-/cells/" in x]
        assert [x.partition("/cells/a")[2].partition("/")[2] for x in asked] == ["t_series/0.1.0"]
        assert chromium.seen()["errors"] == []


def test_the_reader_of_the_page_has_the_codecs():
    """Which the server leaves to it."""
    source = "".join(path.read_text() for path in (javascript.ROOT / "src").rglob("*.ts"))
    assert {name for name in _CODECS["cells"] if f'"{name}"' not in source} == set()


def test_encodings_of_cells_decode_to_the_values(tmp_path):
    """The bytes are those of the source, and the header has what decodes them; of files with four forms."""
    dataset = cube(write_files(tmp_path))
    array, values = dataset.virtual.to_group().arrays["t"], dataset.virtual.open()["t"].values
    with serving({"a": dataset}) as url:
        there = header(f"{url}/-/cells/a/t")
        assert (there.grid, there.dtype, dict(there.cf)) == (array.grid, array.dtype, dict(array.cf))
        for cell in np.ndindex(array.grid.shape):
            data, how = get(f"{url}/-/cells/a/t/{'.'.join(map(str, cell))}")
            entry = array.in_memory().entries[cell]
            if how is None:  # shorter as values
                box = tuple(array.grid.box(cell))
                assert data == values[box].tobytes()
                continue
            assert len(data) == entry["length"]
            assert how["encoding"]["shape"] == list(array.manifest.tables.encodings[entry["encoding"]].shape)


def test_cells_that_the_page_cannot_decode_come_as_values(tmp_path):
    """So do text, and chunks of which a slice needs a small part."""
    values = np.round(np.random.default_rng(0).random((100, 600)), 3)
    data = {"a": (("y", "x"), values), "text": ("y", np.array(["ab", "ü"] * 50, object))}
    xr.Dataset(data).to_netcdf(tmp_path / "a.nc", encoding={"a": {"zlib": True, "chunksizes": (100, 600)}})
    dataset = vs.open_virtual_dataset(tmp_path / "a.nc")
    with serving({"a": dataset, "cut": dataset.isel(y=slice(0, 1))}) as url:
        data, how = get(f"{url}/-/cells/a/a/0.0")
        assert how["encoding"]["codecs"][-1]["name"] == "numcodecs.zlib"
        assert len(data) < values.nbytes
        data, how = get(f"{url}/-/cells/cut/a/0.0")
        assert (how, data) == (None, values[:1].tobytes())
        data, how = get(f"{url}/-/cells/a/text/0")
        assert (how, data[:10]) == (None, b"d\0\0\0\x02\0\0\0ab")


def test_some_values_of_a_cell_are_spread_over_all_of_them(tmp_path):
    """From the least to the greatest, and again when the whole cell was sent before."""
    dataset = cube(write_files(tmp_path))
    array, values = dataset.virtual.to_group().arrays["t"], dataset.virtual.open()["t"].values
    with serving({"a": dataset}) as url:
        for cell in [*np.ndindex(array.grid.shape)][::-1]:
            at = f"{url}/-/cells/a/t/{'.'.join(map(str, cell))}"
            whole = [get(at) for _ in range(2)]
            for _ in range(2):
                some = np.frombuffer(get(f"{at}?some")[0], values.dtype)
                wanted = np.sort(values[tuple(array.grid.box(cell))], axis=None)
                np.testing.assert_array_equal(some, wanted[np.linspace(0, wanted.size - 1, len(some)).astype(int)])
                assert len(some) == min(wanted.size, 200)
            assert get(at) == whole[0] == whole[1]


def test_empty_cells_have_a_fill_value_and_no_bytes(tmp_path):
    """With status 200, as browsers report others as errors."""
    dataset = xr.Dataset({"a": (("x",), np.arange(4.0))})
    dataset.to_zarr(tmp_path / "a.zarr", encoding={"a": {"chunks": [2]}}, zarr_format=3, consolidated=False)
    (tmp_path / "a.zarr" / "a" / "c" / "1").unlink()
    with serving({"a": tmp_path / "a.zarr"}) as url:
        data, how = get(f"{url}/-/cells/a/a/1")
        assert data == b""
        assert np.isnan(np.frombuffer(base64.b64decode(how["fill"]), "f8")).all()


def test_values_end_where_the_array_ends(tmp_path):
    """Also those of stored chunks that are larger, such as tiles of a TIFF at its edge."""
    values = np.arange(5.0 * 7).reshape(5, 7)
    encoding = {"v": {"chunksizes": (4, 4), "contiguous": False}}
    xr.Dataset({"v": (("y", "x"), values)}).to_netcdf(tmp_path / "a.nc", engine="netcdf4", encoding=encoding)
    with serving({"a": tmp_path / "a.nc"}) as url:
        for row, column in np.ndindex(2, 2):
            data, how = get(f"{url}/-/cells/a/v/{row}.{column}")
            part = values[4 * row : 4 * row + 4, 4 * column : 4 * column + 4]
            found = np.frombuffer(data).reshape(part.shape if how is None else (4, 4))
            np.testing.assert_array_equal(found[: part.shape[0], : part.shape[1]], part)


def test_large_cells_are_split(tmp_path):
    """A variable of 80 MB in one piece is two answers, which are cut at the edge of the array."""
    shape = 2, 5, 1_000_000
    with (tmp_path / "a.bin").open("wb") as file:
        file.seek(8 * 9_500_000)
        file.write(np.full(1000, 7.0).tobytes())
        file.truncate(8 * 10_000_000)
    manifest = vs.ChunkManifest.from_arrays(
        np.zeros((1, 1, 1), "i8"),
        np.full((1, 1, 1), 80_000_000),
        location=[Location(url=str(tmp_path / "a.bin"), size=80_000_000)],
        encoding=vs.ChunkEncoding.c_order("<f8", shape),
        fill=vs.Fill.zero("f8"),
    )
    array = vs.ManifestArray(
        manifest=manifest, grid=vs.ChunkGrid.regular(shape, shape), dtype="f8", dimension_names=tuple("tyx")
    )
    with serving({"a": vs.ManifestGroup(arrays={"v": array})}) as url:
        assert header(f"{url}/-/cells/a/v").grid.shape == (2, 1, 1)
        data, how = get(f"{url}/-/cells/a/v/1.0.0")
        assert (len(data), how, np.frombuffer(data)[4_500_000]) == (40_000_000, None, 7)


def test_keys_that_are_none():
    """They are errors with a reason, and cells are no folders."""
    with serving({"states": states_group()}) as url:
        for key, status in (("wind/9.9.9", 400), ("wind/12.0", 400), ("wind/zarr.json", 404), ("array.json", 404)):
            with pytest.raises(urllib.error.HTTPError) as caught:
                get(f"{url}/-/cells/states/{key}")
            assert (caught.value.code, bool(json.load(caught.value)["message"])) == (status, True)

"""What a notebook shows of results: HTML that is whole, escaped and of bounded size."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.arrays import referenced
from tests.data.watching import recorded_calls
from tests.drawing.test_html import check
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkGrid, ChunkManifest, Fill, ManifestArray, ManifestGroup
from virtualstack.vstack import display
from virtualstack.vstack.format.names import SEGMENTS
from virtualstack.vstack.save import save


@pytest.fixture
def files(tmp_path):
    """Sixteen files, of which three days are missing."""
    paths = []
    for day in (*range(10), *range(13, 19)):
        part = xr.Dataset({"rain": (("time", "x"), np.ones((1, 4)))}, {"time": [day]})
        paths.append(str(tmp_path / f"day-{day:02d}.nc"))
        part.to_netcdf(paths[-1], engine="netcdf4", unlimited_dims=["time"])
    return paths


@pytest.fixture
def repository(files, tmp_path):
    """A store with two snapshots."""
    vs.open_virtual_mfdataset(files[:10]).virtual.to_vstack(tmp_path / "x.vstack", message="<first>")
    return vs.Repository.open(tmp_path / "x.vstack").append(files[10], "time", message="one more")


def html(found):
    """Return the HTML of an object after a check that it is whole and small."""
    shown = check(found._repr_html_())
    assert len(shown) < 100_000
    return shown


def test_survey_of_sixteen_files_fits_a_cell(files):
    """The timeline is shown, and the text of the survey."""
    shown = html(vs.survey([*files, shutil.copy(files[0], files[0] + ".copy.nc"), "/nowhere/a.nc"]))
    assert "17 files, along &#x27;time&#x27;; 1 failed" in shown
    assert 'role="img"' in shown
    assert "\n  3 steps between 9 and 13\n" in shown
    assert html(vs.survey(["/nowhere/a.nc"]))


def test_repository(repository):
    """Variables, the timeline and the chunk map of the largest variable."""
    shown = html(repository)
    assert "snapshot 1 of" in shown
    assert shown.count("<svg ") == 3  # a map has an inner drawing
    assert "<summary>chunks of rain: 11 sources</summary>" in shown
    assert 'aria-label="timeline along time, 0 to 13: 11 files, 1 era, 1 gap, 0 duplicates"' in shown


@pytest.mark.parametrize(("chunks", "by"), [([1, 1], "state"), ([1, 2], "encoding"), ([2, 2, 1], "encoding")])
def test_chunks_of_a_repository_are_told_apart_by_what_differs(chunks, by, tmp_path, monkeypatch):
    """By their encodings if there are some; a single chunk is not drawn."""
    drawn = recorded_calls(monkeypatch, display, "svg_chunk_map", lambda found, *, by: by)
    arrays = [referenced([[0]], [[4 * n]], (n, 4)) for n in chunks]
    joined = replace(np.concatenate(arrays, 0), name="v", dimension_names=("x", "y"))
    save(ManifestGroup(arrays={"v": joined, "w": replace(arrays[0], name="w")}), tmp_path / "x.vstack")
    assert "<summary>chunks of v: 1 source</summary>" in html(vs.Repository.open(tmp_path / "x.vstack"))
    assert drawn == [by]
    save(ManifestGroup(arrays={"w": replace(arrays[0], name="w")}), tmp_path / "x.vstack", mode="w")
    assert "chunks of" not in html(vs.Repository.open(tmp_path / "x.vstack"))


@pytest.mark.parametrize(("most", "is_drawn"), [(11 + 1, True), (11, False)])
def test_stores_of_many_chunks_are_not_drawn(repository, monkeypatch, most, is_drawn):
    """Chunks of all variables count."""
    monkeypatch.setattr(display, "_MAX_DRAWN_CHUNKS", most)
    shown = html(repository)
    assert ("<svg" in shown, "12 chunks, which plot() draws" in shown) == (is_drawn, not is_drawn)


def test_repository_whose_references_cannot_be_read(repository):
    """The table is shown, and the reason why nothing is drawn."""
    shutil.rmtree(f"{repository.url.removeprefix('file://')}/{SEGMENTS}")
    shown = html(vs.Repository.open(repository.url))
    assert "<svg" not in shown
    assert "not drawn: there is no file at" in shown


def test_accessors(files):
    """The accessors of datasets and trees list virtual variables, and draw the chunks of the largest one."""
    cube = vs.open_virtual_mfdataset(files)
    for accessor, path in (
        (cube.virtual, "rain"),
        (xr.DataTree.from_dict({"/sub": cube}).virtual, "sub/rain"),
    ):
        shown = html(accessor)
        assert f"<summary>chunks of {path}</summary>" in shown
        assert "time: 16 chunks" in shown
    assert html(xr.Dataset({"rain": ("time", [1.0])}).virtual)


def test_groups(files):
    """A group lists its arrays, and has its subgroups folded."""
    (group,) = vs.scan(files[:1])
    tree = ManifestGroup(groups={"<sub>": group}, attributes={"title": "<i>"}, url="s3://bucket/<x>")
    shown = html(tree)
    assert "&lt;sub&gt;" in shown
    assert "(1, 4)" in shown
    assert "&lt;i&gt;" in shown
    assert "s3://bucket/&lt;x&gt;" in shown


def test_readers_fit_a_cell():
    """Formats are a table of names and suffixes, without signatures and their offsets."""
    text = repr(vs.list_readers())
    assert "HDF5 / netCDF-4" in text
    assert max(map(len, text.splitlines())) < 100
    assert "1023" not in text
    assert isinstance(vs.list_readers(), tuple)


def test_report_has_no_line_ends(files):
    """A table of pandas would show them as two characters."""
    report = vs.open_virtual_mfdataset(files).virtual.report()
    assert not report["detail"].str.contains("\n").any()
    assert "\\n" not in report.to_html()


def test_many_chunks_and_sources():
    """10^6 chunks in 3,000 sources are shown in less than 100 kB."""
    n, n_sources = 10**6, 3000
    entries = np.zeros(n, ENTRY)
    entries["location"] = FIRST + np.arange(n) * n_sources // n
    entries["location"][::1000] = np.arange(n // 1000) % 3
    entries["length"][entries["location"] > 2] = 8
    encoding = vs.ChunkEncoding.c_order("<f4", (2,))
    locations = tuple(Location(f"s3://bucket/a-long-folder-of-an-archive/{i:05d}.nc") for i in range(n_sources))
    manifest = ChunkManifest(entries, (Fill.zero("f4"),), (encoding,), locations, inline=b"12345678")
    array = ManifestArray(
        manifest=manifest, grid=ChunkGrid.regular((2 * n,), (2,)), dtype="f4", dimension_names=("time",)
    )
    assert "3,000: s3://bucket" in html(array)
    assert "chunks of rain" in html(xr.Dataset({"rain": ("time", array)}).virtual)

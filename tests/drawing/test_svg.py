"""Drawings are well-formed, bounded, accessible, and show the numbers of the facts."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest

from virtualstack.drawing import Timeline, TimelineDuplicate, TimelineEra, TimelineGap
from virtualstack.drawing.svg import COLORS, PALETTE, encoding_legend, era_segments, svg_chunk_map, svg_timeline
from virtualstack.location import Location
from virtualstack.manifests import ENTRY, FIRST, ChunkEncoding, ChunkGrid, ChunkManifest, Fill, ManifestArray
from virtualstack.manifests.chunk_map import map_chunks

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>\x1b[2J\x00\ud800&\"'"


def chunk_map(codes, *, name="rain", most=4096, n_sources=4):
    """Return the map of an array whose chunks have these location codes."""
    entries = np.zeros(codes.shape, ENTRY)
    entries["location"] = codes
    encoding = ChunkEncoding.c_order("<f4", (2,) * codes.ndim)
    locations = tuple(Location(f"s3://b/{i}.nc") for i in range(n_sources))
    manifest = ChunkManifest(entries, (Fill.zero("f4"),), (encoding,), locations, inline=b"")
    grid = ChunkGrid.regular([2 * n for n in codes.shape], encoding.shape)
    return map_chunks(ManifestArray(manifest=manifest, grid=grid, dtype="f4"), name=name, max_boxes=most)


def area_by_color(svg):
    """Return the number of boxes that each colour covers, from the shapes of the inner drawing."""
    (inner,) = ET.fromstring(svg).findall(f"{SVG}svg")
    found = {}
    for path in inner.findall(f"{SVG}path"):
        shapes = re.findall(r"h([\d.]+)v([\d.]+)", path.get("d"))
        area = sum(float(width) * float(height) for width, height in shapes)
        found[path.get("fill")] = found.get(path.get("fill"), 0) + area
    return found


def test_map_shows_each_state():
    """Each box has the colour of its state; a lost chunk is red as a whole."""
    svg = svg_chunk_map(chunk_map(np.array([[0, 1, 2], [3, 3, 4]])))
    assert area_by_color(svg) == {
        COLORS["empty"]: 2,  # the lost one is under the red mark
        COLORS["absent"]: 1,
        COLORS["inline"]: 1,
        COLORS["referenced"]: 3,
    }
    root = ET.fromstring(svg)
    assert root.get("role") == "img"
    assert root.find(f"{SVG}title").text == root.get("aria-label")
    assert "2 x 3 chunks (3 in sources, 1 inline, 1 lost, 1 never written)" in root.get("aria-label")


def test_map_shows_the_share_of_lost_chunks():
    """One lost chunk of a hundred in a box makes a quarter of it red, and all of them the whole box."""
    codes = np.full((1, 300), FIRST)
    codes[0, 5] = codes[0, 200:] = 1
    svg = svg_chunk_map(chunk_map(codes, most=3))
    assert area_by_color(svg)[COLORS["absent"]] == 1.25


def test_map_by_source_and_by_encoding():
    """Sources have colours in turn, and encodings have a legend."""
    found = chunk_map(np.array([[3, 4, 5, 6]]))
    assert area_by_color(svg_chunk_map(found, by="source")) == dict.fromkeys(PALETTE[:4], 1)
    svg = svg_chunk_map(found, by="encoding")
    assert area_by_color(svg) == {PALETTE[0]: 4}
    assert "&lt;f4 (2, 2) uncompressed: 4" in svg


def test_encodings_that_differ_in_settings_share_a_line_of_the_legend():
    """Such as twelve months with a scale of their own: eight equal lines would not tell them apart."""
    found = chunk_map(np.array([[3, 4, 5, 6]]))
    packed = replace(found.encodings[0], codecs=("packed", "zlib"), n_chunks=1)
    months = tuple(replace(packed, settings=f"scale_factor={i}") for i in range(12))
    found = replace(found, encodings=(*months, *found.encodings), n_encodings=20)
    assert encoding_legend(found) == [
        ("none", "<f4 (2, 2) packed + zlib, 12 settings: 12"),
        (PALETTE[4], "<f4 (2, 2) uncompressed: 4"),
        ("none", "and 7 more encodings"),
    ]
    assert svg_chunk_map(found, by="encoding").count("12 settings") == 1


@pytest.mark.parametrize("by", ["state", "source", "encoding"])
@pytest.mark.parametrize("shape", [(), (1,), (0, 4), (1, 5000), (5000, 1), (90, 90), (3, 40, 50)])
def test_map_is_bounded(shape, by):
    """Maps of random states in 4,096 boxes have at most 200 kB, in no unknown size."""
    codes = np.random.default_rng(0).integers(0, 7, shape)
    svg = svg_chunk_map(chunk_map(codes), by=by)
    assert len(svg) < 200_000
    assert float(ET.fromstring(svg).get("height")) < 300


def test_text_of_strangers_is_escaped():
    """Names with markup and control characters stay text."""
    found = replace(chunk_map(np.array([[3]]), name=HOSTILE), dims=(HOSTILE, HOSTILE))
    for svg in (svg_chunk_map(found), svg_timeline(timeline(dim=HOSTILE, first=HOSTILE, last=HOSTILE))):
        svg.encode()
        assert "<script" not in svg
        assert "\x1b" not in svg
        ET.fromstring(svg)


def timeline(**changes):
    """Return a timeline of three eras with a gap within the first, and one between the second and the third."""

    def era(number, begin, end):
        return TimelineEra(
            series="",
            number=number,
            first="a",
            last="b",
            begin=begin,
            end=end,
            n_files=2,
            n_outliers=0,
            changes="",
        )

    def gap(begin, end):
        return TimelineGap(series="", after="a", before="b", begin=begin, end=end, n_steps=3)

    plain = Timeline(
        dim="time",
        first="2000",
        last="2010",
        is_to_scale=True,
        n_files=6,
        n_failed=0,
        eras=(era(1, 0.0, 0.4), era(2, 0.45, 0.6), era(3, 0.8, 1.0)),
        n_eras=3,
        gaps=(gap(0.1, 0.2), gap(0.6, 0.8)),
        n_gaps=2,
        n_missing=6,
        duplicates=(TimelineDuplicate(text="2003", at=0.3, n_values=2),),
        n_duplicates=1,
        remarks=(),
    )
    return replace(plain, **changes)


def test_eras_reach_to_the_next_one_but_not_into_gaps():
    """An era is drawn up to the next one, except where steps are missing."""
    spans = [spans for _, spans in era_segments(timeline(), "")]
    assert spans == [[(0.0, 0.1), (0.2, 0.45)], [(0.45, 0.6)], [(0.8, 1.0)]]


def test_timeline_shows_eras_gaps_and_duplicates():
    """Each is drawn, and counted in the text."""
    svg = svg_timeline(timeline())
    root = ET.fromstring(svg)
    rects = root.findall(f"{SVG}rect")
    assert sum(x.get("fill") == PALETTE[0] for x in rects) == 2
    assert sum(x.get("stroke") == COLORS["absent"] for x in rects) == 2
    assert len(root.findall(f"{SVG}path")) == 1
    assert root.get("aria-label") == "timeline along time, 2000 to 2010: 6 files, 3 eras, 2 gaps, 1 duplicate"
    assert "2 gaps, 6 missing" in svg
    assert len(svg) < 4000


def test_timeline_of_nothing():
    """A timeline without eras and without a dimension is a picture with a summary."""
    empty = timeline(dim=None, first="", last="", eras=(), n_eras=0, gaps=(), n_gaps=0, duplicates=(), n_duplicates=0)
    assert ET.fromstring(svg_timeline(empty)).get("aria-label") == "timeline: 6 files, 0 eras, 0 gaps, 0 duplicates"


def test_many_series_and_eras():
    """At most eight series have a line, and 200 eras make a picture of bounded size."""
    eras = tuple(replace(timeline().eras[0], series=f"series {i // 10}", number=i % 10 + 1) for i in range(200))
    svg = svg_timeline(timeline(eras=eras, n_eras=5000, gaps=()))
    assert "and 12 more series" in svg
    assert "the first 200 are shown" in svg
    assert len(svg) < 50_000

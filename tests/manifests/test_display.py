"""What terminals and notebooks show of virtual arrays: counts, lengths and names, each as it is written."""

import numpy as np
import pytest

from tests.data.arrays import inline_chunks, referenced_array
from virtualstack.codecs.codec import Codec
from virtualstack.manifests import ChunkAxis, ChunkGrid, ManifestGroup
from virtualstack.manifests.display import array_html, chunk_text, codec_text, group_html, inline_text
from virtualstack.manifests.mosaic import Runs
from virtualstack.manifests.plain import _listed


def one(**options):
    return referenced_array((6,), (2,), dimension_names=("x",), **options)


def with_codecs(n):
    return np.concatenate([one(codecs=[Codec.from_config("numcodecs.zlib", level=i)] * (i + 1)) for i in range(n)])


def test_lengths_of_chunks():
    unequal, regular = ChunkAxis.from_lengths([31, 28, 30, 29]), ChunkAxis.regular(180, 45)
    assert chunk_text(ChunkGrid((unequal,))) == "(28-31,)"
    assert chunk_text(ChunkGrid((regular,))) == "(45,)"
    assert chunk_text(ChunkGrid((regular, unequal, regular))) == "(45, 28-31, 45)"
    assert chunk_text(ChunkGrid(())) == "()"


def test_chains_of_codecs():
    assert codec_text(one().manifest) == "uncompressed"
    assert codec_text(with_codecs(1).manifest) == "zlib"
    assert codec_text(with_codecs(2).manifest) == "zlib or zlib+zlib"
    assert codec_text(with_codecs(3).manifest) == "3 codecs"
    for n, more in ((5, ""), (6, " and 1 more"), (7, " and 2 more")):
        chains = "; ".join(" + ".join(["zlib"] * (i + 1)) for i in range(5))
        assert f">{chains}{more}<" in array_html(with_codecs(n))


def test_a_line_is_as_long_as_it_may_be():
    """Words are left out one by one, and then letters."""
    array = one(codecs=[Codec("numcodecs.zlib")], lengths=[1500, -1, 500])
    lines = [
        "virtual, chunks (2,), zlib, 2 kB stored, 1 never written",
        "virtual, chunks (2,), zlib, 2 kB, 1 never written",
        "chunks (2,), zlib, 2 kB, 1 never written",
        "virtual, chunks (2,), 2 kB, 1 never written",
        "virtual, chunks (2,), 1 never written",
    ]
    last = lines[-1]
    for width in range(5, 80):
        fitting = [line for line in lines if len(line) <= width]
        assert inline_text(array, width) == (fitting[0] if fitting else f"{last[: width - 1]}…")


def test_states_of_chunks_are_counted():
    array = np.concatenate([one(lengths=[5, -1, 7]), inline_chunks((2,), "<f4", bytes(8), dimension_names=("x",))])
    shown = array_html(array)
    assert "2 in sources, 1 INLINE, 1 EMPTY, 0 ABSENT" in shown
    assert "(2,) in a grid of 4<" in shown
    assert "() in a grid of 1<" in array_html(inline_chunks((1,), "<f4", bytes(4))[0])


@pytest.mark.parametrize("n", [1, 2, 20, 21, 23])
def test_groups_beyond_the_twentieth_are_counted(n):
    group = ManifestGroup(arrays={}, groups={f"g{i}": ManifestGroup(arrays={}) for i in range(n)})
    shown = group_html(group, "t")
    assert shown.count("0 arrays, 0 groups") == min(n, 20)
    assert ("more group" in shown) == (n > 20)
    assert n <= 20 or f"… and {n - 20} more group{'s' * (n > 21)}<" in shown


def test_arrays_beyond_the_two_hundredth_are_counted():
    for n in (200, 201):
        group = ManifestGroup(arrays={f"v{i}": one() for i in range(n)}, attributes={f"a{i}": i for i in range(n)})
        shown = group_html(group, "t")
        assert shown.count(">v1") == shown.count(">a1") == 111
        assert ("v199" in shown, "v200" in shown) == (True, False)


def test_runs_and_lists_are_shown_up_to_a_few():
    starts = np.arange(0, 50, 10)
    for n, shown in ((1, "0:2"), (4, "0:2,10:12,20:22,30:32"), (5, "0:2,10:12,20:22,30:32,...")):
        assert repr(Runs(starts[:n], np.full(n, 2))) == f"Runs({shown})"
    assert [_listed("abcdef"[:n]) for n in (1, 3, 4, 5)] == ["a", "a, b, c", "a, b, c and 1 more", "a, b, c and 2 more"]


def test_a_group_shows_its_url_before_its_arrays():
    shown = group_html(ManifestGroup(arrays={"v": one()}, url="file:///x.nc"), "t")
    assert shown.index("file:///x.nc") < shown.index(">dimensions<") < shown.index("float32 (6,)")

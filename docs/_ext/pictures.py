"""Pictures in pages: drawings of docs/_static as part of the page, and pictures of runs that the build makes.

An SVG that is a part of the page has its text in the colour of the page, light or dark.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    import xarray as xr


def _write_days() -> list[Path]:
    """Write five files of a day each, of which one has other chunks."""
    import numpy as np
    import xarray as xr

    values = np.random.default_rng(0).gamma(2, size=(24, 60, 120)).astype("f4").round(2)
    for day in range(5):
        hours = ("time", np.arange(24) + 24 * day, {"units": "hours since 2026-01-01"})
        rain = xr.Dataset({"rain": (("time", "lat", "lon"), values)}, {"time": hours})
        encoding = {"rain": {"zlib": True, "chunksizes": (8 if day != 2 else 6, 20, 60)}}
        rain.to_netcdf(f"2026-01-0{day + 1}.nc", engine="netcdf4", encoding=encoding)
    return sorted(Path().glob("*.nc"))


def _cube() -> str:
    """Return files, and the chunk map of the cube that virtualstack makes of them, in the colours of the files."""
    import virtualstack as vs
    from virtualstack.drawing.svg import PALETTE, svg_chunk_map
    from virtualstack.manifests.chunk_map import map_chunks

    files = _write_days()
    vds = vs.open_virtual_mfdataset([str(path) for path in files])
    vds.virtual.to_vstack("rain.vstack")
    n_bytes = sum(path.stat().st_size for path in files)
    n_stored = sum(path.stat().st_size for path in Path("rain.vstack").rglob("*") if path.is_file())

    found = map_chunks(vds.virtual.to_group().arrays["rain"], name="rain", dims=("time", "lat", "lon"))
    boxes = re.search(r'<svg x="0".*?</svg>', svg_chunk_map(found, by="source"), re.DOTALL)
    assert boxes is not None
    width, height = (float(x) for x in re.findall(r'(?:width|height)="([\d.]+)"', boxes[0])[:2])
    lines = "".join(f"M{x * width / found.column_edges[-1]:.1f} 0V{height}" for x in found.column_edges)
    lines += "".join(f"M0 {y * height / found.row_edges[-1]:.1f}H{width}" for y in found.row_edges)

    left, top, scale = 250, 30, 380 / width
    bottom, middle = top + height * scale, f"{top + height * scale / 2:.0f}"
    parts = [
        f'<path d="M{left - 14} {middle}m0 -5l10 5l-10 5z"/>',
        f'<g transform="translate({left} {top}) scale({scale:.4f})">{boxes[0]}',
        f'<path fill="none" stroke="#fff" stroke-opacity=".6" stroke-width=".7" d="{lines}"/></g>',
        f'<text x="{left}" y="{top - 9}" font-weight="600">rain: one variable, {found.shape[0]} hours</text>',
        f'<text x="{left}" y="{bottom + 20:.0f}">',
        f"{found.n_chunks} chunks, each in the file of its colour</text>",
        f'<text x="{left}" y="{bottom + 37:.0f}">',
        f"{n_bytes / 1e6:.1f} MB stay in the files; rain.vstack takes {n_stored / 1e3:.0f} kB</text>",
    ]
    for i, path in enumerate(files):
        y, color = 12 + 40 * i, PALETTE[i]
        parts += [
            f'<path fill="{color}" d="M10 {y}h18l8 8v22h-26z"/>',
            f'<text x="46" y="{y + 14}" font-weight="600">{path.name}</text>',
            f'<text x="46" y="{y + 29}" opacity=".75">{path.stat().st_size / 1e3:,.0f} kB</text>',
            f'<path fill="none" stroke="{color}" stroke-width="2" opacity=".8" ',
            f'd="M166 {y + 15}C220 {y + 15} 190 {middle} {left - 12} {middle}"/>',
        ]
    summary = f"{len(files)} files become one variable of {found.n_chunks} chunks, each of which stays in its file"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{summary}" viewBox="0 0 640 216" '
        f'style="font:13px system-ui,sans-serif" fill="currentColor"><title>{summary}</title>{"".join(parts)}</svg>'
    )


def _map() -> str:
    """Return the map that the tutorial draws."""
    import virtualstack as vs

    files = vs.sample.model("data")
    cube = vs.open_virtual_mfdataset(files).virtual.open()
    return _plotted(cube["tas"].sel(time="2024-06-02T12:00"))


def _field() -> str:
    """Return the field that the page on GRIB draws."""
    import virtualstack as vs

    forecast = vs.open_virtual_dataset(vs.sample.forecasts("runs")[0]).virtual.open()
    return _plotted(forecast["t"].sel(number=1, step="6h", isobaricInhPa=500))


def _plotted(field: xr.DataArray) -> str:
    import io

    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6))
    field.plot(ax=axes, rasterized=True)
    text = io.StringIO()
    figure.savefig(text, format="svg", facecolor="white", bbox_inches="tight")
    plt.close(figure)
    return text.getvalue().partition("<svg")[1] + text.getvalue().partition("<svg")[2]


RUNS: dict[str, Callable[[], str]] = {"cube": _cube, "map": _map, "field": _field}
"""Pictures by the name that a page writes, each made in an empty folder."""


class RunPicture(SphinxDirective):
    """The picture of a run: ``:::{run-picture} cube``."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run it now."""
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            svg = RUNS[self.arguments[0]]()
        return [nodes.raw("", f'<figure class="drawing">{svg}</figure>', format="html")]


class _Inlined(SphinxPostTransform):
    """Put drawings of docs/_static into the page, instead of a link to them."""

    default_priority = 5
    formats: ClassVar[tuple[str, ...]] = ("html",)

    def run(self, **options: Any) -> None:
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.srcdir, image["uri"])
            if path.suffix == ".svg" and path.parent.name == "_static":
                text = re.sub(r"<\?xml.*?\?>", "", path.read_text()).strip()
                figure = f'<figure class="drawing">{text}</figure>'
                image.parent.replace(image, nodes.raw("", figure, format="html"))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both."""
    app.add_directive("run-picture", RunPicture)
    app.add_post_transform(_Inlined)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""Draw the picture under the title of the README: ``python docs/_ext/readme_picture.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import xarray as xr

import virtualstack as vs

TARGET = Path(__file__).parents[1] / "_static" / "climate.png"


def draw(target: Path, /) -> None:
    """Draw the chunks of the cube of the README, and the map that is read from two of them."""
    vds = vs.open_virtual_mfdataset(vs.sample.scenarios(), new_dim={"scenario": vs.FromName("A1B|E1")})
    with vds.virtual.open() as cube:
        change = cube["air_temperature"].sel(time="2099").diff("scenario").squeeze().load()
    with (
        plt.style.context(["default", {"font.size": 9, "font.family": "DejaVu Sans"}]),
        xr.set_options(keep_attrs=True),
    ):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.9), width_ratios=(1, 1.15), layout="constrained")
        vds.virtual.plot_chunks("air_temperature", by="source", ax=left)
        left.set_title("480 chunks stay in two files")
        change.plot(ax=right, cmap="RdBu_r", cbar_kwargs={"label": "air temperature, E1 minus A1B (K)"})
        right.set_title("One map of 2099 reads two of them")
        figure.savefig(target, dpi=100, facecolor="white", metadata={"Software": None})
        plt.close(figure)


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)

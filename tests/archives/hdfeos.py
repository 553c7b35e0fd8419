"""Granules of a swath as HDF-EOS5 has them: data and geolocation in groups, names of dimensions in a text."""

from datetime import datetime, timedelta
from pathlib import Path

import h5py
import numpy as np

from tests.archives.fields import field

SWATH = "HDFEOS/SWATHS/OMI Column Amount O3"
DIMS = ("nTimes", "nXtrack", "nLayers")
_FIELDS = {
    "Data Fields/ColumnAmountO3": ("f4", ("nTimes", "nXtrack")),
    "Data Fields/LayerO3": ("f4", ("nTimes", "nXtrack", "nLayers")),
    "Data Fields/QualityFlags": ("u2", ("nTimes", "nXtrack")),
    "Geolocation Fields/Latitude": ("f4", ("nTimes", "nXtrack")),
    "Geolocation Fields/Longitude": ("f4", ("nTimes", "nXtrack")),
    "Geolocation Fields/Time": ("f8", ("nTimes",)),
}


def hdfeos(folder: Path) -> list[str]:
    """Write three granules with 500, 540 and 480 lines of 60 pixels."""
    return [_granule(folder, number, n) for number, n in enumerate((500, 540, 480))]


def _granule(folder: Path, number: int, n: int) -> str:
    start = datetime(2024, 6, 1, 10) + timedelta(minutes=99 * number)
    line, pixel = np.mgrid[0:n, 0:60]
    latitude, longitude = -70 + 0.25 * line + 0.02 * pixel, -60 - 25 * number + 0.4 * pixel - 0.02 * line
    ozone = 300 + 40 * field(n, 60, seed=number)
    ozone[line == 7] = -(2.0**100)
    seconds = (start - datetime(1993, 1, 1)).total_seconds() + 2.0 * np.arange(n)  # TAI-93
    values = (ozone, ozone[..., None] / np.arange(5, 16), (pixel == 0).astype("u2"), latitude, longitude, seconds)
    path = folder / f"OMI-Aura_L2-OMTO3_{start:%Ym%m%dt%H%M}-o{10000 + number}_v003.he5"
    with h5py.File(path, "w", libver=("earliest", "v108")) as file:
        for (name, (dtype, dims)), array in zip(_FIELDS.items(), values, strict=True):
            chunks = (100, 60, 11)[: len(dims)]
            dataset = file.create_dataset(
                f"{SWATH}/{name}",
                data=array.astype(dtype),
                chunks=chunks,
                compression=5,
                maxshape=(None, 60, 11)[: len(dims)],
            )
            dataset.attrs["Title"] = np.bytes_(name.rpartition("/")[2])
            dataset.attrs["Units"] = np.bytes_(
                {"ColumnAmountO3": "DU", "Time": "s"}.get(name.rpartition("/")[2], "deg")
            )
            if dtype == "f4":
                dataset.attrs["_FillValue"] = dataset.attrs["MissingValue"] = np.array([-(2.0**100)], "f4")
        file[SWATH].attrs["VerticalCoordinate"] = np.bytes_("Total Column")
        file["HDFEOS"].require_group("ADDITIONAL/FILE_ATTRIBUTES").attrs["OrbitNumber"] = np.int32([10000 + number])
        text = _structure(n)
        file.create_dataset(
            "HDFEOS INFORMATION/StructMetadata.0", data=np.bytes_(text.ljust(32000, "\0")), dtype="S32000"
        )
        file["HDFEOS INFORMATION"].attrs["HDFEOSVersion"] = np.bytes_("HDFEOS_5.1.13")
    return str(path)


def _structure(n: int) -> str:
    """Describe the swath in the Object Description Language (ESDS-RFC-008)."""

    def entries(kind: str, group: str) -> list[str]:
        lines = []
        names = [(name.partition("/")[2], x) for name, x in _FIELDS.items() if name.startswith(group)]
        for i, (name, (dtype, dims)) in enumerate(names, 1):
            number_type = {"f4": "FLOAT", "f8": "DOUBLE", "u2": "USHORT"}[dtype]
            listed = ",".join(f'"{dim}"' for dim in dims)
            lines += [
                f"\t\t\tOBJECT={kind}_{i}",
                f'\t\t\t\t{kind}Name="{name}"',
                f"\t\t\t\tDataType=H5T_NATIVE_{number_type}",
                f"\t\t\t\tDimList=({listed})",
                f"\t\t\t\tMaxdimList=({listed})",
                f"\t\t\tEND_OBJECT={kind}_{i}",
            ]
        return lines

    dimensions = []
    for i, (name, size) in enumerate({"nTimes": n, "nXtrack": 60, "nLayers": 11}.items(), 1):
        dimensions += [
            f"\t\t\tOBJECT=Dimension_{i}",
            f'\t\t\t\tDimensionName="{name}"',
            f"\t\t\t\tSize={size}",
            f"\t\t\tEND_OBJECT=Dimension_{i}",
        ]
    name = SWATH.rpartition("/")[2]
    lines = ["GROUP=SwathStructure", "\tGROUP=SWATH_1", f'\t\tSwathName="{name}"', "\t\tGROUP=Dimension", *dimensions]
    lines += ["\t\tEND_GROUP=Dimension", "\t\tGROUP=DimensionMap", "\t\tEND_GROUP=DimensionMap"]
    lines += ["\t\tGROUP=IndexDimensionMap", "\t\tEND_GROUP=IndexDimensionMap"]
    lines += ["\t\tGROUP=GeoField", *entries("GeoField", "Geo"), "\t\tEND_GROUP=GeoField"]
    lines += ["\t\tGROUP=DataField", *entries("DataField", "Data"), "\t\tEND_GROUP=DataField"]
    lines += [
        "\tEND_GROUP=SWATH_1",
        "END_GROUP=SwathStructure",
        "GROUP=GridStructure",
        "END_GROUP=GridStructure",
        "END",
    ]
    return "\n".join(lines) + "\n"

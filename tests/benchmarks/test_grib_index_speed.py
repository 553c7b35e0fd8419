"""GRIB files described by their indexes, beside kerchunk; VIRTUALSTACK_BENCHMARK=full: 100 files of 216 messages."""

import datetime
import shutil

import pandas as pd
import pytest

import virtualstack as vs
from tests.benchmarks.timing import IS_FULL, interleaved
from tests.data.make_grib import write_run
from virtualstack.formats.grib.records import Records
from virtualstack.readers import GRIB, GRIBTemplate, ReadOptions

pytestmark = pytest.mark.filterwarnings("ignore")  # of kerchunk, pandas and cfgrib
N_RUNS, N_LEVELS = (100, 36) if IS_FULL else (4, 2)


def at_another_date(data, date):
    """Write another reference time into all messages."""
    found, at = bytearray(data), 0
    while at < len(data):
        found[at + 28 : at + 33] = date.year.to_bytes(2, "big") + bytes((date.month, date.day, date.hour))
        at += int.from_bytes(data[at + 8 : at + 16], "big")
    return bytes(found)


def test_indexes(tmp_path):
    """Offsets and lengths of all messages of later runs, by a template of a first one."""
    kerchunk = pytest.importorskip("kerchunk._grib_idx")
    keys = {"steps": (3,), "rain": False, "levels": range(10, 10 * N_LEVELS + 10, 10)}
    keys["keys"] = {"Ni": 60, "Nj": 40, "iDirectionIncrementInDegrees": 0.5, "jDirectionIncrementInDegrees": 0.25}
    (first,) = write_run(tmp_path / "a", "2024010100", ".idx", **keys)
    index = first.with_name(first.name + ".idx").read_text()
    files = []
    for day in range(1, N_RUNS + 1):
        date = datetime.datetime(2024, 1, 1) + datetime.timedelta(days=day)
        files.append(tmp_path / f"{date:%Y%m%d%H}.grib2")
        files[-1].write_bytes(at_another_date(first.read_bytes(), date))
        files[-1].with_name(files[-1].name + ".idx").write_text(index.replace("2024010100", f"{date:%Y%m%d%H}"))
    reader = GRIB(template=GRIBTemplate.learn(first))
    # kerchunk needs lines that differ in a file, and one mapping for each step
    mapping = kerchunk.build_idx_grib_mapping(str(first), validate=False)

    def by_kerchunk():
        parsed = [kerchunk.parse_grib_idx(str(path)) for path in files]
        return [kerchunk.map_from_index(pd.Timestamp("2024-01-02"), mapping, x) for x in parsed]

    options = ReadOptions(is_part=True)
    vs.scan([str(first)], reader=reader, options=options)  # decodes the template, as the mapping of kerchunk is made
    runs = {
        "virtualstack": lambda: vs.scan(list(map(str, files)), reader=reader, options=options),
        "virtualstack, unchecked": lambda: vs.scan(
            list(map(str, files)), reader=GRIB(template=reader.template, check_every=0), options=options
        ),
        "kerchunk": by_kerchunk,
        "a scan of headers": lambda: vs.scan(list(map(str, files)), reader=GRIB(), options=options),
    }
    found = interleaved(f"{len(files)} indexes of {index.count(chr(10))} messages", runs, repeats=1)
    shutil.rmtree(tmp_path)
    for name in ("virtualstack", "virtualstack, unchecked", "a scan of headers"):
        for part, table in zip(found[name].result, found["kerchunk"].result, strict=True):
            fields = Records.from_group(part).fields
            assert fields["offset"].tolist() == table["offset"].tolist()
            assert fields["length"].tolist() == table["length"].tolist()

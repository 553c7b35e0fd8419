"""Opening DMR++ documents beside VirtualiZarr; run with VIRTUALSTACK_BENCHMARK=full for 10^5 chunks."""

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.rivals import needs, registry
from tests.benchmarks.timing import IS_FULL, interleaved
from virtualstack.location import absolute_url
from virtualstack.readers import DMRPP, ReadOptions
from virtualstack.storage import Storage

pytestmark = needs("virtualizarr")

HEAD = (
    '<?xml version="1.0" encoding="ISO-8859-1"?>\n<Dataset xmlns="http://xml.opendap.org/ns/DAP/4.0#" '
    'xmlns:dmrpp="http://xml.opendap.org/dap/dmrpp/1.0.0#" dapVersion="4.0" dmrVersion="1.0" name="data.nc" '
    'dmrpp:href="OPeNDAP_DMRpp_DATA_ACCESS_URL" dmrpp:version="3.21.0">\n'
)
ATTRIBUTE = '        <Attribute name="{}" type="String">\n            <Value>some text</Value>\n        </Attribute>\n'


def document(folder: Path, n_variables: int, rows: int, columns: int) -> Path:
    """Write a document of variables of ``rows`` times ``columns`` chunks, as get_dmrpp sets it."""
    rng = np.random.default_rng(0)
    lines = [HEAD, f'    <Dimension name="y" size="{rows}"/>\n    <Dimension name="x" size="{columns * 100}"/>\n']
    for variable in range(n_variables):
        lines.append(f'    <Float32 name="v{variable}">\n        <Dim name="/y"/>\n        <Dim name="/x"/>\n')
        lines += [ATTRIBUTE.format(f"attribute{i}") for i in range(8)]
        lines.append(
            '        <dmrpp:chunks compressionType="shuffle deflate" deflateLevel="5" '
            'fillValue="-9999" byteOrder="LE">\n'
            "            <dmrpp:chunkDimensionSizes>1 100</dmrpp:chunkDimensionSizes>\n"
        )
        lengths = rng.integers(1000, 100_000, rows * columns).tolist()
        offsets = (np.cumsum(lengths) + 4000).tolist()
        lines += [
            f'            <dmrpp:chunk offset="{offset}" nBytes="{length}" '
            f'chunkPositionInArray="[{i // columns},{i % columns * 100}]"/>\n'
            for i, (offset, length) in enumerate(zip(offsets, lengths, strict=True))
        ]
        lines.append("        </dmrpp:chunks>\n    </Float32>\n")
    path = folder / "data.nc.dmrpp"
    path.write_text("".join([*lines, "</Dataset>\n"]))
    return path


@pytest.mark.parametrize(
    ("n_variables", "rows", "columns"), [(1, 1000, 100), (30, 10, 10), (200, 1, 1)] if IS_FULL else [(2, 3, 2)]
)
def test_open(n_variables, rows, columns, tmp_path):
    """One variable of many chunks, a usual file, and many small variables; both list the same places."""
    from virtualizarr.parsers import DMRPPParser

    url = absolute_url(document(tmp_path, n_variables, rows, columns))
    n = n_variables * rows * columns
    timings = interleaved(
        f"{n_variables} variables, {n} chunks",
        {
            "virtualstack": lambda: DMRPP().read(url, Storage.from_option(None), ReadOptions()),
            "VirtualiZarr": lambda: DMRPPParser()(url, registry(url)),
        },
    )
    for name, timing in timings.items():
        print(f"  {name:<14} {timing.cpu / n * 1e6:.2f} us of CPU a chunk")
    entries = timings["virtualstack"].result["v0"].in_memory().entries
    theirs = timings["VirtualiZarr"].result._group.arrays["v0"].manifest
    np.testing.assert_array_equal(entries["offset"], theirs._offsets.astype("i8"))
    np.testing.assert_array_equal(entries["length"], theirs._lengths.astype("i8"))

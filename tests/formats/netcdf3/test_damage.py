"""Files that contradict the format, and headers damaged at random: a typed error, or what netCDF4 reads."""

import json
import random
import struct
import subprocess
import sys

import numpy as np
import pytest

from tests.data.files import file_of
from tests.data.make_netcdf3 import RawVariable, encode, make, numbered, raw
from tests.formats.groups import group_of, values_of
from tests.formats.netcdf3 import oracle as netcdf3_oracle
from virtualstack.errors import MalformedFileError, UnsupportedFeatureError, VirtualStackError
from virtualstack.formats.netcdf3 import header, reader
from virtualstack.location import absolute_url
from virtualstack.readers import NetCDF3

XYZ = {"t": 0, "x": 3, "y": 2}
ONE = [RawVariable(name="v", dims=(1,), values=numbered((3,), "i4").astype(">i4"))]


def changed(data, found, other):
    """Replace bytes that occur once."""
    assert data.count(found) == 1
    return data.replace(found, other)


def word(*numbers):
    return struct.pack(f">{len(numbers)}I", *numbers)


def variable(name="v", dims=(1,), dtype=">i4", n=3):
    return RawVariable(name=name, dims=dims, values=np.zeros(n, dtype))


def of(*variables, version=1, dims=XYZ, **attributes):
    """Write a file of some variables, `ONE` where none are given."""
    return encode(version, dims, variables or ONE, attributes=attributes)


def with_name(name):
    return of(variable(name))


TWO_AXES = RawVariable(name="v", dims=(1, 2), values=np.zeros((3, 2), "i1"))
TWELVE = struct.pack(">Q", 12)
V_OF, BEGINS = b"v\0\0\0", (4, 12, 104)  # where a name ends; type, size and place of `ONE`
CHANGED = {
    "two dimensions of one name": (raw(1), word(1) + b"x\0\0\0", word(1) + b"t\0\0\0"),
    "two attributes of one name": (of(one=1.0, two=2.0), b"two\0", b"one\0"),
    "a record dimension that is not first": (of(TWO_AXES), word(2, 1, 2), word(2, 1, 0)),
    "a dimension that is not there": (of(variable(dims=(1,))), V_OF + word(1, 1), V_OF + word(1, 3)),
    "a list with another tag": (of(), word(11, 1), word(12, 1)),
    "an absent list with elements": (of(), word(10, 3), word(0, 3)),
    "more elements than bytes": (of(), word(10, 3), word(10, 2**31)),
    "a negative number of elements": (of(), word(11, 1), word(11, 2**32 - 1)),
    "a name longer than the file": (of(), word(1) + V_OF, word(2**30) + V_OF),
    "more axes than bytes": (of(), V_OF + word(1, 1), V_OF + word(2**31, 1)),
    "an attribute longer than the file": (of(a=1.0), word(6, 1), word(6, 2**31 - 1)),
    "an unknown type": (of(version=5), word(4) + TWELVE, word(12) + TWELVE),
    "values in the header": (of(), word(*BEGINS), word(4, 12, 100)),
    "values at a negative offset": (of(), word(*BEGINS), word(4, 12, 2**32 - 104)),
    "values behind the end": (of(), word(*BEGINS), word(4, 12, 105)),
    "variables over each other": (of(variable("v"), variable("w")), word(4, 12, 152), word(4, 12, 148)),
    "a dimension longer than the file": (of(), b"x\0\0\0" + word(3), b"x\0\0\0" + word(2**31)),
    "records into each other": (raw(1) + bytes(8), word(1, 4, 208), word(1, 4, 212)),
}
DATA = {
    "a variable without a name": with_name(""),
    "a name of NULs": with_name("\0\0"),
    "two variables of one name": of(variable(), variable()),
    "two record dimensions": encode(1, {"t": 0, "u": 0, "x": 3}, []),
    "a type of CDF-5 in CDF-2": of(variable(dtype=">i8"), version=2),
    "a dimension of 2^63": encode(5, {"x": 2**63}, []),
    "a negative number of records": raw(5)[:4] + struct.pack(">q", -5) + raw(5)[12:],
    "more records than bytes": raw(1)[:4] + word(2**31) + raw(1)[8:],
    "no header": b"CDF\1",
    **{name: changed(*found) for name, found in CHANGED.items()},
}
SAID = {
    "a variable without a name": "a variable has no name",
    "a name of NULs": "a variable has no name",
    "two variables of one name": "two variables have the name 'v'",
    "two dimensions of one name": "two dimensions have the name 't'",
    "two attributes of one name": "two attributes have the name 'one'",
    "two record dimensions": "two record dimensions, 't' and 'u'; netCDF-3 has one",
    "a record dimension that is not first": "the record dimension is not the first one of 'v'",
    "a dimension that is not there": r"the variable 'v' has the dimensions \(3,\), of 3",
    "a list with another tag": "its list of variables has the tag 12, not 11",
    "an absent list with elements": "its list of dimensions has the tag 0, not 10",
    "more elements than bytes": "it says that it has 2147483648 dimensions, more than its 116 bytes can hold",
    "a negative number of elements": "it says that it has 4294967295 variables",
    "a name longer than the file": "its header reaches to offset 107[0-9]{7} or further, but it has 116 bytes",
    "more axes than bytes": "its header reaches to offset 8589934",
    "an attribute longer than the file": "its header reaches to offset 171798",
    "an unknown type": "there is no type 12; this version of the format has 1 to 11",
    "a type of CDF-5 in CDF-2": "there is no type 10; this version of the format has 1 to 6",
    "values in the header": "'v' begins at offset 100, but the header ends at 104",
    "values at a negative offset": "'v' begins at offset -104",
    "values behind the end": "'v' has values up to offset 117, but the file ends at 116",
    "variables over each other": "'w' begins at offset 148, but 'v' ends at 152",
    "a dimension longer than the file": "'v' has values up to offset 8589934696, but the file ends at 116",
    "a dimension of 2^63": "the dimension 'x' has 9223372036854775808 elements",
    "a negative number of records": "it says that it has 18446744073709551611 records",
    "more records than bytes": "'a' has values up to offset .* drop_variables=",
    "records into each other": "'b' reaches into the next record, 12 bytes on",
    "no header": "its header reaches to offset 8",
}


@pytest.mark.parametrize("name", DATA)
def test_what_contradicts_the_format_is_malformed(name, tmp_path):
    """The message says what and where, and names the file."""
    path = file_of(tmp_path / "a.nc", DATA[name])
    with pytest.raises(MalformedFileError, match=SAID[name]) as caught:
        group_of(path, NetCDF3())
    assert caught.value.url == absolute_url(path)
    assert f"'{absolute_url(path)}' is truncated, damaged or not a netCDF-3 file" in str(caught.value)


def test_other_files_are_malformed_when_the_reader_is_asked_for(tmp_path):
    """``reader="netcdf3"`` on something else."""
    for data in (b"CDF\3" + bytes(60), b"\x89HDF\r\n\x1a\n" + bytes(60)):
        with pytest.raises(MalformedFileError, match=r"it begins with the bytes .*, not with 'CDF' and 1, 2 or 5"):
            group_of(file_of(tmp_path / "a.nc", data), NetCDF3())
    with pytest.raises(MalformedFileError, match="but it has 2 bytes"):
        group_of(file_of(tmp_path / "a.nc", b"CD"), NetCDF3())


@pytest.mark.parametrize("version", [1, 2, 5])
def test_a_header_that_is_cut_is_malformed(version, tmp_path):
    """At every byte; netCDF-C reads zeros behind the end."""
    data = encode(version, XYZ, ONE, attributes={"title": "a file"})
    for n in range(4, len(data)):
        with pytest.raises(MalformedFileError, match=f"{n}"):
            group_of(file_of(tmp_path / "a.nc", data[:n]), NetCDF3())


def test_headers_of_any_length_are_not_read(tmp_path, monkeypatch):
    """There is a limit, far beyond what is usual."""
    monkeypatch.setattr(header, "MAX_HEADER_BYTES", 100_000)
    path = file_of(tmp_path / "a.nc", encode(1, XYZ, ONE, attributes={"a": np.zeros(20_000)}))
    with pytest.raises(UnsupportedFeatureError, match="has a header of 160076 bytes or more, and at most 100000"):
        group_of(path, NetCDF3())


def test_variables_that_cannot_be_referenced_are_refused_by_name(tmp_path, monkeypatch):
    """More axes than numpy has, a name that is a path, too many chunks; the others are there."""
    dims = {f"d{i}": 1 for i in range(65)}
    many = RawVariable(name="many", dims=tuple(range(65)), values=np.zeros(1, "i1"))
    data = encode(1, dims, [many, variable("a/b", (0,), n=1), variable("v", (0,), n=1)])
    group = group_of(file_of(tmp_path / "a.nc", data), NetCDF3())
    assert list(group.arrays) == ["v"]
    assert {x.path: x.reason for x in group.refusals} == {
        "/many": "65 axes; numpy has at most 64",
        "/a/b": "a '/' in its name, which paths of groups have",
    }
    monkeypatch.setattr(reader, "MAX_CELLS", 6)
    group = group_of(file_of(tmp_path / "a.nc", raw(1, 5)), NetCDF3())
    assert list(group.arrays) == ["fixed", "a"]
    (refusal,) = group.refusals
    assert (refusal.path, refusal.kind) == ("/b", "refused")
    assert "with it the file has 11 chunks, one at least for each record; a file is referenced by at most 6" in (
        refusal.reason
    )


def test_empty_variables_of_any_shape(tmp_path):
    """Without records the other dimensions may be as long as they like."""
    empty = RawVariable(name="v", dims=(0, 1, 2), values=np.zeros((0, 1, 1), "i1"))
    data = encode(5, {"t": 0, "x": 2**40, "y": 2**40}, [empty])
    array = group_of(file_of(tmp_path / "a.nc", data), NetCDF3()).arrays["v"]
    assert (array.shape, array.grid.shape) == ((0, 2**40, 2**40), (0, 1, 1))


def test_text_that_is_not_utf8_stays_readable(tmp_path):
    """Names and attributes of old files; netCDF4 gives U+FFFD, or fails."""
    data = encode(1, XYZ, ONE, attributes={"unit": "µm"})
    data = changed(data, word(3) + "µm".encode() + b"\0", word(2) + "µm".encode("latin-1") + b"\0\0")
    assert group_of(file_of(tmp_path / "a.nc", data), NetCDF3()).attributes == {"unit": "µm"}
    data = changed(with_name("ab"), b"ab", "é€"[:1].encode("latin-1") + b"b")
    assert list(group_of(file_of(tmp_path / "a.nc", data), NetCDF3()).arrays) == ["éb"]


# -- headers damaged at random --------------------------------------------------------------------------------

SOURCES = ("usual_1", "usual_2", "usual_5", "one_record_variable_1", "one_record_variable_5", "names_1", "no_records_2")
WORDS = (b"\0\0\0\0", b"\0\0\0\1", b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff")


def damaged(data, n_header, rng):
    """Flip a bit, or replace a byte or a word of the header."""
    other, at = bytearray(data), rng.randrange(4, n_header)
    match rng.randrange(3):
        case 0:
            other[at] ^= 1 << rng.randrange(8)
        case 1:
            other[at] = rng.randrange(256)
        case _:
            at &= ~3
            other[at : at + 4] = rng.choice(WORDS)
    return bytes(other)


def is_stream(data):
    return data[4:8] == b"\xff" * 4  # netCDF-C reads 4,294,967,295 records of zeros


def described(path):
    """Give what `netcdf3_oracle.describe` gives, by our reader."""
    group = group_of(path, NetCDF3())
    return {
        "dimensions": dict(group.dimensions),
        "unlimited": sorted(group.unlimited),
        "attributes": {name: netcdf3_oracle.plain(value) for name, value in group.attributes.items()},
        "variables": {
            name: {
                "dimensions": list(array.dimension_names),
                "attributes": {key: netcdf3_oracle.plain(value) for key, value in array.attributes.items()},
                "values": netcdf3_oracle.digest(values_of(array)),
            }
            for name, array in group.arrays.items()
        },
    }


def ask_netcdf4(paths):
    """Describe files by netCDF4, in processes that may crash."""
    found = []
    while len(found) < len(paths):
        command = [sys.executable, netcdf3_oracle.__file__, *map(str, paths[len(found) :])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found += map(json.loads, done.stdout.splitlines())
        if done.returncode:
            found.append({"error": f"exit code {done.returncode}"})
    return found


def says_other_letters(theirs):
    """Whether netCDF4 fails on a name that is not UTF-8, or has U+FFFD in a text."""
    return "UnicodeDecodeError" in theirs.get("error", "") or "\ufffd" in json.dumps(theirs, ensure_ascii=False)


@pytest.mark.parametrize("seed", range(2))
def test_damaged_headers_are_errors_or_read_as_netcdf4_reads_them(seed, tmp_path):
    """Never other values; of 10,000 such headers 7 in 10 were errors."""
    rng, opened, n_errors = random.Random(seed), {}, 0
    sources = [make(name, tmp_path).read_bytes() for name in SOURCES]
    lengths = [header.read_header(lambda at, n, data=data: data[at : at + n], len(data), "").length for data in sources]
    for i in range(150):
        which = rng.randrange(len(sources))
        path = tmp_path / f"damaged{i}.nc"
        path.write_bytes(damaged(sources[which], lengths[which], rng))
        try:
            if not any("/" in x.path[1:] for x in group_of(path, NetCDF3()).refusals):
                opened[path] = described(path)
        except VirtualStackError:
            n_errors += 1
    paths = [path for path in opened if not is_stream(path.read_bytes())]
    for path, theirs in zip(paths, ask_netcdf4(paths), strict=True):
        ours = json.loads(json.dumps(opened[path]))
        assert ours == theirs or says_other_letters(theirs), f"{path}: {theirs.get('error', '')}"
    assert n_errors > 50
    assert len(paths) > 20

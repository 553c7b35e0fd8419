"""Keys that follow from parts of a header alone, beside those that eccodes gives of the whole."""

import ctypes
import random
import re
from functools import cache
from pathlib import Path

import eccodes
import pytest

from tests.data.make_grib import GRIB1, GRIB2, message
from virtualstack.codecs.grib.library import import_cfgrib
from virtualstack.formats.grib import headers
from virtualstack.formats.grib.headers import ANY_VALUE_1, ANY_VALUE_2, WITH_CONDITIONS, header_parts, make_header
from virtualstack.formats.grib.keys import UNDEFINED, Asking, ask, cfgrib_field
from virtualstack.formats.grib.messages import message_length, parse_fields
from virtualstack.location import absolute_url
from virtualstack.readers import GRIB
from virtualstack.storage import Storage

CENTRES = {78: "edzw", 80: "cnmc"}
VALUE = re.compile("scale(d|Factor|dValue).*FixedSurface|^level$|^topLevel$|^bottomLevel$")
MEMBER = {"number", "perturbationNumber"}
ENTRY = re.compile(r"'?[^'\n={}]*'?\s*=\s*\{([^{}]*)\}")


@cache
def definitions():
    """Read the definitions that are built into the library, where they are."""
    try:
        import eccodeslib
    except ImportError:
        pytest.skip("eccodes has no definitions built in")
    (path,) = Path(eccodeslib.__file__).parent.glob("lib*/*eccodes_memfs*")
    built_in, libc = ctypes.CDLL(str(path)), ctypes.CDLL(None)
    built_in.codes_memfs_open.restype = ctypes.c_void_p
    libc.fread.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
    libc.fclose.argtypes = [ctypes.c_void_p]
    buffer = ctypes.create_string_buffer(1 << 22)
    found = {}
    for name in set(re.findall(rb"/MEMFS/definitions/((?:grib[12]|mars|common)/[\w./-]+\.def)", path.read_bytes())):
        file = built_in.codes_memfs_open(b"/MEMFS/definitions/" + name)
        n = libc.fread(buffer, 1, len(buffer), file)
        libc.fclose(file)
        assert 0 < n < len(buffer)
        found[name.decode()] = re.sub("#.*", "", buffer.raw[:n].decode(errors="replace"))
    return found


def conditions(pattern):
    """List what entries of concepts are about: file, and keys with values."""
    for name, text in definitions().items():
        if re.fullmatch(pattern, name):
            for entry in ENTRY.findall(text):
                yield name, {key.strip(): x.strip() for key, _, x in (y.partition("=") for y in entry.split(";"))}


def test_parameters_have_no_conditions_on_what_their_part_leaves_out():
    n = 0
    for name, keys in conditions(r"grib[12]/(.*/)?paramId[\w.]*\.def"):
        n += 1
        assert not keys.keys() & MEMBER
        if not any(VALUE.search(key) for key in keys) or any(f"/{CENTRES[x]}/" in name for x in WITH_CONDITIONS):
            continue
        if name.startswith("grib1"):
            assert int(keys["indicatorOfTypeOfLevel"]) not in ANY_VALUE_1
        else:
            first, second = (keys.get(f"typeOf{x}FixedSurface") for x in ("First", "Second"))
            assert first is not None
            assert not any(int(first) == a and second in (None, str(b)) for a, b in ANY_VALUE_2), (name, keys)
    assert n > 10_000


def test_types_of_levels_have_conditions_on_levels_alone():
    found = set().union(*(keys for _, keys in conditions(r"grib[12]/(.*/)?typeOfLevel(Concept)?\.def")))
    surface = {f"{x}Of{y}FixedSurface" for x in ("type", "scaleFactor", "scaledValue") for y in ("First", "Second")}
    of_pressure_and_heights = {"pressureUnits", "genVertHeightCoords", "NV", "dummyc", ""}
    assert found - surface - of_pressure_and_heights == {"indicatorOfTypeOfLevel", "level"}


def test_no_sections_differ_by_parameter():
    """A parameter may be written into a message of another one."""
    branches = [
        line
        for name, text in definitions().items()
        if re.match(r"grib2/(?!localConcepts)", name)
        for line in text.splitlines()
        if re.search(r"\b(if|when)\b.*\b(discipline|parameterCategory|parameterNumber|perturbationNumber)\b", line)
    ]
    assert branches == []


def test_of_other_definitions_nothing_is_known(monkeypatch, tmp_path):
    (field,) = taken(message())
    header = make_header(field, with_times=False)
    assert header_parts(field, header)
    assert not header_parts(field, make_header(field, with_times=True))
    headers._is_known.cache_clear()
    monkeypatch.setenv("ECCODES_EXTRA_DEFINITION_PATH", str(tmp_path))
    try:
        assert not header_parts(field, header)
    finally:
        headers._is_known.cache_clear()


def taken(raw):
    length, found = parse_fields(lambda at, n: raw[at : at + n], 0, len(raw), raw[:16])
    assert (2 if raw[7] == 2 else 1, length) == (message_length(raw[:16])[0], len(raw))
    return found


PLACES_2 = [
    {},
    {"productDefinitionTemplateNumber": 1, "numberOfForecastsInEnsemble": 10},
    {"productDefinitionTemplateNumber": 8, "stepRange": "0-6", "typeOfStatisticalProcessing": 1},
    {"productDefinitionTemplateNumber": 11, "numberOfForecastsInEnsemble": 10, "stepRange": "6-12"},
    {"productDefinitionTemplateNumber": 10, "percentileValue": 25, "stepRange": "0-6"},
    {"productionStatusOfProcessedData": 8},
]
PLACES_1 = [
    {},
    {"setLocalDefinition": 1, "localDefinitionNumber": 1, "perturbationNumber": 3, "numberOfForecastsInEnsemble": 9},
    {"setLocalDefinition": 1, "localDefinitionNumber": 16, "perturbationNumber": 3},
    {"setLocalDefinition": 1, "localDefinitionNumber": 30, "perturbationNumber": 3},
    {"timeRangeIndicator": 4, "P1": 0, "P2": 12},
]
SURFACES = (1, 2, 7, 8, 20, 100, 100, 101, 102, 103, 103, 104, 105, 106, 107, 108, 109, 118, 150, 151, 160, 168, 200)
VALUES = (0, 1, 2, 10, 100, 150, 5000, 29315, 50000, 85000, 2**32 - 1)
LEVELS = (1, 20, 100, 100, 101, 103, 105, 109, 109, 111, 112, 160, 200, 210)


def varied(field, choice):
    """Write other parameters, levels, members and centres into a header."""
    sections = [bytearray(x) for x in field.sections]
    if field.edition == 1:
        product = sections[0]
        product[8] = choice.choice((11, 33, 61, 129, 130, 167, 228, choice.randrange(256)))
        product[9] = choice.choice(LEVELS)
        product[10:12] = choice.choice((0, 2, 10, 500, 850, choice.randrange(1 << 16))).to_bytes(2, "big")
        if len(product) > 50:
            product[49:51] = choice.randrange(1, 50), choice.choice((0, 10))
        return field._replace(sections=tuple(map(bytes, sections)))
    identification, _, _, product, _ = sections
    product[9:11] = choice.choice((0, 0, 1, 2, 3, 19, 192)), choice.choice((0, 1, 2, 5, 8, choice.randrange(256)))
    second = choice.choice((255, 255, choice.choice(SURFACES)))
    for at, kind in ((22, choice.choice(SURFACES)), (28, second)):
        product[at : at + 2] = kind, choice.choice((0, 0, 2, 0x81, 255))
        product[at + 2 : at + 6] = choice.choice(VALUES).to_bytes(4, "big")
    if int.from_bytes(product[7:9], "big") in (1, 11):
        product[35] = choice.randrange(12)
    identification[5:7] = choice.choice((7, 7, 74, 78, 80, 98)).to_bytes(2, "big")
    return field._replace(discipline=choice.choice((0, 0, 0, 2, 10)), sections=tuple(map(bytes, sections)))


def check(fields):
    """See that keys that were asked for of parts are those of the whole message."""
    names = GRIB()._names()
    asked = [name for name in import_cfgrib("dataset").INDEX_KEYS if name in names]
    asking, n_parts = Asking(names), set()
    for field in fields:
        header, stub = make_header(field, with_times=False), field.stub()
        found = dict(zip(names, asking.field_keys(field, header, stub), strict=True))
        whole = cfgrib_field(stub)
        expected = {name: ask(whole, name) for name in asked}
        assert repr({name: found[name] for name in asked}) == repr(expected)
        if field.edition == 1:
            assert found["step"] == ask(whole, "step")
        n_parts |= {part.key for part in header_parts(field, header)}
    return len(n_parts)


@pytest.mark.parametrize(
    ("sample", "keys"), [*((GRIB2, x) for x in PLACES_2), *((GRIB1, x) for x in PLACES_1)], ids=lambda x: str(x)[:40]
)
def test_keys_are_those_of_the_whole_header(sample, keys):
    (field,) = taken(message(keys, sample=sample))
    choice = random.Random(str(keys))
    fields = [varied(field, choice) for _ in range(120)]
    assert 0 < check(fields) < 3 * len(fields)


def test_a_message_that_changes_elsewhere_is_not_taken(monkeypatch):
    """It is not relied on that a parameter can be written: the bytes are compared."""
    (field,) = taken(message({"typeOfLevel": "isobaricInhPa", "level": 500}))
    fields = [varied(field, random.Random(7))]
    product = bytearray(fields[0].sections[3])
    for number in (3, 4, 5):
        product[10] = number
        fields.append(fields[0]._replace(sections=(*field.sections[:3], bytes(product), field.sections[4])))
    real, n_opened = eccodes.codes_set_long, []

    def lying(handle, key, value):
        real(handle, key, value)
        real(handle, "generatingProcessIdentifier", 201)

    opening = eccodes.codes_new_from_message
    monkeypatch.setattr(eccodes, "codes_set_long", lying)
    monkeypatch.setattr(eccodes, "codes_new_from_message", lambda x: n_opened.append(x) or opening(x))
    asking = Asking(GRIB()._names())
    for field in fields[1:]:
        asking.field_keys(field, make_header(field, with_times=False), field.stub())
    assert len(n_opened) >= 3


def test_a_scan_opens_few_messages(tmp_path, monkeypatch):
    """Levels and parameters of a model are asked for one by one, not all their combinations."""
    path = tmp_path / "x.grib2"
    place = {"typeOfLevel": "isobaricInhPa", "generatingProcessIdentifier": 233}
    (field,) = taken(message(place))
    stubs = []
    for number in range(8):
        for hpa in range(100, 1100, 100):
            product = bytearray(field.sections[3])
            product[10] = number
            product[24:28] = (100 * hpa).to_bytes(4, "big")
            sections = (*field.sections[:3], bytes(product), field.sections[4])
            stubs.append(field._replace(sections=sections).stub())
    path.write_bytes(b"".join(stubs))
    opening, n_opened = eccodes.codes_new_from_message, []
    monkeypatch.setattr(eccodes, "codes_new_from_message", lambda x: n_opened.append(x) or opening(x))
    records = GRIB()._scan(absolute_url(path), Storage())
    assert len(records.headers) == 80
    assert len(n_opened) == 10
    levels = records.names.index("level:float")
    assert {row[levels] for row in records.headers} == set(range(100, 1100, 100))
    assert UNDEFINED not in {row[records.names.index("paramId")] for row in records.headers}

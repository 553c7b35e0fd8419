import json
import random

import orjson
import pytest

from tests.amount import examples
from tests.data.arrays import bytes_metadata as metadata
from virtualstack.errors import MalformedFileError
from virtualstack.kerchunk import text as reference_text
from virtualstack.kerchunk.references import build_manifest
from virtualstack.kerchunk.table import ReferenceTable
from virtualstack.kerchunk.text import load_json, split_text
from virtualstack.location import Location
from virtualstack.zarr.metadata.attributes import parse_json

N_DOCUMENTS = examples(300)
SHAPES = {"v": (20, 3), "v1": (4,), "g/v": (2, 2, 2), "g/v.x": (3,), "s": (), "é": (9,), "": (5,)}


def ujson_text(data):
    r"""What kerchunk writes: ``ujson`` puts a backslash in front of every slash."""
    return json.dumps(data, separators=(",", ":")).replace("/", "\\/").encode()


def json_text(data):
    return json.dumps(data).encode()


def columns(table, path):
    """What each cell of an array refers to, and how many references lie outside."""
    found, n_cells, n_outside = {}, 0, 0
    for got in table.read(path, metadata(*SHAPES[path])):
        inline = iter(got.inline)
        what = [(next(inline), 0, 0) if row < 0 else (table.render(got.urls[row]),) for row in got.rows.tolist()]
        spans = zip(got.offsets.tolist(), got.lengths.tolist(), strict=True)
        found |= zip(got.cells.tolist(), zip(what, spans, strict=True), strict=True)
        n_cells += len(got.cells)
        n_outside += got.n_outside
    return found, n_cells, n_outside


def contents(table_of, text):
    """All that a table says, or the types of its errors."""

    def attempt(call, *args):
        try:
            return call(*args)
        except MalformedFileError as error:
            return type(error)

    table = attempt(table_of, text)
    if not isinstance(table, ReferenceTable):
        return table
    return [repr(attempt(table.metadata)), table.strays([*SHAPES]), *(attempt(columns, table, path) for path in SHAPES)]


def by_library(text):
    try:
        data = orjson.loads(text)
    except orjson.JSONDecodeError:
        data = parse_json(text, where="r")
    return ReferenceTable.from_references(data, where="r")


def pieces(text):
    """Cut a text somewhere."""
    cuts = sorted(random.Random(len(text)).randrange(len(text) + 1) for _ in range(3))
    return [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def by_parts(text):
    parts = split_text(pieces(text))
    return by_library(text) if parts is None else ReferenceTable.from_references(parts[0], plain=parts[1], where="r")


def n_plain(text):
    parts = split_text(pieces(text))
    return None if parts is None else int(parts[1].counts().sum())


@pytest.mark.parametrize("write", [orjson.dumps, ujson_text, json_text])
@pytest.mark.parametrize("parts", [{"version": 1}, None])
def test_texts_as_libraries_write_them_are_read(write, parts):
    """Plain references of all arrays are found in the middle of others, as three libraries write them."""
    refs = {
        ".zgroup": '{"zarr_format":2}',
        "v/.zattrs": {"flags": ["a", "b"], "note": 'a "quoted"\n\\text/'},
        **{f"v/{i}.{j}": ["s3://bucket/a b.nc", i * 7, j] for i in range(20) for j in range(3)},
        "v1/.zattrs": '{"_ARRAY_DIMENSIONS":["x","y"]}',
        "v1/0": "base64:AAAA",
        "v1/1": ["https://host/é,[1]{0}:%22.nc", 2**62, 2**62],
        "v1/2": ["whole.nc"],
        "s/0": ["", 0, 0],
        "g/v/0.0.1": ["a", 1, 2],
        "last": "text",
    }
    text = write({**parts, "refs": refs} if parts else refs)
    n_ascii = 62 if b"\\u" in text else 63
    assert n_plain(text) == n_ascii
    assert contents(by_parts, text) == contents(by_library, text)
    assert columns(by_parts(text), "v")[0][7] == (("s3://bucket/a b.nc",), (14, 1))


def document(*members, before=b'"version":1,', after=b""):
    return b'{%s"refs":{%s}%s}' % (before, b",".join(members), after)


A, B, C = b'"v/0.0":["u",1,2]', b'"v/0.1":["w",3,4]', b'"z":"text"'


@pytest.mark.parametrize("length", range(30))
def test_keys_that_stand_twice(length, monkeypatch):
    """A key that stands twice is found, however long it and others are, and however far away."""
    monkeypatch.setattr(reference_text, "_BLOCK_BYTES", 200)
    key = b'"v/%s' % (b"0" * length)
    others = [b'"w/%s":["u",1,2]' % (b"1" * i) for i in range(40)]
    twice = [b'%s":["u",3,4]' % key, b'%s":["u",5,6]' % key]
    assert n_plain(document(twice[0], *others, C)) == 41
    assert n_plain(document(twice[0], *others, twice[1], C)) is None
    assert n_plain(document(twice[0], *others, b'%s":"text"' % key)) is None
    assert n_plain(document(twice[0], *others, b'%s0":"text"' % key)) == 41
    assert n_plain(document(twice[0], *others, b'%s\\u0000":"text"' % key)) == 41


def test_arrays_that_take_turns():
    """References of arrays in any order, from many files, are those of each array, with its own files alone."""
    keys = [f"{path}/{i}.{j}" for i in range(20) for j in range(3) for path in ("v", "w", "g/v", "é")]
    text = document(*(b'"%s":["%d",%d,%d]' % (key.encode(), i % 7, i, i) for i, key in enumerate(keys)), C)
    assert n_plain(text) == len(keys)
    table = by_parts(text)
    assert table.strays(["v", "g/v"]) == {"": 1, "w": 60, "é": 60}
    others, got = table.read("v", metadata(20, 3))
    assert not others.cells.size
    assert sorted(got.cells.tolist()) == list(range(60))
    for cell, row, offset in zip(got.cells.tolist(), got.rows.tolist(), got.offsets.tolist(), strict=True):
        assert keys[offset] == f"v/{cell // 3}.{cell % 3}"
        assert got.urls[row] == f"{offset % 7}"
    assert [part.n_outside for part in table.read("v", metadata(1, 3))] == [0, 57]
    first = build_manifest(table.read("v", metadata(1, 1)), metadata(1, 1), locate=Location, measure=list, where="r")
    assert first.locations == (Location("0"),)


def test_references_that_are_read_once_are_let_go():
    """Those of others in the same part are not, until they are read; who lies below two arrays is seen."""
    _, plain = split_text([document(A, b'"w/0":["u",5,6]', B, C)])
    ((keys, *_),) = plain.below("w", once=True)
    assert keys.to_pylist() == ["w/0"]
    assert len(plain.parts) == 1
    list(plain.below("v", once=True))
    assert not plain.parts
    with pytest.raises(MalformedFileError, match="is an array below another array"):
        list(plain.below("v"))


def test_one_url_in_two_spellings():
    """Slashes with and without a backslash are one URL."""
    _, plain = split_text([document(A.replace(b"u", b"a\\/b"), B.replace(b"w", b"a/b"), C)])
    assert plain.urls == ["a/b"]
    ((_, rows, _, _),) = plain.below("v")
    assert rows.tolist() == [0, 0]


@pytest.mark.parametrize("n", [2**63, 2**64 - 1, 2**64, 2**70, -(2**64)])
def test_whole_numbers_of_any_length(n):
    """Numbers that the quick JSON library would make floats of."""
    text = document(A, b'"v/.zattrs":{"n":%d}' % n, C)
    data, plain = split_text(pieces(text))
    assert data == json.loads(text.replace(A + b",", b""))
    assert type(data["refs"]["v/.zattrs"]["n"]) is int
    assert plain.counts().sum() == 1
    assert load_json(b"[%d]" % n) == [n]
    assert type(load_json(b"[%d]" % n)[0]) is int
    with pytest.raises(ValueError, match="deep"):
        load_json(b"[" * 10**6 + b"1" * 30)


def test_a_reference_longer_than_what_is_looked_at_together(monkeypatch):
    """It is one of the others."""
    monkeypatch.setattr(reference_text, "_BLOCK_BYTES", 100)
    text = document(A, b'"v/0.2":["%s",1,2]' % (b"u" * 300), B, C)
    assert n_plain(text) == 2
    assert contents(by_parts, text) == contents(by_library, text)


@pytest.mark.parametrize("n_runs", [1 << 16, (1 << 16) + 1])
def test_many_runs(n_runs):
    """Where references are alone among others, the library has to read all of them anyway."""
    members = (b'"v/%d":["u",1,2],"w/%d":[]' % (i, i) for i in range(n_runs))
    assert n_plain(document(*members)) == (n_runs if n_runs <= 1 << 16 else None)


NUMBERS = (
    b"-1,2|1,-1|-0,2|+1,2|01,2|1,02|00,2|1.0,2|1,2.5|1e3,2|1,2e0|9223372036854775808,2|1,18446744073709551616|0x1,2|1_0,2|"
    b"1 1,2|1,2 2|,2|1,|,|null,2|1,null|true,2|1,false|1|1,2,3|[1],2|1,[2]|{},2|1,2],[3,4|1,2]]|1,2}|"
    b'1,"2"|inf,2|NaN,2|1;2|1\n,2|1,\t2|\x001,2'
)


def test_runs():
    """Runs of references between others are told apart, the last of an object is one of the others."""
    assert n_plain(document(A, B, C)) == 2
    assert n_plain(document(A, C, B, C)) == 2
    assert n_plain(document(C, A, B)) == 1
    assert n_plain(document(A, B.replace(b'"v/0.1"', b'"v/0.2"'), C, after=b',"templates":{"u":"s3://b"}')) == 2


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'"',
        b"{}",
        document(A),
        document(b'"v/0.0":"text"', b'"v/0.1":["whole"]', C),
        document(A, A.replace(b"1", b"7"), C),
        document(A, b'"v/0.0":"text"'),
        document(b'"v/0.0":"text"', A, C),
        document(A, b'"v\\u002f0.0":"text"'),
        document(A, b'"v\\/0.0":["u",8,9]', C),
        document(b'"nested":{%s,%s}' % (A, C), B),
        document(b'"nested":[%s,%s]' % (A, C), B),
        document(A, C, after=b',"refs":{%s}' % B),
        document(A, C, after=b',"gen":[]'),
        document(A, C, before=b""),
        document(C, after=b',"templates":{%s,%s}' % (A, C)),
        b'{"version":["u",1,2],%s,%s}' % (A, C),
        b'{"version/":["u",1,2],"version":["u",1,2],%s}' % C,
        b"[%s,%s]" % (A, C),
        b'[{"version":1},%s]' % document(A, C),
        document(b'"v/.zarray":["u",1,2]', C),
        document(b'"k":[":[",1,2],",5],"', C),
        document(b'"v/0.0":[":[",1,2],",5,6],":["u",3,4]', C),
        document(b'"v/.zattrs":"{\\"a\\":%s,%s"' % (A, C)),
        document(b'"v/.zattrs":"\\%s,%s"' % (A, C)),
        document(A + b",", C),
        document(A, b"", C),
        document(A[:-1], C),
        document(A + b"]", C),
        document(A + b",7", C),
        document(A, C) + b"x",
        document(A, C)[:-1],
        document(A, C)[:-2],
        document(A, B, C)[20:],
        b"\xef\xbb\xbf" + document(A, C),
        document(A, C).decode().encode("utf-16"),
        document(A.replace(b"u", b"\xff"), C),
        document(A.replace(b"v", b"\xed\xa0\x80"), C),
        document(A, b'"\\ud800":"text"'),
        document(A, b'"v/0.2":["\\ud800",1,2]', C),
        document(A, b'"v/.zattrs":{"a":NaN}'),
        document(A, b'"v/%s":"text"' % (b"0" * 300)),
        *(document(b'"v/0.0":["u",%s]' % numbers, C) for numbers in NUMBERS.split(b"|")),
    ],
    ids=str,
)
def test_other_texts_are_left_to_the_library(text):
    """Anything beyond what is provably plain is read, or refused, as the library does it."""
    assert n_plain(text) is None
    assert contents(by_parts, text) == contents(by_library, text)


@pytest.mark.parametrize(
    ("text", "n"),
    [
        (document(A.replace(b"1,2", b" 1 , 2 "), B, C), 2),
        (document(A.replace(b"1,2", b"9223372036854775807,0"), B, C), 2),
        (document(A.replace(b":", b": "), b" " + B, b" " + C), 2),
        (document(A.replace(b'"u"', b'"a\\/b\\/"'), B.replace(b"/", b"\\/"), C), 2),
        (document(A.replace(b'"u"', b'"a\\\\/b"'), B, C), 1),
        (document(A.replace(b"u", b"\xc3\xa9"), B, C), 2),
        (document(A.replace(b"u", b"\\u00e9"), B, C), 1),
        (document(A.replace(b":", b":\n"), B, C), 1),
        (document(A.replace(b":", b":  "), B, C), 1),
        (document(A, B + b"\n", C), 1),
        (document(A + b" ", B, C), 1),
        (document(b'"x/.zattrs":{"a":["t","x"]}', A, C), 1),
        (document(A, b'"x/.zattrs":{"a":["t",["x",1,2]]}', B, C), 2),
        (document(A, B, C, after=b',"more":"\\"v/9.9\\":[\\"u\\",1,2],\\""'), 2),
        (document(b'"v/1.1":[":[",1,2],"x/":["u",1,2]', C), 2),
        (document(A, b'"":"text"', B, b'"s/0":["",0,0]', C), 3),
    ],
    ids=str,
)
def test_plain_texts_are_recognised(text, n):
    """White space, escaped slashes and oddities beside a reference leave it what it is."""
    assert n_plain(text) == n
    assert contents(by_parts, text) == contents(by_library, text)


def random_member(rng):
    path = rng.choice(["v", "v", "v", "v1", "g/v", "g/v.x", "s", "é", "x", "", "v/0"])
    index = ".".join(str(rng.randrange(5)) for _ in SHAPES.get(path, (1,))) or "0"
    url = rng.choice(["u", "s3://b/a b.nc", "https://h/é:[1],%22]", "", ":[", "],", "{{u}}/x", 'a"b', "a\\b", "\n"])
    value = rng.choice(
        [
            *(3 * [[url, rng.randrange(1 << rng.randrange(1, 66)), rng.randrange(100)]]),
            [url],
            [url, 0, rng.choice([0, -1, 2.0, 1e30, None, True, "5", [], [1], 1 << 63])],
            rng.choice(["text", "base64:AAAA", "base64:?", {"a": [url, 1, 2], "b": 1}, [], 7, [url, 1], [[url, 1, 2]]]),
        ]
    )
    if rng.random() < 0.1:
        return f"{path}/.zattrs", rng.choice(
            [{"a": [url, 1, 2], "b/c": [url, 1, 2], "d": 1}, '{"a":["t",1,2],"b":1}', value]
        )
    return rng.choice([f"{path}/{index}"] * 20 + [index, f"{path}/x.1", f"{path}/01", "version", "a/b/c"]), value


def random_document(rng):
    """A reference set as one of the libraries writes it; some with a few bytes changed."""
    odd = rng.random() < 0.6
    refs = {}
    for _ in range(rng.randrange(1, 30)):
        key, value = (
            random_member(rng)
            if odd and rng.random() < 0.2
            else (f"v/{rng.randrange(20)}.{rng.randrange(3)}", ["u", 5, 6])
        )
        refs[key] = value
    data = rng.choice([{"version": 1, "refs": refs}, {"refs": refs, "templates": {"u": "s3://t"}, "version": 1}, refs])
    indent = rng.choice([None] * 9 + [1])
    text = rng.choice(
        [
            lambda: ujson_text(data),
            lambda: json.dumps(data, separators=(",", ":")).encode(),
            lambda: json.dumps(data, ensure_ascii=rng.random() < 0.5, indent=indent).encode(),
            lambda: json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(),
        ]
    )()
    if rng.random() < 0.5:
        return text
    for _ in range(rng.randrange(1, 4)):
        text = damaged(text, rng)
    return text


def damaged(text, rng):
    """Put a byte, change one, or cut, double or move some."""
    at, to = rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)
    byte = bytes([rng.choice([*b'",:[]{} \\/0129-.\n\x00\xc3\xff', rng.randrange(256)])])
    n = rng.choice([1, 1, 2, 60])
    return rng.choice(
        [
            text[:at] + byte + text[at:],
            text[:at] + byte + text[at + 1 :],
            text[:at] + text[at + n :],
            text[:to] + text[at : at + n] + text[to:],
            text[:at],
        ]
    )


@pytest.mark.parametrize("block", [97, 1 << 20])
def test_random_documents(block, monkeypatch):
    """Documents of all kinds, whole and damaged, say by parts what they say, or raise what they raise, as a whole."""
    monkeypatch.setattr(reference_text, "_BLOCK_BYTES", block)
    rng = random.Random(block)
    n_split = 0
    for _ in range(N_DOCUMENTS):
        text = random_document(rng)
        expected, n = contents(by_library, text), n_plain(text)
        assert contents(by_parts, text) == expected, text
        n_split += n is not None
    assert n_split > N_DOCUMENTS // 4

import pytest

from virtualstack.errors import MalformedFileError
from virtualstack.kerchunk.templates import generate, render

TEMPLATES = {"u": "s3://bucket", "f": "{{c}}_{{n}}", "nested": "{{u}}/x", "loop": "{{loop}}", "bomb": "{{big}}" * 40}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("{{u}}/a.nc", "s3://bucket/a.nc"),
        ("{{ u }}{{u}}", "s3://buckets3://bucket"),
        ("{{nested}}/y", "s3://bucket/x/y"),
        ("{{f(c='text', n=5)}}", "text_5"),
        ("{{(3 + 4) * 5 - 7 // 2 % 2}}", "34"),
        ("{{'lit'}}", "lit"),
        ("file:///{0}", "file:///{0}"),
    ],
)
def test_render(text, expected):
    """Names, arguments and arithmetic are put in; braces of other kinds stay."""
    assert render(text, TEMPLATES, where="r") == expected


def test_render_agrees_with_jinja():
    """Expressions mean what they mean to jinja2, which fsspec uses."""
    jinja2 = pytest.importorskip("jinja2", reason="jinja2 is not installed")
    for text in ("{{ 2 * 3 + 1 }}", "{{ 7 // 2 }}{{ 7 % 4 }}", "a{{u}}b", "{{ 5 - 3 }}"):
        assert render(text, TEMPLATES, where="r") == jinja2.Template(text).render(u="s3://bucket")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{nobody}}", "template expression 'nobody'"),
        ("{{__import__('os')}}", "template expression"),
        ("{{u.upper()}}", "template expression"),
        ("{{2 ** 9}}", "template expression"),
        ("{{'a' * 9}}", "template expression"),
        ("{{1 // 0}}", "template expression"),
        ("{{(}}", "template expression"),
        ("{{" + "1+" * 200 + "1}}", "it has more than 256 characters"),
        ("{% for x in y %}", "statements"),
        ("{{loop}}", "templates that are nested more than 8 deep"),
        ("x" * 20000, "texts of more than 16384 characters"),
    ],
)
def test_expressions_that_are_not_known(text, message):
    """Anything else is refused with the expression, and nothing runs."""
    with pytest.raises(MalformedFileError, match=f"'r' has .*{message}"):
        render(text, TEMPLATES, where="r")


def test_expansion_bombs_end():
    """Templates that multiply are stopped by the length of the text."""
    templates = {f"t{i}": f"{{{{t{i + 1}}}}}" * 10 for i in range(6)} | {"t6": "x" * 500}
    with pytest.raises(MalformedFileError, match="whose texts have more than 16384 characters"):
        render("{{t0}}", templates, where="r")


def test_expansions_to_nothing_end():
    """Templates that multiply and make no text are stopped as well."""
    templates = {f"t{i}": f"{{{{t{i + 1}}}}}" * 1000 for i in range(6)} | {"t6": ""}
    with pytest.raises(MalformedFileError, match="one text has more than 256 expressions"):
        render("{{t0}}", templates, where="r")


def test_generate_as_the_specification_has_it():
    """Dimensions multiply; offsets and lengths are arithmetic of them."""
    generators = [
        {
            "key": "v/{{i}}.{{j}}",
            "url": "{{u}}/file_{{name}}_{{i}}.nc",
            "offset": "{{(i + 1) * 1000 + j}}",
            "length": "1000",
            "dimensions": {"i": {"stop": 2}, "j": [5, 7], "name": ["a"]},
        },
        {"key": "w/{{i}}", "url": "{{u}}", "dimensions": {"i": {"start": 2, "stop": 5, "step": 2}}},
    ]
    assert generate(generators, TEMPLATES, where="r") == {
        "v/0.5": ["s3://bucket/file_a_0.nc", 1005, 1000],
        "v/0.7": ["s3://bucket/file_a_0.nc", 1007, 1000],
        "v/1.5": ["s3://bucket/file_a_1.nc", 2005, 1000],
        "v/1.7": ["s3://bucket/file_a_1.nc", 2007, 1000],
        "w/2": ["s3://bucket"],
        "w/4": ["s3://bucket"],
    }


GOOD = {"key": "v/{{i}}", "url": "u", "offset": "0", "length": "1", "dimensions": {"i": [0]}}


@pytest.mark.parametrize(
    ("generators", "message"),
    [
        ({}, "has 'gen' {}; expected a list"),
        ([5], "expected an object with the texts 'key' and 'url'"),
        ([{"key": "a"}], "expected an object with the texts 'key' and 'url'"),
        ([{**GOOD, "dimensions": None}], "dimensions None; expected an object"),
        ([{**GOOD, "dimensions": {"i": 5}}], "the dimension 'i': 5"),
        ([{**GOOD, "dimensions": {"i": {}}}], "the dimension 'i'"),
        ([{**GOOD, "dimensions": {"i": [1, "a"]}}], "the dimension 'i'"),
        ([{**GOOD, "dimensions": {"i": {"stop": 1, "step": 0}}}], "the dimension 'i'"),
        ([{**GOOD, "offset": "x"}], "generator expression 'x', whose values are not all whole numbers"),
        ([{k: v for k, v in GOOD.items() if k != "offset"}], "only one of 'offset' and 'length'"),
        ([{**GOOD, "dimensions": {"i": {"stop": 10**12}}}], "generators of more than 4194304 references"),
        ([{**GOOD, "dimensions": {"i": {"stop": 10**30}}}], "the dimension 'i'"),
        ([{**GOOD, "dimensions": {"i": {"stop": 10**17}, "j": {"stop": 0}}}], "generators of more than"),
        ([{**GOOD, "dimensions": {f"d{i}": [0] for i in range(70)}}], "a generator of 70 dimensions; at most 32"),
        ([{**GOOD, "offset": f"{{{{i * {2**62}}}}}", "dimensions": {"i": [4]}}], "template expression"),
        (
            [{**GOOD, "url": "x" * 16_000, "dimensions": {"i": {"stop": 1 << 17}}}],
            "a generator of more than 1073741824 c",
        ),
        (
            [{**GOOD, "key": "x" * 9000 + "{{i}}", "dimensions": {"i": {"stop": 1 << 17}}}],
            "a generator of more than 10",
        ),
        ([{**GOOD, "dimensions": {"i": {"stop": 10**5}, "j": {"stop": 10**5}}}], "generators of more than"),
    ],
)
def test_malformed_generators(generators, message):
    """What is missing or too much is named."""
    with pytest.raises(MalformedFileError, match=f"'r' has .*{message}|'r' {message}"):
        generate(generators, {}, where="r")

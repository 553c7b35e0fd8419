"""Locations of sources in a store: what is written is what is read, and none leads out."""

import posixpath
import re
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.amount import examples
from virtualstack.errors import ForbiddenLocationError, MalformedFileError, WriterError
from virtualstack.location import Location, split_url
from virtualstack.vstack.format.sources import MAX_MOVED, Prefixes, SourcePage, SourceRow

STORES = st.sampled_from(
    [
        "file:///a/b/x.vstack/",
        "file:///x.vstack/",
        "s3://bucket/a/x.vstack/",
        "s3://bucket/",
        "http://h:1/a/b/x.vstack/",
    ]
)
PIECES = ["/", "..", ".", "//", "%2e", "%2E", "%2f", "%", "\\", "\t", "\n", "\0", "a", "b.nc", "./", "../", "http://e/"]
ODD = st.lists(st.sampled_from([*PIECES, "?", "#", ";", "é"]), max_size=7).map("".join)
MANY = settings(max_examples=examples(1000), deadline=None)


def stays_below(url: str, parent: str) -> bool:
    """Whether nobody who follows a URL gets out: neither a file system, nor a web client, nor a lax server."""
    cleaned = re.sub(r"[\t\r\n]", "", url)  # as web clients do
    ways = [url, cleaned, unquote(cleaned), unquote(unquote(cleaned)).replace("\\", "/"), cleaned.replace("\\", "/")]
    scheme = parent.partition("://")[0] + "://"
    paths = [way.partition("?")[0].partition("#")[0].removeprefix(scheme) for way in ways]
    return all(f"{scheme}{posixpath.normpath(path)}/".startswith(parent) for path in paths)


@MANY
@given(STORES, st.sampled_from(["./", "../"]), ODD, ODD)
@example("http://h:1/a/b/x.vstack/", "../", "", "%2e%2e/secret")
@example("http://h:1/a/b/x.vstack/", "../", "", "..\\secret")
@example("http://h:1/a/b/x.vstack/", "../", "", ".\t./secret")
@example("http://h:1/a/b/x.vstack/", "../", "", "..?secret")
@example("file:///a/b/x.vstack/", "./", "../", "x")
@example("file:///a/b/x.vstack/", "../", ".", "./../etc/passwd")
def test_a_relative_location_cannot_leave_the_folder_of_the_store(store, begin, middle, suffix):
    """Whatever prefix and suffix a stranger writes: refused, or below."""
    prefixes = Prefixes(store=store, table=(begin + middle,))
    try:
        url = prefixes.location(SourceRow(0, suffix, 1, None, None), (0,)).url
    except ForbiddenLocationError:
        return
    assert stays_below(url, prefixes.parent if begin == "../" else store)


@MANY
@given(STORES, ODD, st.lists(st.tuples(ODD, st.sampled_from(["./", "../", ""]), ODD), max_size=3), ODD)
def test_relocations_lead_to_urls_or_below(store, prefix, moves, suffix):
    """What a relocation makes relative is held to the same; what is not a URL is refused."""
    moved = tuple((old, begin + new, 1) for old, begin, new in moves)
    prefixes = Prefixes(store=store, table=(prefix,), moved=moved)
    try:
        url = prefixes.location(SourceRow(0, suffix, 1, None, None), (0,)).url
    except ForbiddenLocationError:
        return
    if prefixes.written((0, suffix, 1, None, None), (0,)).startswith(("./", "../")):
        assert stays_below(url, prefixes.parent)
    else:
        assert re.match(r"[A-Za-z][A-Za-z0-9+.\-]*://", url)


NAMES = st.text("ab/.%\\ é", max_size=6)
ROOTS = st.sampled_from(["http://h", "odd://x.nc", "memory://x.nc"])
URLS = st.builds("{}{}".format, st.sampled_from(["file:///a/", "file:///", "s3://bucket/", "http://h/"]), NAMES)


@MANY
@given(
    STORES, st.lists(ROOTS | URLS, min_size=1, max_size=6), st.booleans(), st.lists(st.tuples(URLS, URLS), max_size=2)
)
def test_what_is_written_is_read(store, urls, relative, moves):
    """Any URL, be it one that no relative location may be; after relocations too."""
    prefixes = Prefixes(store=store)
    for old, new in moves:
        prefixes = prefixes.relocated(old, new)
    locations = [Location(url, 5, "e", 2.0) for url in urls]
    here = [x for x in urls if split_url(x)[0] == split_url(store)[0]]
    if relative and not all(prefixes._fits(x, "./") or prefixes._fits(x, "../") for x in here):
        with pytest.raises(WriterError, match="has no location relative to"):
            prefixes.rows(locations, relative=relative)
        relative = False
    chosen, rows = prefixes.rows(locations, relative=relative)
    prefixes, numbers = prefixes.number_prefixes(chosen)
    found = [prefixes.location(row, numbers) for row in rows]
    assert [(x.url, x.size, x.etag) for x in found] == [(x.url, x.size, x.etag) for x in locations]
    later, _ = prefixes.rows(found, relative=relative)
    assert prefixes.number_prefixes(later)[0].table == prefixes.table


def spelt(rest, old, new):
    """What follows a place as it is spelt at another one."""
    match (old.startswith("http"), new.startswith("http")):
        case (False, True):
            return re.sub("[%#?]", lambda found: f"%{ord(found[0]):X}", rest)
        case (True, False):
            return unquote(rest)
    return rest


ESCAPED = st.builds("{}{}".format, URLS, st.text("%2Ec3a9#?/", max_size=6))


@MANY
@given(st.lists(st.tuples(ESCAPED, ESCAPED), max_size=4), ESCAPED)
@example([("file:///a/", "http://h/%"), ("http://h/", "s3://bucket/")], "file:///a/ab")
@example([("file:///a/", "http://h/%c3"), ("http://h/", "s3://bucket/")], "file:///a/b")
def test_relocations_are_made_in_order(moves, url):
    """As one would with the URLs themselves; and the beginnings that are told cover what there is."""
    prefixes, numbers = Prefixes(store="s3://store/x/").number_prefixes(["file:///", "s3://bucket/", "http://h/"])
    number = next(i for i, x in enumerate(prefixes.table) if url.startswith(x))
    expected = url
    for old, new in moves:
        prefixes = prefixes.relocated(old, new)
        expected = new + spelt(expected[len(old) :], old, new) if expected.startswith(old) else expected
    row = SourceRow(0, url.removeprefix(prefixes.table[number]), None, None, None)
    assert prefixes.location(row, numbers[number:]).url == expected
    assert any(expected.startswith(begin) for begin in prefixes.begins())


def test_the_time_is_that_of_the_place():
    """It is left out for copies; an etag holds within one kind of service."""
    row = SourceRow(0, "a.nc", 5, 2.0, "e")
    prefixes = Prefixes(store="file:///s/x/", table=("file:///d/", "./", "../"))
    assert prefixes.location(row, (0,)) == Location("file:///d/a.nc", 5, "e", 2.0)
    assert prefixes.location(row, (1,)) == Location("file:///s/x/a.nc", 5, "e")
    assert prefixes.location(row, (2,)) == Location("file:///s/a.nc", 5, "e")
    moved = prefixes.relocated("file:///d/", "file:///d/new/")
    assert moved.location(row, (0,)) == Location("file:///d/new/a.nc", 5, "e")
    assert moved.relocated("file:///d/new/", "s3://b/").location(row, (0,)) == Location("s3://b/a.nc", 5)
    assert moved.relocated("file:///d/new/", "file:///d/").location(row, (0,)) == Location(
        "file:///d/a.nc", 5, "e", 2.0
    )


@pytest.mark.parametrize(("new", "etag"), [("s3://c/", "e"), ("gs://c/", None), ("https://h/", None)])
def test_etags_of_relative_sources_are_of_the_service_of_the_store(new, etag):
    """Until they are relocated to another one."""
    prefixes = Prefixes(store="s3://b/x.vstack/", table=("../data/",)).relocated("../data/", new)
    assert prefixes.location(SourceRow(0, "a.nc", 5, None, "e"), (0,)) == Location(f"{new}a.nc", 5, etag)


def test_relocations_are_bounded():
    """Each is looked at for each source."""
    prefixes = Prefixes(store="file:///s/x/", table=("file:///d/",), moved=(("a", "b", 1),) * MAX_MOVED)
    with pytest.raises(WriterError, match="was already relocated 256 times"):
        prefixes.relocated("file:///d/", "file:///e/")
    with pytest.raises(MalformedFileError, match="has 257 relocations; at most 256 are read"):
        Prefixes(store="file:///s/x/", moved=(("a", "b", 1),) * (MAX_MOVED + 1))


def test_a_prefix_that_is_not_there_is_an_error():
    """Numbers of a damaged store."""
    prefixes = Prefixes(store="file:///s/x/", table=("file:///d/",))
    for numbers in ((), (1,), (-1,)):
        with pytest.raises(MalformedFileError, match="has a source with prefix"):
            prefixes.location(SourceRow(0, "a.nc", 5, None, None), numbers)


@pytest.mark.parametrize(
    ("known", "url", "expected"),
    [
        (["s3://b/a/c/2001/", "s3://b/a/d/2001/"], "s3://b/a/c/2002/x.nc", "s3://b/a/c/"),
        (["s3://b/c/2001/", "s3://other/a/"], "s3://b/a/2002/x.nc", "s3://b/a/2002/"),  # no folder in common
        (["s3://b/a/", "s3://b/a/2001/"], "s3://b/a/2001/x.nc", "s3://b/a/2001/"),
        (["s3://b/a/"], "s3://b/a/2001/x.nc", "s3://b/a/"),
        (["s3://other/a/"], "s3://b/a/x.nc", "s3://b/a/"),
    ],
)
def test_an_archive_that_grows_by_folders_needs_a_single_prefix(known, url, expected):
    """The folder that a new one has in common with the first known one; the longest known one that has the source."""
    chosen, rows = Prefixes(store="s3://store/x.vstack/", table=tuple(known)).rows([Location(url)], relative=False)
    assert chosen == (expected,)
    assert expected + rows[0].suffix == url


ROW = {"prefix": 1, "suffix": "a.nc", "size": 5, "mtime": 2.5, "etag": "e"}


def page_of(*rows):
    """Return the JSON of a page: a list for each property."""
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize(
    "changes",
    [
        *[{}, {"prefix": 0}, {"size": None}, {"size": 0}, {"size": (1 << 63) - 1}, {"mtime": None}, {"mtime": -3.0}],
        *[{"etag": None}, {"unmodified_since": 4.5}, {"digest": "d"}, {"unmodified_since": 1.0, "digest": "d"}],
    ],
)
def test_a_page_of_sources_is_written_as_it_was_read(changes):
    page = SourcePage.from_json(page_of(ROW | changes), where="here")
    assert page.rows == (SourceRow(**ROW | changes),)
    assert page.document() == page_of(ROW | changes)


def test_properties_that_no_source_has_are_left_out():
    first, second = ROW | {"digest": None, "unmodified_since": None}, ROW | {"digest": "d", "unmodified_since": None}
    page = SourcePage.from_json(page_of(first, second), where="here")
    assert page.document() == page_of({**ROW, "digest": None}, {**ROW, "digest": "d"})
    assert SourcePage.from_json(page_of(first), where="here").document() == page_of(ROW)


@pytest.mark.parametrize(
    "changes",
    [
        *[{"prefix": x} for x in (-1, None, True, "1", 1.5)],
        *[{"size": x} for x in (-1, 1 << 63, True, 1.5, "5")],
        *[{"mtime": x} for x in (False, "2")],
        *[{"unmodified_since": x} for x in (True, "2")],
        *[{"suffix": x} for x in (None, 5)],
        *[{"etag": 5}, {"digest": 5}],
    ],
)
def test_a_source_that_is_not_valid_is_named(changes):
    with pytest.raises(MalformedFileError, match=r"'here' has the source .*, which is not valid\. Restore it"):
        SourcePage.from_json(page_of(ROW | changes), where="here")


@pytest.mark.parametrize("document", [{}, {**page_of(ROW), "size": []}, {**page_of(ROW), "size": 5}, {"prefix": 1}])
def test_columns_of_a_page_are_as_long_as_each_other(document):
    with pytest.raises(MalformedFileError, match="'here' is not a page of sources"):
        SourcePage.from_json(document, where="here")

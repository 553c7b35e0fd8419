import pytest
from hypothesis import given
from hypothesis import strategies as st

from virtualstack.location import are_plain, flaw, way_out

PLAIN = [
    "file:///data/a b.nc",
    "file:///data/.hidden/..a/b../...",
    "s3://bucket/50% of it/ä.nc",
    "s3://bucket/．．/‥/a",  # dots of other alphabets are names like any other
    "https://host/a%20b%2Fc%3A00%C3%A9.nc?a=b/c&d=.;e",
    "https://host:8080/thredds/dodsC/a.nc?time[0:1:5]",
    "https://host",
    "memory://x/a",
]
WAYS_OUT = [
    "file:///data/../x", "file:///data/..", "s3://bucket/a/./b", "https://host/a/%2e%2e/b", "https://host/a/%2E./b",
    "https://host/a/.%2e", "https://host/a/..%2fb", "https://host/a/..%2Fb", "https://host/a%2f..%2fb",
    "https://host/a/%252e%252e/b", "https://host/a/..%252fb", "https://host/a/..?b", "https://host/a/..#b",
    "https://host/a/..;x=1/b", "https://host/a/..\\b", "https://host/a/..%5cb", "https://host\\..\\b",
    "/etc/passwd", "etc/passwd", "", "://host/a", "C:\\x", "file:/etc/passwd", "file://etc/passwd",
    "FILE://host/etc/passwd", "local:///etc/passwd", " https://host/a", "\u212ahttps://host/a",
]  # fmt: skip
FLAWS = [
    "s3://bucket/a//b", "s3://bucket//a", "file:////a", "https://host/a?url=https://other", "file:///data/a\0b",
    "https://host/a\tb", "https://host/a\nb", "https://host/a\rb", "https://host/a\x7fb", "https://host/a%00b",
    "https://host/a%0ab", "https://host/a%1Fb", "https://host/a%7fb", "https://host/a%2500b", "https://host/a\\b",
    "https://host/a%5Cb", "https://host/%c0%ae%c0%ae/b", "s3://bucket/\ud800",
]  # fmt: skip


@pytest.mark.parametrize("url", PLAIN)
def test_a_plain_url(url):
    """Has nothing to say."""
    assert flaw(url) is None
    assert way_out(url) is None
    assert are_plain([url])


@pytest.mark.parametrize("url", WAYS_OUT)
def test_a_way_out(url):
    """However it is written."""
    assert way_out(url)
    assert flaw(url) == way_out(url)


@pytest.mark.parametrize("url", FLAWS)
def test_what_could_be_read_in_two_ways(url):
    """It is found alone, and among others."""
    assert way_out(url) is None
    assert flaw(url)
    assert not are_plain([url])
    assert not are_plain([*PLAIN, url, *PLAIN])


def test_none_and_all():
    """No URLs are plain; so are many."""
    assert are_plain([])
    assert are_plain(PLAIN)


PIECES = st.sampled_from(
    [*"/\\.%?#;:a\0\n\x7f", "..", "%2e", "%25", "%2F", "%5c", "%c0", "//", "/../", "2e", "ä", "\ud800"]
)


@given(st.lists(st.lists(PIECES, max_size=6).map(lambda x: f"https://host/{''.join(x)}"), min_size=1, max_size=4))
def test_what_is_plain_together_is_plain_alone(urls):
    """The look at all of them is the same rule as the look at each."""
    assert are_plain(urls) == all(flaw(url) is None for url in urls)

import pytest

from tests.servers import RangeServer
from virtualstack.storage.obstore_errors import named_region, what_was_answered
from virtualstack.storage.unsaid import find_region


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Generic: Error performing GET http://h/k in 1s, after 3 retries, max_retries: 3 - Server returned non-2xx "
            "status code: 503 Service Unavailable: busy\n\nDebug source:\nGeneric",
            "the server answered 503 Service Unavailable: busy (after 3 retries)",
        ),
        ("status code: 403 Forbidden: <html>\n<body>long</body>", "the server answered 403 Forbidden"),
        (
            'status code: 404 Not Found: <?xml version="1.0"?>\n<Error>\n<Code>NoSuchKey</Code><Message>gone</Message>',
            "the server answered 404 Not Found: NoSuchKey: gone",
        ),
        ("x\n\nDebug source:\n kind: Connect, dns error", "its host name is not known"),
        ("Something else.\nmore", "Something else"),
    ],
)
def test_what_was_answered(text, words):
    """The status and the server's own words, without obstore's internals."""
    assert what_was_answered(text) == words


def test_regions_named_in_errors():
    """S3 names the region that it expects."""
    assert named_region("<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-1</Region>") == "eu-west-1"
    assert named_region("the region 'us-east-1' is wrong; expecting 'eu-west-2'") == "eu-west-2"
    assert named_region("nothing") is None
    assert named_region(f"<Region>{'r' * 65}</Region>") is None


def test_regions_told_by_headers():
    """The header counts, whatever the status; no server, no region."""
    with RangeServer({"b": b""}, mode="other_region") as server:
        assert find_region("s3://b/", server.root) == "eu-north-1"
        server.mode = "normal"
        assert find_region("s3://b/", server.root) is None
    assert find_region("s3://b/", server.root) is None

"""Buckets, against moto's S3 server, and who may read them."""

import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.s3.responses import S3Response

from tests.servers import RangeServer
from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.storage import Storage, open_source
from virtualstack.storage.listing import find_urls

PUBLIC, PRIVATE = "s3://bucket/data/public.nc", "s3://bucket/data/private.nc"
DATA = bytes(range(256)) * 400


@pytest.mark.parametrize("url", [PUBLIC, PRIVATE, PRIVATE.replace("s3:", "s3a:")])
def test_credentials_given_as_options(s3, url):
    """The issue's form of storage= opens private objects."""
    source = open_source(url, storage={url.partition("bucket")[0] + "bucket/": s3.options})
    ranges = [(100_000, 100), (0, 10)]
    assert [bytes(part) for part in source.read_ranges(ranges)] == [DATA[o : o + n] for o, n in ranges]
    assert pickle.loads(pickle.dumps(source)).read(50_000, 4) == DATA[50_000:50_004]


def test_anonymous_where_there_are_no_credentials(s3, monkeypatch):
    """A public object needs nothing but the endpoint, and no metadata service is asked."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "false")
    with RangeServer({}, mode="hang") as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.root)
        assert open_source(PUBLIC, storage={"s3://bucket": {"endpoint": s3.endpoint}}).read(0, 4) == DATA[:4]
    assert metadata.n_requests == 0


def test_the_environment_says_where_and_who(s3, monkeypatch):
    """Endpoint and keys of the environment are enough."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
    assert open_source(PUBLIC).read(0, 4) == DATA[:4]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    # What was found out about a bucket stays for the process; another endpoint option makes another connection.
    assert open_source(PRIVATE, storage={"s3://bucket": {"region": "us-east-1"}}).read(0, 4) == DATA[:4]


def test_a_profile_of_the_credentials_file(s3, monkeypatch, tmp_path):
    """AWS_PROFILE names it."""
    file = tmp_path / "credentials"
    file.write_text("[mine]\naws_access_key_id = key\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "mine")
    assert open_source(PRIVATE, storage={"s3://bucket": {"endpoint": s3.endpoint + "/"}}).read(0, 4) == DATA[:4]


def test_a_private_object_without_credentials(s3):
    """The error says who was tried, what the server answered, and what to give."""
    for options in ({"endpoint": s3.endpoint, "region": "r"}, {"endpoint": s3.endpoint, "anon": True}):
        with pytest.raises(StorageError) as caught:
            open_source(PRIVATE, storage={"s3://bucket": options})
        assert str(caught.value) == (
            f"access denied: '{PRIVATE}' (tried: anonymous: the server answered 403 Forbidden). "
            "Give credentials that have access: "
            'storage={"s3://bucket/": {"access_key_id": "...", "secret_access_key": "..."}}'
        )


@pytest.mark.parametrize("url", ["s3://bucket/nope", "s3://nobucket/x"])
def test_what_is_not_there(s3, url):
    """A missing key and a missing bucket are not found."""
    message = f"there is nothing at '{url}': the server answered 404 Not Found: NoS"
    with pytest.raises(SourceNotFoundError, match=message):
        open_source(url, storage={"s3://": s3.options})


def test_an_empty_object(s3):
    """S3 answers 416 to any range of it."""
    s3.put("empty", b"")
    assert open_source("s3://bucket/empty", storage={"s3://bucket": s3.options}).size == 0


def test_odd_keys(s3):
    """Keys are not percent-decoded."""
    key = "a b/%20ü#?&+.nc"
    s3.put(key, b"odd")
    assert open_source(f"s3://bucket/{key}", storage={"s3://bucket": s3.options}).read(0, 3) == b"odd"


def make(server: RangeServer, **options: object) -> dict[str, dict[str, object]]:
    return {"s3://b": {"endpoint": server.root, "max_retries": 0, **options}}


def test_identities_are_tried_in_turn_and_the_right_one_is_kept(monkeypatch):
    """Where the environment's credentials are refused, anonymous is tried; next time it is tried first."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with RangeServer({"b/k": DATA}, mode="refuse_signed") as server:
        assert open_source("s3://b/k", storage=make(server)).read(0, 2) == DATA[:2]
        assert [("authorization" in entry[3]) for entry in server.log] == [True, False]
        server.reset()
        open_source("s3://b/k", storage=make(server))
        assert [("authorization" in entry[3]) for entry in server.log] == [False]
        server.mode = "refuse_anonymous"  # another object of the bucket, as it were
        open_source("s3://b/k", storage=make(server))
        server.mode, server.status = "status", 403
        message = (
            r"the environment's credentials \(AWS_ACCESS_KEY_ID\): the server answered 403 .*; anonymous: the server"
        )
        with pytest.raises(StorageError, match=message) as caught:
            open_source("s3://b/k", storage=make(server))
        assert "wrong" not in str(caught.value)


LISTED = b"""<ListBucketResult><Name>b</Name><KeyCount>1</KeyCount><IsTruncated>false</IsTruncated><Contents>
<Key>d/k.nc</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified><Size>4</Size><ETag>"e"</ETag></Contents>
</ListBucketResult>"""


def test_listings_are_asked_for_by_all_identities(monkeypatch):
    """As objects are; obstore has another error for them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with RangeServer({"b": LISTED}, mode="refuse_signed") as server:
        assert find_urls(["s3://b/d/*.nc"], storage=make(server)) == ["s3://b/d/k.nc"]
        server.mode, server.status = "status", 403
        with pytest.raises(StorageError, match=r"access denied: .*Give credentials that have access"):
            find_urls(["s3://b/d/*.nc"], storage=make(server))
        server.status = 404
        with pytest.raises(StorageError, match="Check the name of the bucket"):
            find_urls(["s3://b/d/*.nc"], storage=make(server))


@pytest.mark.parametrize("endpoint", ["localhost:9000", "//localhost:9000"])
def test_an_endpoint_that_is_no_url_is_named(endpoint):
    """As obstore panics."""
    options = {"endpoint": endpoint, "access_key_id": "a", "secret_access_key": "b"}
    with pytest.raises(StorageError, match=r"endpoint is not a URL. A URL begins with"):
        open_source("s3://b/k", storage={"s3://b": options})


def test_given_credentials_are_the_only_ones(monkeypatch):
    """They are not mixed with the environment's session token, and nobody else is tried."""
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the environment")
    with RangeServer({"b/k": DATA}) as server:
        open_source("s3://b/k", storage=make(server, key="mine", secret="x"))
        assert "x-amz-security-token" not in server.log[-1][3]
        assert "Credential=mine/" in server.log[-1][3]["authorization"]
        open_source("s3://b/k", storage=make(server, key="mine", secret="x", token="t"))
        assert server.log[-1][3]["x-amz-security-token"] == "t"
        server.mode = "refuse_signed"
        message = (
            "the credentials in storage=: the server answered 403 Forbidden: InvalidAccessKeyId.. Give credentials"
        )
        with pytest.raises(StorageError, match=message):
            open_source("s3://b/k", storage=make(server, key="mine", secret="x"))


def test_an_expired_token_is_a_refusal(monkeypatch):
    """S3 answers 400 to it; another identity may be let in."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "old")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "old")
    body = b"<Error><Code>ExpiredToken</Code></Error>"
    with RangeServer({"b/k": DATA}, mode="status", status=400, times=1, body=body) as server:
        assert open_source("s3://b/k", storage=make(server)).read(0, 2) == DATA[:2]
        assert [("authorization" in entry[3]) for entry in server.log] == [True, False]


def test_the_region_is_found_out(monkeypatch):
    """S3 answers a redirect without a place, and tells the region in a header."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with RangeServer({"b/k": DATA}, mode="other_region") as server:
        assert open_source("s3://b/k", storage=make(server, key="k", secret="s")).read(0, 2) == DATA[:2]
        assert "/eu-west-1/" in server.log[0][3]["authorization"]
        assert "/eu-north-1/" in server.log[-1][3]["authorization"]
        server.reset()
        open_source("s3://b/k", storage=make(server, key="k", secret="s"))
        assert server.n_requests == 1
        with pytest.raises(StorageError, match=r"as S3 does for a bucket of another region. Name its region: storage="):
            open_source("s3://b/k", storage=make(server))


def test_the_region_is_found_out_by_many_at_once(monkeypatch):
    """Who asked with the wrong one, while another found it out, asks again."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    keys = [f"b/k{i}" for i in range(8)]
    with RangeServer(dict.fromkeys(keys, DATA), mode="other_region", latency=0.05) as server:
        storage = Storage.from_option(make(server, key="k", secret="s"))
        with ThreadPoolExecutor(len(keys)) as pool:
            found = list(pool.map(lambda key: storage.source(f"s3://{key}").read(0, 2), keys))
    assert [bytes(x) for x in found] == [DATA[:2]] * len(keys)


def test_regions_without_end_are_not_tried(monkeypatch):
    """A server that names another region each time, or one that is none, gets few requests."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>%s</Region></Error>"
    names = itertools.cycle([b"a-1", b"b-2"])
    with RangeServer({}, mode="status", status=400) as server:

        def fault(path):
            server.body = body % next(names)

        server.fault = fault
        with pytest.raises(StorageError, match="as S3 does for a bucket of another region"):
            open_source("s3://b/k", storage=make(server, key="k", secret="s"))
        assert server.n_requests <= 4


def test_half_a_key():
    """Nobody is asked for the other half."""
    with pytest.raises(StorageError, match=r"'s3://b/k': secret_access_key is missing in storage=. Give both parts"):
        open_source("s3://b/k", storage={"s3://b": {"access_key_id": "k"}})


def test_options_nobody_knows(s3):
    """A misspelt option is named, not ignored."""
    with pytest.raises(StorageError, match=r"Configuration key: 'regoin' is not valid.*Check the options in storage="):
        open_source(PUBLIC, storage={"s3://bucket": {**s3.options, "regoin": "x"}})


def test_credentials_that_cannot_be_used(monkeypatch, tmp_path):
    """A missing account or credentials file is said for the identity it belongs to."""
    with pytest.raises(
        StorageError, match=r"anonymous: .*Account must be specified.*Give credentials that have access: .*account_name"
    ):
        open_source("az://container/key")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "nope.json"))
    with RangeServer({}, mode="status", status=401) as server:
        storage = {"gs://b": {"base_url": server.root, "allow_http": True}}
        with pytest.raises(StorageError, match=r"credentials \(GOOGLE_APPLICATION_CREDENTIALS\): .*; anonymous: "):
            open_source("gs://b/k", storage=storage)


def test_credentials_set_after_a_refusal_are_used(monkeypatch):
    """Who is refused sets keys and tries again, in the same process."""
    with RangeServer({"bkt/x.nc": b"x" * 100}, mode="refuse_anonymous") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.root.rstrip("/"))
        storage = Storage.from_option({"s3://bkt/": {"allow_http": True, "max_retries": 0, "region": "us-east-1"}})
        with pytest.raises(StorageError, match="anonymous"):
            storage.source("s3://bkt/x.nc")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        assert storage.source("s3://bkt/x.nc").size == 100


def test_a_bucket_that_ignores_ranges_is_fetched_whole():
    """As web servers are: some gateways answer with the whole object."""
    data = bytes(range(256)) * 100
    with RangeServer({"bkt/x.nc": data}, mode="ignore_ranges") as server:
        options = {"endpoint": server.root.rstrip("/"), "allow_http": True, "skip_signature": True, "max_retries": 0}
        source = open_source("s3://bkt/x.nc", storage={"s3://bkt/": options | {"region": "us-east-1"}})
        assert source.size == len(data)
        assert [bytes(x) for x in source.read_ranges([(0, 3), (300, 4)])] == [data[:3], data[300:304]]


@pytest.fixture
def listings(monkeypatch):
    """The listings that are asked of moto, as they come."""
    asked = []
    real = S3Response.list_objects_v2

    def counted(self):
        asked.append(self.path)
        return real(self)

    monkeypatch.setattr(S3Response, "list_objects_v2", counted)
    return asked


@pytest.mark.parametrize(("folder", "first"), [("many", "many/000000000100"), ("none", None)])
def test_the_first_of_many_keys_takes_one_request(s3, listings, folder, first):
    """The rest of the listing, two pages here, is not asked for."""
    backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for n in range(2500):
        backend.put_object("bucket", f"first/many/{n + 100:012}", b"")
    target = Storage.from_option({"s3://bucket": s3.options}).target("s3://bucket/first")
    assert target.first(folder) == first
    assert len(listings) == 1


@pytest.mark.parametrize("n", [3, 50, 120])
def test_a_bucket_that_does_not_sort_is_listed_whole(monkeypatch, n):
    """Directory buckets of S3 give keys in no order; the first is the least all the same."""
    keys = [{"path": f"x/{i * 7 % n:03}"} for i in range(n)]

    def unsorted(store, prefix, *, chunk_size):
        return iter([keys[i : i + chunk_size] for i in range(0, n, chunk_size)])

    monkeypatch.setattr("virtualstack.storage.remote.obstore.list", unsorted)
    assert Storage.from_option({"s3://b": {"region": "r"}}).target("s3://b").first("x") == "x/000"

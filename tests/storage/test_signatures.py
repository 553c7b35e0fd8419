"""Signed URLs: the signature opens the file, is not kept in references, and `storage=` signs when these are read."""

import json

import pytest
import xarray as xr

import virtualstack as vs
from tests.servers import RangeServer
from tests.vstack.archive import as_read, days, join
from virtualstack.errors import AccessDeniedError, StorageError
from virtualstack.kerchunk import writer as kerchunk_writer
from virtualstack.storage.signatures import split_signature

SIGNED = {
    "https://b.s3.amazonaws.com/a.nc": "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=A%2F20240101%2Fs3&"
    "X-Amz-Date=20240101T000000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host&X-Amz-Signature=0f",
    "https://b.s3.amazonaws.com/b.nc?versionId=3": "AWSAccessKeyId=A&Expires=1&Signature=s%3D",
    "https://x.blob.core.windows.net/c/a.nc": "sv=2022-11-02&ss=b&srt=o&sp=r&se=2025-01-01&spr=https&sig=x%3D",
    "https://storage.googleapis.com/b/a.nc": "X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Expires=60&X-Goog-Signature=0f",
    "https://d1.cloudfront.net/a.nc?v=2": "Policy=e&Signature=s&Key-Pair-Id=K",
}


@pytest.mark.parametrize("plain", SIGNED)
def test_the_signature_of_each_cloud_is_found(plain):
    """Other parameters, such as a version, stay in the URL."""
    query = SIGNED[plain]
    assert split_signature(f"{plain}{'&' if '?' in plain else '?'}{query}") == (plain, query)
    assert split_signature(plain) == (plain, "")


@pytest.fixture
def server(tmp_path):
    """A server that refuses requests without a signature."""
    days(tmp_path / "data", 2)
    with RangeServer(tmp_path / "data", mode="refuse_anonymous") as made:
        yield made


def test_signed_urls_are_read_and_their_references_are_not_signed(server, tmp_path):
    """Values are read at once; what is written has no signature, and one warning says so."""
    urls = [server.url(f"{name}?sig=secret") for name in ("000.nc", "001.nc")]
    with pytest.warns(UserWarning, match="the signatures of 2 URLs are not kept in references") as caught:
        vds = join(urls)
    assert len(caught) == 1
    assert "secret" not in str(caught[0].message)
    expected = as_read(sorted((tmp_path / "data").iterdir()))
    xr.testing.assert_equal(vds.virtual.open().load(), expected)
    refs = vds.virtual.to_kerchunk()
    assert "secret" not in json.dumps(refs)
    assert server.url("000.nc") in json.dumps(refs)
    vds.virtual.to_vstack(tmp_path / "x.vstack")
    assert _remedies(tmp_path / "x.vstack", server) == ["give credentials that have access:", "sign its URLs:"]


@pytest.mark.parametrize("target", ["x.json", "x.parq", "x.vstack", "x.icechunk", None])
@pytest.mark.parametrize("source", ["dict", "old.parq"])
def test_signed_urls_in_references_are_not_written_again(server, tmp_path, monkeypatch, source, target):
    """References of other software may have signatures: they are read with them, and written without them."""
    monkeypatch.setattr(kerchunk_writer, "named_in", lambda place, url: url)
    with pytest.warns(UserWarning, match="2 URLs"):
        references = join([server.url(f"{name}?sig=secret") for name in ("000.nc", "001.nc")]).virtual.to_kerchunk()
    text = json.dumps(references).replace(".nc", ".nc?sig=secret")
    references = json.loads(text)
    if source == "old.parq":
        vs.open_virtual_dataset(references).virtual.to_kerchunk(tmp_path / source)
    monkeypatch.undo()
    opened = references if source == "dict" else tmp_path / source
    vds = vs.open_virtual_dataset(opened)
    xr.testing.assert_equal(vds.virtual.open().load(), as_read(sorted((tmp_path / "data").iterdir())))
    write = {"x.vstack": vds.virtual.to_vstack, "x.icechunk": vds.virtual.to_icechunk}
    to = None if target is None else tmp_path / target
    with pytest.warns(UserWarning, match="signatures of URLs at .* are not kept in references") as caught:
        made = write.get(target, vds.virtual.to_kerchunk)(to)
    assert {"secret" in str(x.message) for x in caught} == {False}
    found = vs.open_virtual_dataset(made if target is None else to).virtual.locations
    assert sorted(found["url"]) == [server.url("000.nc"), server.url("001.nc")]


def _remedies(references, server, **options):
    with pytest.raises(AccessDeniedError) as refused:
        xr.load_dataset(references, engine="virtualstack", allow=server.root, **options)
    assert "secret" not in str(refused.value)
    return [x.words for x in refused.value.remedies]


def sign(url):
    return f"sig=secret{len(url)}"


@pytest.mark.parametrize("query", ["sig=other", "?sig=other", sign])
def test_storage_signs_when_references_are_read(server, tmp_path, query):
    """By text for all URLs of a host, or by a function of the URL."""
    with pytest.warns(UserWarning, match="are not kept"):
        join([server.url(f"{name}?sig=secret") for name in ("000.nc", "001.nc")]).virtual.to_vstack(
            tmp_path / "x.vstack"
        )
    options = {server.root: {"query": query}}
    found = xr.load_dataset(tmp_path / "x.vstack", engine="virtualstack", storage=options, allow=server.root)
    xr.testing.assert_equal(found, as_read(sorted((tmp_path / "data").iterdir())))
    assert vs.Repository.open(tmp_path / "x.vstack", storage=options, allow=server.root).verify(sample=1.0).is_good
    server.mode = "refuse_signed"
    assert _remedies(tmp_path / "x.vstack", server, storage=options) == ["sign its URLs:"]


def test_another_query_is_refused(server):
    """Only text, or a function that returns text."""
    with pytest.raises(StorageError, match=r"query= of storage= for .* is 3, and no text"):
        vs.open_virtual_dataset(server.url("000.nc"), storage={server.root: {"query": 3}})

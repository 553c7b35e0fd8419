"""Absolute URLs: made of paths, split, joined."""

import os
from pathlib import Path

import pytest

from virtualstack.errors import StorageError
from virtualstack.location import Location, absolute_url, join_url, local_path, split_url


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/data/a.nc", "file:///data/a.nc"),
        ("/data/../a.nc", "file:///a.nc"),
        ("/data/a b#c%20.nc", "file:///data/a b#c%20.nc"),
        (Path("/data/a.nc"), "file:///data/a.nc"),
        (b"/data/a.nc", "file:///data/a.nc"),
        ("file:///data/a.nc", "file:///data/a.nc"),
        ("local:///data/a.nc", "file:///data/a.nc"),
        ("s3://bucket/a//b.nc", "s3://bucket/a//b.nc"),
        ("S3://Bucket/A.nc", "s3://Bucket/A.nc"),
        ("http://host/a.nc?b=c", "http://host/a.nc?b=c"),
    ],
)
def test_a_path_or_url_becomes_an_absolute_url(path, url):
    """Local paths get the scheme file; URLs keep their text."""
    assert absolute_url(path) == url


def test_a_relative_path_is_one_of_the_working_directory(tmp_path, monkeypatch):
    """No file needs to be there."""
    monkeypatch.chdir(tmp_path)
    assert absolute_url("a.nc") == "file://" + os.path.join(os.getcwd(), "a.nc")


def test_a_tilde_is_the_home_directory(monkeypatch):
    """As in a shell."""
    monkeypatch.setenv("HOME", "/home/someone")
    assert absolute_url("~/a.nc") == "file:///home/someone/a.nc"


def test_a_url_splits_into_root_and_key():
    """The root is what one store serves."""
    assert split_url("HTTP://host:80/a/b.nc") == ("http://host:80/", "a/b.nc")
    assert split_url("s3://bucket") == ("s3://bucket/", "")


def test_a_path_does_not_split():
    """It has to be made absolute first."""
    with pytest.raises(StorageError, match=r"'a\.nc' is not an absolute URL: it has no scheme"):
        split_url("a.nc")


def test_a_local_path_is_found_back():
    """Only file URLs have one."""
    assert local_path(absolute_url("/data/a b.nc")) == Path("/data/a b.nc")
    assert local_path("s3://bucket/a.nc") is None


@pytest.mark.parametrize(
    ("base", "relative", "url"),
    [
        ("s3://bucket/refs/", "./a.nc", "s3://bucket/refs/a.nc"),
        ("s3://bucket/refs", "../../bucket2/a.nc", None),
        ("file:///refs", "/data/a.nc", "file:///data/a.nc"),
        ("file:///", "a.nc", "file:///a.nc"),
    ],
)
def test_a_relative_location_is_resolved_in_its_folder(base, relative, url):
    """It never climbs above the root."""
    if url is None:
        with pytest.raises(StorageError, match=r"'../../bucket2/a.nc' climbs above the root of 's3://bucket/refs/?'"):
            join_url(base, relative)
    else:
        assert join_url(base, relative) == url


def test_a_location_compares_by_all_that_identifies_it():
    """Another size is another version of the source."""
    assert Location("file:///a", size=1) == Location("file:///a", size=1)
    assert Location("file:///a", size=1) != Location("file:///a", size=2)

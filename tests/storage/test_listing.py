"""Patterns of paths and URLs: what is there, in natural order, or an error."""

import glob
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import absolute_url
from virtualstack.storage.folders import path_expression
from virtualstack.storage.listing import find_urls, is_pattern, natural_key

NAMES = ["a.nc", "b1.nc", "b2.nc", "b10.nc", "b10.txt", "d/b3.nc", "d/e/b4.nc", "d.parq/x", "[1].nc", "d/1].nc"]
NAMES += [".hidden.nc", "d/.h/b.nc", "s/zarr.json", "s/c/0", "v1.2/x.nc", "d/z.zarr/v/0"]
PATTERNS = [
    "*.nc", "b?.nc", "b[0-9]*.nc", "b[!1].nc", "**/*.nc", "**/b*.nc", "d/**/*.nc", "*/b*.nc", "**", "*",
    "d/*[]].nc", "b[z-a1]*.nc", "[!z-a]*.nc", "**/.*.nc", "*/**/b*", "**/d/**/b*.nc", "d/**", "a**c", "v*/*",
]  # fmt: skip


def by_python(pattern):
    return glob.glob(str(pattern), recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern


def expected(folder, pattern):
    """Files and folders that are stores, whose own files do not count beside them."""
    found = [Path(x) for x in by_python(folder / pattern)]
    stores = [x for x in found if x.is_dir() and (x.suffix in (".parq", ".zarr") or (x / "zarr.json").exists())]
    return [str(x) for x in found if (x.is_file() or x in stores) and not set(stores) & set(x.parents)]


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(b"x")
    return tmp_path


@pytest.mark.parametrize("pattern", PATTERNS)
def test_local_patterns_are_those_of_python(folder, pattern):
    found = find_urls([folder / pattern])
    assert found == sorted(map(absolute_url, expected(folder, pattern)), key=natural_key)
    assert found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_remote_patterns_match_as_local_ones_do(folder, s3, pattern):
    """The same names in a bucket; there are no folders but those that are stores."""
    for name in NAMES:
        s3.put(f"list/{name}", b"x")
    found = find_urls([f"s3://bucket/list/{pattern}"], storage={"s3://bucket/": s3.options})
    local = [x.removeprefix(str(folder)) for x in expected(folder, pattern)]
    assert [x.removeprefix("s3://bucket/list") for x in found] == sorted(local, key=natural_key)


@pytest.mark.parametrize(
    ("pattern", "key", "rest"),
    [
        ("*a" * 20 + "*z", "a" * 2000, "z"),
        ("**/" * 20 + "zz*.nc", "/".join("abcdefghij" * 20), "/zz1.nc"),
        ("**/*a/" * 10 + "**/z", "a/" * 500 + "y", "/z"),
        ("*?" * 20 + "z", "b" * 2000, "z"),
    ],
)
def test_no_pattern_takes_exponential_time(pattern, key, rest):
    """Eight stars took seconds, and each one more four times as long."""
    assert path_expression(pattern).fullmatch(key) is None
    assert path_expression(pattern).fullmatch(key + rest) is not None


def test_a_local_url_may_be_percent_encoded(folder):
    """As pathlib writes it; a percent sign of a name is kept where that file is there."""
    for name in ("a b.nc", "a%20b.nc", "[2] ü.nc"):
        xr.Dataset({"v": len(name)}).to_netcdf(folder / name, engine="netcdf4")
        for url in ((folder / name).as_uri(), f"file://{folder}/{name}"):
            if url.endswith("/a%20b.nc"):
                continue
            assert find_urls([url]) == [absolute_url(folder / name)]
            assert vs.open_virtual_dataset(url).virtual.open().v == len(name)
    assert find_urls([f"file://{folder}/a%20b.nc"]) == [absolute_url(folder / "a%20b.nc")]
    (folder / "of many").mkdir()
    (folder / "of many" / "1.nc").write_bytes(b"x")
    assert find_urls([(folder / "of many").as_uri() + "/*.nc"]) == [absolute_url(folder / "of many" / "1.nc")]


def test_what_is_there_by_its_name_is_no_pattern(folder):
    assert find_urls([folder / "[1].nc"]) == [absolute_url(folder / "[1].nc")]
    assert not is_pattern(folder / "[1].nc")
    assert find_urls(["absent.nc", "https://example.org/a?b=[*]"])[1] == "https://example.org/a?b=[*]"


def test_nothing_that_matches_is_an_error(folder, s3):
    with pytest.raises(SourceNotFoundError, match=r"nothing matches '.*x\*'; check the folder and the pattern"):
        find_urls([folder / "x*"])
    with pytest.raises(SourceNotFoundError, match="nothing matches"):
        find_urls(["s3://bucket/list/none*"], storage={"s3://bucket/": s3.options})


def test_what_cannot_be_listed_is_an_error():
    with pytest.raises(
        StorageError, match=r"a web server cannot list its files, so a pattern cannot be matched. Give a list"
    ):
        find_urls(["https://example.org/*.nc"])
    with pytest.raises(StorageError, match="the name of a bucket cannot be a pattern"):
        find_urls(["s3://b*/x.nc"])


def test_a_pattern_in_a_bucket_is_opened(s3, tmp_path):
    """From listing to values."""
    for i in range(3):
        path = tmp_path / f"{i}.nc"
        xr.Dataset({"v": (("t", "x"), np.full((2, 3), i))}, {"t": [2 * i, 2 * i + 1]}).to_netcdf(path, engine="netcdf4")
        s3.put(f"listed/{i}.nc", path.read_bytes())
    vds = vs.open_virtual_mfdataset("s3://bucket/listed/*.nc", storage={"s3://bucket/": s3.options})
    assert vds.virtual.open()["v"].values[:, 0].tolist() == [0, 0, 1, 1, 2, 2]

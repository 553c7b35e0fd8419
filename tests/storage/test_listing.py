"""Patterns of paths and URLs: what is there, in natural order, or an error."""

import glob
import re
from itertools import product
from pathlib import Path

import moto.s3.models
import numpy as np
import pytest
import s3fs
import xarray as xr

import virtualstack as vs
from tests.conftest import BUCKET
from tests.servers import RangeServer
from virtualstack.errors import SourceNotFoundError, StorageError
from virtualstack.location import absolute_url
from virtualstack.storage import MemoryTarget
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
    target = MemoryTarget(f"memory://slow/{abs(hash(pattern))}/")
    target.put(key, b"x")
    with pytest.raises(SourceNotFoundError):
        find_urls([target.url + pattern])
    target.put(key + rest, b"x")
    assert find_urls([target.url + pattern]) == [target.url + key + rest]


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
    with pytest.raises(SourceNotFoundError, match=r"nothing matches '.*x\*'\. Check the folder and the pattern"):
        find_urls([folder / "x*"])
    with pytest.raises(SourceNotFoundError, match="nothing matches"):
        find_urls(["s3://bucket/list/none*"], storage={"s3://bucket/": s3.options})


def test_what_cannot_be_listed_is_an_error():
    with pytest.raises(StorageError, match=r"a web server cannot list its files reliably"):
        find_urls(["http://127.0.0.1:9/*.nc"])
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


@pytest.fixture
def listed(monkeypatch):
    """The keys and folders in the answers of a bucket to each listing."""
    answers = []
    before = moto.s3.models.S3Backend.list_objects_v2

    def note(*args, **options):
        found = before(*args, **options)
        answers.append([x if isinstance(x, str) else x.name for x in found[0]])
        return found

    monkeypatch.setattr(moto.s3.models.S3Backend, "list_objects_v2", note)
    return answers


def test_only_folders_that_may_match_are_listed(s3, listed):
    """All keys of the bucket were listed, whatever the pattern said behind its first wildcard."""
    backend = moto.s3.models.s3_backends["123456789012"]["aws"]
    for day in range(12):
        for i in range(300):
            backend.put_object(BUCKET, f"noaa/hrrr.202501{day:02}/alaska/{i}.nc", b"")
        for name in ("conus/sfc.nc", "conus/prs.nc"):
            backend.put_object(BUCKET, f"noaa/hrrr.202501{day:02}/{name}", b"")
    storage = {"s3://bucket/": s3.options}
    found = find_urls(["s3://bucket/noaa/hrrr.2025010*/conus/sfc.nc"], storage=storage)
    assert found == [f"s3://bucket/noaa/hrrr.202501{day:02}/conus/sfc.nc" for day in range(10)]
    assert len(listed) == 2 + 10
    assert not any("/alaska/" in key for keys in listed for key in keys)
    listed.clear()
    assert find_urls(["s3://bucket/noaa/hrrr.2025010?/con*/s*.nc"], storage=storage) == found
    assert [len(keys) for keys in listed] == [0, 12] + 10 * [2] + 10 * [2]
    listed.clear()
    assert len(find_urls(["s3://bucket/noaa/hrrr.2025011*/conus/**/*.nc"], storage=storage)) == 4
    assert sorted(len(keys) for keys in listed) == [0, 2, 2, 12]
    listed.clear()
    with pytest.raises(SourceNotFoundError, match="nothing matches"):
        find_urls(["s3://bucket/noaa/none*/conus/sfc.nc"], storage=storage)
    assert len(listed) == 2


ODD = ["a[1].nc", "x?.nc", "s*.nc", "per%20cent.nc", "[!a].nc", "]{~}.nc"]


@pytest.fixture
def odd(tmp_path, s3):
    """Files with odd names, beside others that the names match as patterns."""
    (tmp_path / "odd").mkdir()
    for i, name in enumerate([*ODD, "a1.nc", "xy.nc", "sa.nc"]):
        xr.Dataset({"v": ("t", [i])}, {"t": [i]}).to_netcdf(tmp_path / "odd" / name, engine="netcdf4")
        s3.put(f"odd/{name}", (tmp_path / "odd" / name).read_bytes())
    return {"local": f"{tmp_path}/odd", "s3": "s3://bucket/odd"}


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_name_that_exists_is_no_pattern(odd, s3, place):
    """In every function that opens files."""
    storage = {"s3://bucket/": s3.options}
    for i, name in enumerate(ODD):
        url = f"{odd[place]}/{name}"
        assert find_urls([url], storage=storage) == [absolute_url(url)]
        assert vs.open_virtual_dataset(url, storage=storage).t.item() == i
        assert vs.open_virtual_mfdataset([url], storage=storage).t.item() == i
        assert xr.open_dataset(url, engine="virtualstack", storage=storage).v.item() == i
    for pattern in (f"{odd[place]}/?1.nc", f"{odd[place]}/*.nc"):
        with pytest.raises(SourceNotFoundError, match="is a pattern, which may match many files"):
            xr.open_dataset(pattern, engine="virtualstack", storage=storage)
        with pytest.raises(SourceNotFoundError, match="is a pattern, which may match many files"):
            vs.open_virtual_dataset(pattern, storage=storage)


@pytest.mark.parametrize("place", ["local", "s3"])
def test_what_a_listing_names_is_no_pattern(odd, s3, listed, place):
    """Each name of a listing would be a pattern that matches its neighbours."""
    storage = {"s3://bucket/": s3.options}
    joined = vs.open_virtual_mfdataset(f"{odd[place]}/*.nc", storage=storage)
    assert joined.virtual.open().v.values.tolist() == list(range(9))
    assert len(listed) <= 2
    listed.clear()
    names = [f"{odd[place]}/{name}" for name in ODD]
    assert vs.open_virtual_mfdataset(names, storage=storage).virtual.open().v.values.tolist() == list(range(6))
    assert len(vs.survey(names, storage=storage).table) == 6
    assert len(listed) <= 1 + 6


def test_a_name_opens_where_nothing_may_be_listed(tmp_path):
    """As that of a file on a web server, or in a bucket whose content is a secret."""
    xr.Dataset({"v": ("t", [7])}, {"t": [7]}).to_netcdf(tmp_path / "a*1.nc", engine="netcdf4")
    with RangeServer({"b/a*1.nc": (tmp_path / "a*1.nc").read_bytes()}, mode="secret") as server:
        storage = {"s3://b/": {"endpoint": server.root.rstrip("/"), "skip_signature": True}}
        for url in ("s3://b/a*1.nc", server.url("b/a*1.nc")):
            assert vs.open_virtual_dataset(url, storage=storage).t.item() == 7
        for url in ("s3://b/*.nc", server.url("b/*.nc")):
            with pytest.raises(StorageError, match=r"access denied|cannot list its files"):
                find_urls([url], storage=storage)


@pytest.mark.parametrize("pattern", ["odd/*.nc", "o?d/[a-s]*", "odd/**/*.nc", "od*/a[1].nc"])
def test_the_filesystem_of_s3_finds_the_same(odd, s3, pattern):
    """Of s3fs, whose own glob is the oracle, and as storage= of ours."""
    secrets = {"key": "key", "secret": "secret", "client_kwargs": {"endpoint_url": s3.endpoint}}
    filesystem = s3fs.S3FileSystem(**secrets, skip_instance_cache=True)
    expected = [f"s3://{path}" for path in filesystem.glob(f"bucket/{pattern}") if not filesystem.isdir(path)]
    for storage in ({"s3://bucket/": s3.options}, {"s3://bucket/": filesystem}):
        found = find_urls([f"s3://bucket/{pattern}"], storage=storage)
        assert found == sorted(expected, key=natural_key)


def test_keys_that_obstore_has_not_open_through_s3fs(s3, odd, tmp_path):
    """Keys with an empty segment, or with a dot as a segment."""
    secrets = {"key": "key", "secret": "secret", "client_kwargs": {"endpoint_url": s3.endpoint}}
    filesystem = s3fs.S3FileSystem(**secrets, skip_instance_cache=True)
    for key in ("empty//a.nc", "dot/./a.nc"):
        s3.put(key, (tmp_path / "odd" / "a1.nc").read_bytes())
        url = f"s3://bucket/{key}"
        with pytest.raises(StorageError, match="obstore has no such keys: give an fsspec filesystem in storage="):
            vs.open_virtual_dataset(url, storage={"s3://bucket/": s3.options})
        with pytest.raises(StorageError, match="obstore has no such keys: give an fsspec filesystem in storage="):
            find_urls([f"s3://bucket/{key.partition('/')[0]}/*"], storage={"s3://bucket/": s3.options})
        assert find_urls([url], storage={"s3://bucket/": filesystem}) == [url]
        assert vs.open_virtual_dataset(url, storage={"s3://bucket/": filesystem}).virtual.open().v.item() == 6
        s3.client.delete_object(Bucket=BUCKET, Key=key)


def test_numbers_in_names_are_ordered_by_their_value():
    """Names as (text, number, digits, text, ...) is what the keys stand for; equal numbers by their digits."""

    def parts(name):
        return [(0, int(x), x) if i % 2 else (1, 0, x) for i, x in enumerate(re.split("([0-9]+)", name))]

    names = ["".join(x) for n in range(5) for x in product("019a-", repeat=n)] + ["a" + "9" * 30, "a1" + "0" * 30]
    assert sorted(names, key=natural_key) == sorted(names, key=parts)

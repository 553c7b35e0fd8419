"""Local folders: what may not be read, or is not a path, is an error that names it."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from virtualstack.errors import SourceNotFoundError, StorageError, VirtualStackError
from virtualstack.location import absolute_url
from virtualstack.storage import LocalTarget
from virtualstack.storage.listing import find_urls, found_url, is_pattern

_ASK = """
import os, sys
from virtualstack.storage.listing import find_urls
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for pattern in sys.argv[1:]:
    try:
        print(*(url.rsplit("/", 2)[-2] for url in find_urls([pattern])))
    except Exception as error:
        print(type(error).__name__, error)
"""

REFUSED = {
    "2002/*.nc": "2002",
    "2003/*.nc": "2003",
    "*/*.nc": "200[23]",
    "**/*.nc": "200[23]",
    "**": "200[23]",
    "*/a.nc": "2003/a.nc",
    "200[13]/a.nc": "2003/a.nc",
    "*": "2003/.zgroup",
}
"""Patterns, and the folder that is named."""

FOUND = {"200[12]/a.nc": "2001 2002", "*1/*.nc": "2001"}


@pytest.fixture(scope="module")
def years():
    """Three folders with a file each: one may be read, one only entered, one neither."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for name in ("2001", "2002", "2003"):
            (top / name).mkdir()
            (top / name / "a.nc").write_bytes(b"x")
        top.chmod(0o755)
        (top / "2002").chmod(0o311)
        (top / "2003").chmod(0o000)
        yield top
        for name in ("2002", "2003"):
            (top / name).chmod(0o755)


@pytest.fixture(scope="module")
def said_to_nobody(years):
    """What a process without rights is told of each pattern: one process, for they take a second to start."""
    call = [sys.executable, "-c", _ASK, *(str(years / pattern) for pattern in (*REFUSED, *FOUND))]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(zip((*REFUSED, *FOUND), said, strict=True))


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_folder_that_may_not_be_read_is_an_error(said_to_nobody, pattern):
    """Its files would be missing in what is joined, and nothing would say so."""
    message = rf"StorageError '.*/{REFUSED[pattern]}' cannot be listed: Permission denied. Give a pattern"
    assert re.match(message, said_to_nobody[pattern])


def test_what_may_be_entered_is_found_by_its_name(said_to_nobody):
    assert {pattern: said_to_nobody[pattern] for pattern in FOUND} == FOUND


@pytest.mark.parametrize("pattern", ["a" * 5000 + "*.nc", "*/" + "a" * 5000, "a\0*.nc", "*/a\0b", "a\0/**", "\udcff*"])
def test_a_pattern_that_is_no_path_is_typed(tmp_path, pattern):
    (tmp_path / "d").mkdir()
    with pytest.raises(VirtualStackError):
        find_urls([f"{tmp_path}/{pattern}"])


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b"])
def test_a_name_that_is_no_path_is_not_there(name):
    """Opening it says why."""
    assert found_url(f"file:///%20{name}") == f"file:///%20{name}"
    if "\0" in name:
        with pytest.raises(StorageError, match="has a NUL"):
            is_pattern(f"[{name}")
    else:
        assert is_pattern(f"[{name}")


def test_a_folder_within_itself_is_entered_once(tmp_path):
    """Two links to their own folder were two to the power of forty folders."""
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "d" / "e" / "a.nc").write_bytes(b"x")
    for name in ("one", "two"):
        (tmp_path / "d" / name).symlink_to(tmp_path / "d")
        (tmp_path / "d" / "e" / name).symlink_to(tmp_path)
    assert find_urls([tmp_path / "**" / "*.nc"]) == [absolute_url(tmp_path / "d" / "e" / "a.nc")]


def test_links_that_make_endless_ways_are_refused(tmp_path):
    """Twenty folders with two links to the next one each are a million ways to the last."""
    for i in range(20):
        (tmp_path / f"{i}").mkdir()
        for name in ("one", "two"):
            (tmp_path / f"{i}" / name).symlink_to(tmp_path / f"{i + 1}")
    (tmp_path / "20").mkdir()
    with pytest.raises(StorageError, match="on more than 1000 paths"):
        find_urls([tmp_path / "**" / "*.nc"])
    with pytest.raises(StorageError, match="on more than 1000 paths"):
        LocalTarget(absolute_url(tmp_path)).contents()


def test_links_are_followed_and_one_to_nothing_is_found(tmp_path):
    """That it is broken, opening it says."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a.nc").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "d")
    (tmp_path / "d" / "b.nc").symlink_to("none")
    (tmp_path / "loop.nc").symlink_to("loop.nc")
    names = ["d/a.nc", "d/b.nc", "link/a.nc", "link/b.nc", "loop.nc"]
    assert find_urls([tmp_path / "**/*.nc"]) == [absolute_url(tmp_path / name) for name in names]
    assert find_urls([tmp_path / "*/b.nc"]) == [absolute_url(tmp_path / name) for name in ("d/b.nc", "link/b.nc")]
    for pattern in ("loop.nc/*", "d/a.nc/*", "d/a.nc/**", "*/a.nc/x", "none/**"):
        with pytest.raises(SourceNotFoundError, match="nothing matches"):
            find_urls([tmp_path / pattern])

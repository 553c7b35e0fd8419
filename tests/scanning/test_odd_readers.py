"""Readers of others that do not do as they should: their files are named, and nothing old is taken for new."""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from virtualstack.errors import ReaderError
from virtualstack.manifests import ManifestGroup, inline_array


@dataclass(frozen=True)
class Nothing:
    name: ClassVar[str] = "nothing"

    def read(self, url, storage, options):
        return None


@dataclass(frozen=True)
class Broken:
    name: ClassVar[str] = "broken"

    def read(self, url, storage, options):
        return url.attributes


@dataclass(frozen=True)
class Hidden:
    """Its option does not show."""

    number: int = field(default=0, repr=False)
    name: ClassVar[str] = "hidden"

    def read(self, url, storage, options):
        storage.source(url)
        value = inline_array(np.array(self.number), name="n", dims=(), attributes={})
        return ManifestGroup(arrays={"n": value}, url=url)


@dataclass(frozen=True)
class Unseen:
    """Opens files by its own means."""

    name: ClassVar[str] = "unseen"

    def read(self, url, storage, options):
        size = len(Path(url.removeprefix("file://")).read_bytes())
        return ManifestGroup(arrays={"n": inline_array(np.array(size), name="n", dims=(), attributes={})}, url=url)


def number(result):
    return int.from_bytes(result[0].arrays["n"].in_memory().inline, "little")


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "x.dat"
    path.write_bytes(b"0123456789")
    return path


def test_a_reader_that_gives_nothing_is_an_error(path):
    """Its file would be lost silently."""
    with pytest.raises(ReaderError, match="its reader returned a NoneType, not a ManifestGroup"):
        vs.scan([path], reader=Nothing())
    assert vs.scan([path], reader=Nothing(), on_error="skip").failures.error.tolist() == ["ReaderError"]


@pytest.mark.parametrize("way", [vs.open_virtual_dataset, partial(xr.open_dataset, engine="virtualstack")])
def test_an_error_of_a_reader_names_the_file_that_it_read(way, path):
    """One that is a bug does not name it by itself."""
    with pytest.raises(AttributeError) as caught:
        way(path, reader=Broken())
    assert caught.value.__notes__ == [f"while '{path.as_uri()}' was scanned"]


def test_options_that_do_not_show_count_for_the_cache(path, tmp_path):
    """Two readers that print alike are two."""
    cache = tmp_path / "cache"
    assert [number(vs.scan([path], reader=Hidden(n), cache=cache)) for n in (1, 2, 1)] == [1, 2, 1]


def test_what_a_reader_opens_by_its_own_means_is_not_cached(path, tmp_path):
    """Nobody would see that it has changed."""
    cache = tmp_path / "cache"
    assert number(vs.scan([path], reader=Unseen(), cache=cache)) == 10
    path.write_bytes(bytes(20))
    assert number(vs.scan([path], reader=Unseen(), cache=cache)) == 20


def test_one_path_is_no_list_of_letters(path):
    """As Python would have it."""
    for one in (str(path), path):
        with pytest.raises(TypeError, match=r"needs a list of URLs, not a single one. Pass \["):
            vs.scan(one)

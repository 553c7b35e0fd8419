"""xarray's own tests of netCDF backends, run on files that xarray wrote and ``engine="virtualstack"`` opens.

A test of theirs that is overridden here differs on purpose; its docstring says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
import xarray as xr
from packaging.version import Version
from xarray.tests import test_backends as suite

import virtualstack as vs

xr.set_options(warn_for_unclosed_files=False)  # which their tests set for the whole process

if Version(xr.__version__) < Version("2026.9"):
    pytest.skip("the tests of older versions of xarray are others", allow_module_level=True)

from xarray.tests.conftest import time_unit, use_dask  # noqa: E402, F401 - fixtures of tests that are inherited

pytestmark = pytest.mark.filterwarnings("ignore:.* has only coordinates, but groups below it have:UserWarning")


@pytest.fixture(autouse=True)
def open_with_virtualstack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open what their tests open with no engine in particular."""

    def open_dataset(path: Any, *, engine: str = "virtualstack", **options: Any) -> xr.Dataset:
        return xr.open_dataset(path, engine=engine, **options)

    monkeypatch.setattr(suite, "open_dataset", open_dataset)


class Ours:
    """Files are written by ``writer`` and opened by this package."""

    engine = "virtualstack"
    writer: str

    def save(self, dataset: xr.Dataset, path: str, **options: Any) -> Any:
        return dataset.to_netcdf(path, engine=self.writer, **options)

    def test_load_async(self) -> None:
        """The netCDF engines of xarray skip this test; here values load in other threads."""
        asyncio.run(suite.DatasetIOBase.test_load_async(self))


class OurFiles(Ours):
    @pytest.mark.parametrize(
        "name",
        ["preferred_chunks_is_present", "preferred_chunks_are_disk_chunk_sizes", "base_chunking_uses_disk_chunk_sizes"],
    )
    def test_stored_chunks(self, monkeypatch, name) -> None:
        """Preferred chunks are those of files with ``task_bytes=0``; without it they are merged."""
        plain = suite.open_dataset
        monkeypatch.setattr(suite, "open_dataset", lambda *path, **options: plain(*path, task_bytes=0, **options))
        getattr(super(), f"test_{name}")()

    test_preferred_chunks_is_present = None
    test_preferred_chunks_are_disk_chunk_sizes = None
    test_base_chunking_uses_disk_chunk_sizes = None

    def test_open_group(self) -> None:
        """A group that is not a string is a TypeError here, and a ValueError in xarray."""
        with pytest.raises(TypeError, match="not a path of a group"):
            super().test_open_group()

    @pytest.mark.parametrize("create_default_indexes", [True, False])
    def test_create_default_indexes(self, tmp_path, monkeypatch, create_default_indexes) -> None:
        """Their test writes with the engine that it reads with; this package reads alone."""
        to_netcdf = xr.Dataset.to_netcdf
        monkeypatch.setattr(xr.Dataset, "to_netcdf", lambda x, path, engine, mode: to_netcdf(x, path, mode=mode))
        super().test_create_default_indexes(tmp_path, create_default_indexes)

    @pytest.mark.xfail(raises=TypeError, reason="manifests have numbers, and no names of enumerations")
    def test_encoding_enum__no_fill_value(self, recwarn) -> None:
        super().test_encoding_enum__no_fill_value(recwarn)

    @pytest.mark.xfail(raises=TypeError, reason="manifests have numbers, and no names of enumerations")
    def test_encoding_enum__multiple_variable_with_enum(self) -> None:
        super().test_encoding_enum__multiple_variable_with_enum()


class TestFilesOfNetCDF4(OurFiles, suite.TestNetCDF4Data):
    writer = "netcdf4"

    @pytest.mark.parametrize("compression", [None, "zlib"])
    def test_compression_encoding(self, compression) -> None:
        """The encoding names filters that every netCDF library can write again, and no others."""
        super().test_compression_encoding(compression)

    @pytest.mark.xfail(raises=AssertionError, reason="bytes that are no UTF-8 are latin-1, so that none is lost")
    def test_byte_attrs(self, byte_attrs_dataset) -> None:
        super().test_byte_attrs(byte_attrs_dataset)

    def test_refresh_from_disk(self) -> None:
        """The engine of netCDF4 skips this test for a bug of its library."""
        suite.NetCDFBase.test_refresh_from_disk(self)

    def test_roundtrip_complex(self, monkeypatch) -> None:
        """Complex numbers need no argument, which is ``auto_complex`` in netCDF4."""
        opened = self.open
        monkeypatch.setattr(self, "open", lambda path, auto_complex: opened(path), raising=False)
        super().test_roundtrip_complex()


class TestFilesOfH5NetCDF(OurFiles, suite.TestH5NetCDFData):
    writer = "h5netcdf"

    @pytest.mark.xfail(raises=AssertionError, reason="h5netcdf warns when it writes, which they expect of their engine")
    def test_encoding_enum__no_fill_value(self, recwarn) -> None:
        super().test_encoding_enum__no_fill_value(recwarn)

    @pytest.mark.xfail(raises=KeyError, reason="the encoding names filters that every netCDF library can write again")
    def test_compression_encoding_h5py(self) -> None:
        super().test_compression_encoding_h5py()

    @pytest.mark.xfail(raises=KeyError, reason="the encoding names filters that every netCDF library can write again")
    def test_dump_encodings_h5py(self) -> None:
        super().test_dump_encodings_h5py()


class References(Ours):
    """Files are indexed, and their references are written and opened."""

    writer = "netcdf4"

    def write(self, dataset: xr.Dataset, path: str) -> str:
        raise NotImplementedError

    @contextlib.contextmanager
    def open(self, path: str, **options: Any) -> Iterator[xr.Dataset]:
        target = self.write(vs.open_virtual_dataset(os.fspath(path)), path)
        with xr.open_dataset(target, engine=self.engine, **options) as dataset:
            yield dataset

    test_write_store = None  # of the stores that xarray writes

    @pytest.mark.xfail(raises=AssertionError, reason="loaded times are encoded again, and xarray shortens their units")
    def test_roundtrip_cftime_datetime_data(self) -> None:
        super().test_roundtrip_cftime_datetime_data()

    @pytest.mark.xfail(raises=AssertionError, reason="loaded texts are stored as texts, and not as characters")
    def test_encoding_kwarg_fixed_width_string(self) -> None:
        super().test_encoding_kwarg_fixed_width_string()


class TestVStacks(References, suite.CFEncodedBase):
    def write(self, dataset: xr.Dataset, path: str) -> str:
        dataset.virtual.to_vstack(target := f"{path}.vstack", mode="w")
        return target


class TestKerchunkParquet(References, suite.CFEncodedBase):
    def write(self, dataset: xr.Dataset, path: str) -> str:
        dataset.virtual.to_kerchunk(target := f"{path}.parq")
        return target

    @pytest.mark.xfail(raises=AssertionError, reason="kerchunk has no place for unlimited dimensions")
    def test_encoding_unlimited_dims(self) -> None:
        super().test_encoding_unlimited_dims()

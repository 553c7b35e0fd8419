"""Stores in a bucket grow as those on a disk do."""

import numpy as np
import pytest
import xarray as xr

import virtualstack as vs
from tests.data.stores import load
from tests.vstack.growing import dataset, joined, write
from virtualstack.errors import ForbiddenLocationError


def test_a_store_on_s3_grows(tmp_path, s3_server):
    """Appended to, placed by labels, over a region, and with other values."""
    storage = {"s3://bucket": s3_server.options}
    url, wanted = "s3://bucket/grow/x.vstack", []

    def file(i, days):
        path = write(tmp_path / f"{i}.nc", dataset(days, seed=i))
        s3_server.put(f"grow/data/{i}.nc", (tmp_path / f"{i}.nc").read_bytes())
        wanted.append(xr.load_dataset(path))
        return vs.open_virtual_dataset(f"s3://bucket/grow/data/{i}.nc", storage=storage)

    file(0, [0, 1]).virtual.to_vstack(url, storage=storage)
    file(1, [5, 6]).virtual.to_vstack(url, storage=storage, append_dim="time")
    store = vs.Repository.open(url, storage=storage).update(file(2, [3, 4]), dim="time")
    whole = joined(wanted[0], wanted[2], wanted[1])
    xr.testing.assert_equal(load(url, storage=storage), whole)
    file(3, [3, 4]).virtual.to_vstack(url, storage=storage, region="auto")
    xr.testing.assert_equal(load(url, storage=storage), joined(wanted[0], wanted[3], wanted[1]))
    vs.Repository.open(url, storage=storage).write("t", {"time": 2, "lat": 1}, 7.0)
    assert bool((load(url, storage=storage)["t"][2, 1] == 7).all())
    np.testing.assert_array_equal(load(url, storage=storage)["t"][2, 0], wanted[3]["t"][0, 0])
    xr.testing.assert_equal(load(url, storage=storage, at=store.snapshot.number), whole)


def test_a_store_on_s3_of_local_files_grows(tmp_path, s3_server):
    """Whoever else writes to the bucket could have it name any file: what it may name has to be said."""
    storage, url = {"s3://bucket": s3_server.options}, "s3://bucket/of-files/x.vstack"
    paths = [write(tmp_path / f"{i}.nc", dataset([2 * i, 2 * i + 1], seed=i)) for i in range(4)]
    parts = [vs.open_virtual_dataset(path).virtual for path in paths]
    parts[0].to_vstack(url, storage=storage)
    with pytest.raises(ForbiddenLocationError, match="allow="):
        parts[1].to_vstack(url, storage=storage, append_dim="time")
    grow = {"storage": storage, "allow": [tmp_path]}
    parts[1].to_vstack(url, append_dim="time", **grow)
    parts[2].to_vstack(url, append_dim="time", **grow)
    parts[2].to_vstack(url, region="auto", **grow)
    xr.testing.assert_equal(load(url, **grow), joined(*map(xr.load_dataset, paths[:3])))
    parts[3].to_vstack(url, mode="w", **grow)
    xr.testing.assert_equal(load(url, **grow), xr.load_dataset(paths[3]))

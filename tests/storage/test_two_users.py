"""Two users in one process: a server gives each user other values, and nobody ever sees those of the other."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import virtualstack as vs
from tests.two_users import KINDS, USERS, serving_two_users
from virtualstack.errors import StorageError


@pytest.fixture(scope="module")
def root():
    with serving_two_users() as url:
        yield url


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_sees_the_values_of_the_other(root, kind):
    """Opened in turn in many threads, kept while others open the same URL, and pickled."""

    def use(n):
        name = ("ann", "bob")[n % 2]
        url, storage = KINDS[kind](root, name)
        vds = vs.open_virtual_dataset(url, storage=storage)
        again = pickle.loads(pickle.dumps(vds)) if n % 3 else vds
        return name, again, set(np.unique(again.virtual.open()["t"].values).tolist())

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(use, range(16)))
    assert all(values == {USERS[name]} for name, _, values in found)
    for name, vds, _ in reversed(found):
        assert set(np.unique(vds.virtual.load("t")["t"].values).tolist()) == {USERS[name]}


@pytest.mark.parametrize("kind", ["s3", "web"])
def test_a_stranger_gets_nothing_after_others_have_read(root, kind):
    url, storage = KINDS[kind](root, "ann")
    vs.open_virtual_dataset(url, storage=storage).virtual.open()["t"].load()
    options = {"endpoint": root} if kind == "s3" else {}
    with pytest.raises(StorageError, match="access denied"):
        vs.open_virtual_dataset(url, storage={next(iter(storage)): options})

"""Packages that are timed beside this one: whether they are installed, and how VirtualiZarr opens a file."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray


def needs(*names: str) -> list[pytest.MarkDecorator]:
    """Skip without packages of these names, and ignore the warnings that they give."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    reason = f"not installed: pip install {' '.join(missing)}"
    return [pytest.mark.skipif(bool(missing), reason=reason), pytest.mark.filterwarnings("ignore")]


def registry(url: str = "file:///") -> Any:
    """The stores by which VirtualiZarr reads local files, or the files of a folder of a web server."""
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import HTTPStore, LocalStore

    if url.startswith("file://"):
        return ObjectStoreRegistry({"file://": LocalStore()})
    root = url.rpartition("/")[0]
    return ObjectStoreRegistry({root: HTTPStore.from_url(root, client_options={"allow_http": True})})


def virtualizarr(url: str, *, parser: str = "HDFParser", tree: bool = False, **options: Any) -> Any:
    """Open a file with VirtualiZarr; without loading, unless options say so."""
    module, parsers = importlib.import_module("virtualizarr"), importlib.import_module("virtualizarr.parsers")
    opener = module.open_virtual_datatree if tree else module.open_virtual_dataset
    options = ({} if tree else {"loadable_variables": []}) | options
    return opener(url=url, parser=getattr(parsers, parser)(), registry=registry(url), **options)


def virtualizarr_array(
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    urls: NDArray[Any],
    offsets: NDArray[Any],
    lengths: NDArray[Any],
    *,
    codecs: Sequence[dict[str, Any]] = (),
    fill: float = 0.0,
) -> Any:
    """Make an array of float32 of VirtualiZarr; ``urls``, ``offsets`` and ``lengths`` have the shape of its grid."""
    from virtualizarr.manifests import ChunkManifest, ManifestArray
    from virtualizarr.manifests.utils import create_v3_array_metadata

    manifest = ChunkManifest.from_arrays(paths=urls, offsets=offsets.astype("u8"), lengths=lengths.astype("u8"))
    metadata = create_v3_array_metadata(
        shape=shape, data_type=np.dtype("f4"), chunk_shape=chunks, fill_value=fill, codecs=list(codecs)
    )
    return ManifestArray(metadata=metadata, chunkmanifest=manifest)

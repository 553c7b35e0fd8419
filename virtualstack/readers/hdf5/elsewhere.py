"""Virtual datasets, whose values lie in other datasets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import h5py

from virtualstack.location import local_path
from virtualstack.readers.hdf5.faults import LibraryError, library_errors

__all__ = ["missing_source"]


def missing_source(dataset: h5py.Dataset, url: str, /) -> str | None:
    """Say which source of a virtual dataset is not there, as half a sentence; ``None`` where all are.

    The HDF5 library shows fill values in place of a source that it does not find.

    Parameters
    ----------
    dataset
        Virtual.
    url
        Of its file.
    """
    dcpl = dataset.id.get_create_plist()
    main = local_path(url)
    for i in range(dcpl.get_virtual_count()):
        name, inside = dcpl.get_virtual_filename(i), dcpl.get_virtual_dsetname(i)
        if "%b" in name or "%b" in inside:
            # Numbered sources (H5Pset_virtual): the dataset ends where they end, so none of them is missing.
            if main is None:
                return f"whose source '{name}' is another file, looked for beside local files only"
            continue
        if name == ".":
            if inside not in dataset.file:
                return f"whose source '{inside}' is not in the file"
        elif main is None:
            return f"whose source '{name}' is another file, looked for beside local files only"
        elif (reason := _missing_in_file(name, inside, main)) is not None:
            return reason
    return None


def _missing_in_file(name: str, inside: str, main: Path) -> str | None:
    found = next((path for path in _candidates(name, main) if path.is_file()), None)
    if found is None:
        return f"whose source file '{name}' is not there"
    try:
        with library_errors(), h5py.File(found, "r") as file:
            return None if inside in file else f"whose source '{inside}' is not in '{name}'"
    except LibraryError as error:
        return f"whose source file '{name}' cannot be opened ({error})"


def _candidates(name: str, main: Path) -> Iterator[Path]:
    """Give the places where the HDF5 library looks for a source file, in its order (H5F_prefix_open_file)."""
    prefix = os.environ.get("HDF5_VDS_PREFIX", "").replace("${ORIGIN}", str(main.parent))
    if Path(name).is_absolute():
        yield Path(name)
        name = Path(name).name
    if prefix:
        yield Path(prefix, name)
    yield main.parent / name
    yield Path(name)

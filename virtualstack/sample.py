"""Real files to try things on, by name: ``sample:nemo``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path

from virtualstack.errors import MissingDependencyError, SourceNotFoundError

__all__ = ["SAMPLES", "sample_files"]

SAMPLES: Mapping[str, str] = {"nemo": "NEMO/nemo_1m_*_grid-T.nc"}
"""Names of samples, and which files of the package iris-sample-data each one is."""

_PREFIX = "sample:"


def sample_files(text: str, /) -> tuple[str, ...] | None:
    """Give the local paths behind ``sample:<name>``, in order of their names; ``None`` where it is no sample.

    Raises
    ------
    SourceNotFoundError
        There is no such sample; the message lists those that there are.
    MissingDependencyError
        The package with the files is not installed.
    """
    if not text.startswith(_PREFIX):
        return None
    name = text.removeprefix(_PREFIX)
    if name not in SAMPLES:
        raise SourceNotFoundError(f"there is no sample '{name}'; there are {sorted(SAMPLES)}", url=text)
    try:
        package = importlib.import_module("iris_sample_data")
    except ModuleNotFoundError as error:
        raise MissingDependencyError(f"'{text}'", extra="sample", url=text) from error
    paths = sorted(Path(package.path).glob(SAMPLES[name]))
    if not paths:
        raise SourceNotFoundError(
            f"'{text}': the installed package iris-sample-data has no '{SAMPLES[name]}'; install another version of it",
            url=text,
        )
    return tuple(map(str, paths))

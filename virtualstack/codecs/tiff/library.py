"""imagecodecs, imported at the first chunk."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from virtualstack.codecs.tiff.settings import COMPRESSIONS
from virtualstack.errors import MissingDependencyError, UnsupportedFeatureError

__all__ = ["check_installed", "imagecodecs"]

_PACKAGE = "imagecodecs"


def check_installed() -> None:
    """Raise where the package is not installed, without importing it.

    Raises
    ------
    MissingDependencyError
        It is not.
    """
    if importlib.util.find_spec(_PACKAGE) is None:
        raise MissingDependencyError("decoding TIFF", extra="tiff")


@functools.cache
def imagecodecs(compression: int, /) -> Any:
    """Import the package.

    Raises
    ------
    UnsupportedFeatureError
        It was built without the compression.
    """
    module = importlib.import_module(_PACKAGE)
    name = COMPRESSIONS[compression]
    codec = getattr(module, {"ccittfax3": "CCITTFAX3"}.get(name, name.upper()), None)
    if name != "none" and codec is not None and not getattr(codec, "available", True):
        raise UnsupportedFeatureError(f"this build of imagecodecs has no {name} (TIFF compression)", feature=name)
    return module

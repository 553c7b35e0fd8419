"""Load packages that find credentials, which are optional."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from virtualstack.errors import StorageError


def is_installed(*names: str) -> bool:
    """Return whether packages are installed; they are not imported, but a package around another one is."""
    return all(importlib.util.find_spec(name) is not None for name in names)


def load(module: str, package: str, /) -> Any:
    """Import a module of a package, or of obstore that needs the package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise StorageError(f"{package} is needed for these credentials: pip install {package}") from error

"""``virtualstack config``: show the configuration file and the storage options that it sets."""

from __future__ import annotations

import argparse

from virtualstack.cli.options import AddCommand
from virtualstack.cli.output import show, table
from virtualstack.storage.standing import CONFIG_VARIABLE, config_path, standing_options

__all__ = ["add_commands"]


def add_commands(add: AddCommand, /) -> None:
    """Add the command ``config``."""
    add("config", _config, help="show the configuration file, and the storage options that it sets")


def _config(options: argparse.Namespace) -> int:
    path = config_path()
    state = "" if path.is_file() else f" (does not exist; {CONFIG_VARIABLE} names another file)"
    lines = [f"configuration file: {path}{state}"]
    rows = [(prefix, " ".join(sorted(found))) for prefix, found in sorted(standing_options().items())]
    if rows:  # names of options only: values may be secrets
        lines += table([("URL prefix", "options (values are not shown)"), *rows], right=())
    show("\n".join(lines))
    return 0

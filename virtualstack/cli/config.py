"""``virtualstack config``: show what is set once, and the credentials that are tried at a URL."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Mapping
from typing import cast

from virtualstack.cli.options import AddCommand
from virtualstack.cli.output import show, table
from virtualstack.location import absolute_url, outermost
from virtualstack.storage.registry import OBJECT_STORES, WEB, Storage
from virtualstack.storage.standing import CONFIG_VARIABLE, STORAGE_VARIABLE, config_path, standing_options

__all__ = ["add_commands"]


def add_commands(add: AddCommand, /) -> None:
    """Add the command ``config``."""
    command = add("config", _config, help="show standing storage options, and the credentials that are tried at a URL")
    command.add_argument("urls", metavar="URL", nargs="*", help="bucket, web server or file; no request is made")


def _config(options: argparse.Namespace) -> int:
    path = config_path()
    state = "" if path.is_file() else f" (does not exist; {CONFIG_VARIABLE} names another file)"
    state_of_variable = "is set" if os.environ.get(STORAGE_VARIABLE) else "is not set"
    lines = [f"configuration file: {path}{state}", f"environment variable: {STORAGE_VARIABLE} {state_of_variable}"]
    rows = [(prefix, " ".join(sorted(found))) for prefix, found in sorted(standing_options().items())]
    if rows:  # names of options only: values may be secrets
        lines += table([("URL prefix", "options (values are not shown)"), *rows], right=())
    for url in options.urls:
        names = _credentials(outermost(absolute_url(url)))
        lines.append(f"credentials for {url}{', in the order in which they are tried:' if names else ': none'}")
        lines += [f"  {name}" for name in names]
    show("\n".join(lines))
    return 0


def _credentials(url: str) -> tuple[str, ...]:
    """Return the names of the credentials that are tried at a URL, in order; local files need none."""
    prefix, backend = Storage.from_option().find(url)
    if url.partition("://")[0] not in (*OBJECT_STORES, *WEB) or not isinstance(backend, Mapping | None):
        return ()
    obstore = importlib.import_module("virtualstack.storage.obstore")  # takes long, and local files need none
    return cast(tuple[str, ...], obstore.connect(url, backend, prefix)[0].identities)

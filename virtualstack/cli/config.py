"""``virtualstack config``: show what is set once, and the credentials that are tried at a URL."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import cast

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, complete_files
from virtualstack.cli.output import report, table


@command("config", examples=["virtualstack config", "virtualstack config s3://bucket/archive/"])
@click.argument(
    "urls",
    shell_complete=complete_files,
    metavar="[URL...]",
    nargs=-1,
    help="Bucket, web server or file; no request is made.",
)
@options.as_json
def config(urls: tuple[str, ...], as_json: bool) -> None:
    """Show what is set once, and the credentials that are tried at a URL.

    Values of options are not shown, as they may be secrets.
    """
    from virtualstack.location import absolute_url, outermost
    from virtualstack.storage.standing import CONFIG_VARIABLE, STORAGE_VARIABLE, config_path, standing_options

    path = config_path()
    facts = {
        "file": str(path),
        "exists": path.is_file(),
        "variable_is_set": bool(os.environ.get(STORAGE_VARIABLE)),
        "storage": {prefix: sorted(found) for prefix, found in sorted(standing_options().items())},
        "credentials": {url: list(_credentials(outermost(absolute_url(url)))) for url in urls},
    }

    def text() -> str:
        state = "" if facts["exists"] else f" (does not exist; {CONFIG_VARIABLE} names another file)"
        state_of_variable = "is set" if facts["variable_is_set"] else "is not set"
        lines = [f"configuration file: {path}{state}", f"environment variable: {STORAGE_VARIABLE} {state_of_variable}"]
        rows = [(prefix, " ".join(found)) for prefix, found in cast(dict[str, list[str]], facts["storage"]).items()]
        if rows:
            lines += table([("URL prefix", "options (values are not shown)"), *rows], right=())
        for url, names in cast(dict[str, list[str]], facts["credentials"]).items():
            lines.append(f"credentials for {url}{', in the order in which they are tried:' if names else ': none'}")
            lines += [f"  {name}" for name in names]
        return "\n".join(lines)

    report(lambda: facts, text, as_json=as_json)


def _credentials(url: str) -> tuple[str, ...]:
    """Return the names of the credentials that are tried at a URL, in order; local files need none."""
    from virtualstack.storage.registry import OBJECT_STORES, WEB, Storage

    prefix, backend = Storage.from_option().find(url)
    if url.partition("://")[0] not in (*OBJECT_STORES, *WEB) or not isinstance(backend, Mapping | None):
        return ()
    obstore = importlib.import_module("virtualstack.storage.obstore")  # takes long, and local files need none
    return cast(tuple[str, ...], obstore.connect(url, backend, prefix)[0].identities)

"""``virtualstack serve``: serve cubes over HTTP as zarr; ``virtualstack report``: write a page about one."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import PurePosixPath
from typing import Any

from virtualstack.cli.options import AddCommand, add_allow
from virtualstack.cli.output import say
from virtualstack.errors import MissingDependencyError, VirtualStackError
from virtualstack.location import absolute_url

__all__ = ["add_commands"]

_LOOPBACK = "127.0.0.1", "::1", "localhost"


def add_commands(add: AddCommand, /) -> None:
    """Add the command ``serve``."""
    serve = add("serve", _serve, help="serve cubes over HTTP as zarr 2 and zarr 3")
    serve.add_argument(
        "cubes",
        nargs="+",
        metavar="[NAME=]CUBE",
        help="path or URL of references or of a file; a pattern such as 'data/*.nc' is joined to one cube",
    )
    serve.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1)")
    serve.add_argument(
        "--allowed-host",
        metavar="NAME",
        action="append",
        dest="hosts",
        help="host name that requests may use; may be repeated (default: this machine; with --host, any)",
    )
    serve.add_argument("--port", type=int, default=8000, help="port (default: 8000)")
    serve.add_argument(
        "--token",
        default=os.environ.get("VIRTUALSTACK_TOKEN") or None,
        help="secret that clients must send (default: VIRTUALSTACK_TOKEN; otherwise everyone may read)",
    )
    serve.add_argument(
        "--origin",
        metavar="ORIGIN",
        action="append",
        dest="origins",
        help="origin of web pages that may read, such as https://example.org, or '*' (default: this machine)",
    )
    serve.add_argument(
        "--chunk",
        metavar="DIM=LENGTH",
        action="append",
        default=[],
        type=_chunk,
        help="length of chunks along a dimension, for variables that are decoded",
    )
    serve.add_argument(
        "--codecs",
        choices=["common", "any"],
        default="common",
        help="send stored chunks if all zarr clients know the codecs, or if only zarr-python does (default: common)",
    )
    serve.add_argument(
        "--absent",
        choices=["fill", "raise"],
        default="fill",
        help="chunks without a source: the fill value, or an error (default: fill)",
    )
    serve.add_argument("--redirect", action="store_true", help="send clients to public objects that are whole chunks")
    serve.add_argument("--memory", default="1 GiB", help="memory for chunks that are read or sent (default: 1 GiB)")
    serve.add_argument("--cache", default="256 MiB", help="memory for chunks that are kept (default: 256 MiB)")
    serve.add_argument("--threads", type=int, default=32, help="chunks of a cube to read at a time (default: 32)")
    serve.add_argument("--workers", type=_count, default=1, help="processes that answer requests (default: 1)")
    serve.add_argument("--timeout", type=float, default=60, help="seconds to wait for a source (default: 60)")
    serve.add_argument("--refresh", type=float, default=1, help="seconds between looks at a store (default: 1)")
    _add_joining(serve)
    add_allow(serve)
    report = add("report", _report, help="write a page about a cube, as one HTML file")
    report.add_argument(
        "cube", metavar="CUBE", help="path or URL of references or of a file; a pattern is joined to one cube"
    )
    report.add_argument(
        "-o", "--output", required=True, metavar="FILE", help="file to write; one that exists is replaced"
    )
    report.add_argument("--name", help="name of the cube in the report (default: that of its file)")
    report.add_argument("--at", metavar="SNAPSHOT", help="number or id of a snapshot (default: the newest)")
    _add_joining(report)
    add_allow(report)


def _add_joining(command: argparse.ArgumentParser) -> None:
    command.add_argument("--concat-dim", metavar="DIM", help="dimension to join files of a pattern along")
    command.add_argument("--unpack", choices=["all", "differing"], help="decode packed numbers of joined files")


def _joining(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of joining files of a pattern."""
    build = {"unpack": options.unpack == "all" or options.unpack or False}
    if options.concat_dim:
        build |= {"combine": "nested", "concat_dim": options.concat_dim}
    return build


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of processes")
    return int(text)


def _chunk(text: str) -> tuple[str, int]:
    name, _, length = text.partition("=")
    if not name or not length.isdigit() or int(length) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a dimension and a length, such as time=24")
    return name, int(length)


def _named(texts: list[str]) -> dict[str, str]:
    """Return cubes by name: the name in front of ``=``, or that of the file without its suffix."""
    cubes: dict[str, str] = {}
    for text in texts:
        name, equals, cube = text.partition("=")
        if not equals or "/" in name or "?" in name:
            name, cube = PurePosixPath(text.rstrip("/")).name.partition(".")[0], text
        name = "".join(x if x.isalnum() or x in "._-" else "-" for x in name).strip("-") or "cube"
        if name in cubes:
            raise VirtualStackError(
                f"'{cubes[name]}' and '{cube}' would both have the name '{name}'. Name one: other-name={cube}"
            )
        cubes[name] = cube
    return cubes


def _serve(options: argparse.Namespace) -> int:
    try:
        workers = importlib.import_module("virtualstack.serve.workers")
    except ModuleNotFoundError as error:
        raise MissingDependencyError("serving cubes", extra="serve") from error
    cubes = _named(options.cubes)
    is_local = options.host in _LOOPBACK
    served = {
        "cubes": cubes,
        "allow": options.allow,
        "token": options.token,
        "origins": options.origins or (["*"] if options.token else None),
        "hosts": options.hosts or (None if is_local else ["*"]),
        "chunks": dict(options.chunk),
        "codecs": options.codecs,
        "absent": options.absent,
        "redirect": options.redirect,
        "memory": options.memory,
        "cache": options.cache,
        "threads": options.threads,
        "timeout": options.timeout,
        "refresh": options.refresh,
        "build": _joining(options),
    }

    def announce() -> None:
        host = f"[{options.host}]" if ":" in options.host else options.host
        for name, cube in cubes.items():
            say("note", f"http://{host}:{options.port}/{name}/ serves {absolute_url(cube)}")
        if not is_local and not options.token:
            say("warning", "everyone who reaches this machine can read these cubes; --token asks for a secret")

    try:
        workers.run(served, host=options.host, port=options.port, workers=options.workers, announce=announce)
    except ValueError as error:
        if isinstance(error, VirtualStackError):
            raise
        raise VirtualStackError(str(error)) from error
    return 0


def _report(options: argparse.Namespace) -> int:
    settings = {"name": options.name, "at": options.at, "allow": options.allow, "build": _joining(options)}
    importlib.import_module("virtualstack.serve").report(options.cube, options.output, **settings)
    say("note", f"'{options.output}' is written: open it in a browser")
    return 0

"""``virtualstack serve``: serve cubes over HTTP as zarr; ``virtualstack report``: write a page about one."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click

from virtualstack.cli import options
from virtualstack.cli.commands import choice, command, complete_files, option
from virtualstack.cli.facts import dry_text, maybe_dry
from virtualstack.cli.joining import NAMES, joining_files, taken
from virtualstack.cli.output import say, show, worded
from virtualstack.errors import MissingDependencyError, VirtualStackError
from virtualstack.options import Codecs, OnAbsent
from virtualstack.printable import counted

_LOOPBACK = "127.0.0.1", "::1", "localhost"

_VERIFIED = "File with what 'virtualstack verify STORE --json' printed; the page shows the state of each source."


def _chunk(text: str) -> tuple[str, int]:
    name, _, length = text.partition("=")
    if not name or not length.isdigit() or int(length) < 1:
        raise ValueError(f"'{text}' is not a dimension and a length, such as time=24")
    return name, int(length)


@command(
    "serve",
    examples=[
        "virtualstack serve cube.vstack",
        "virtualstack serve 'rain=data/*.nc' --port 9000",
        "virtualstack serve cube.vstack --host 0.0.0.0 --token secret",
    ],
)
@click.argument(
    "cubes",
    shell_complete=complete_files,
    nargs=-1,
    required=True,
    metavar="[NAME=]CUBE...",
    help="Path or URL of references or of a file; a pattern such as 'data/*.nc' is joined to one cube.",
)
@option("--host", default="127.0.0.1", help="Address to listen at [default: 127.0.0.1].")
@option("--port", type=click.IntRange(0, 65535), default=8000, help="Port [default: 8000].")
@option(
    "--allowed-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="Host name that requests may use [default: this machine; with --host, any]. Repeatable.",
)
@option(
    "--token",
    envvar="VIRTUALSTACK_TOKEN",
    help="Secret that clients must send [default: VIRTUALSTACK_TOKEN; otherwise everyone may read].",
)
@option(
    "--origin",
    "origins",
    metavar="ORIGIN",
    multiple=True,
    help="Origin of web pages that may read, such as https://example.org, or '*' [default: this machine]. Repeatable.",
)
@option(
    "--chunk",
    "chunks",
    metavar="DIM=LENGTH",
    multiple=True,
    type=options.Value(_chunk),
    callback=options.refuse_repeated_names,
    help="Length of chunks along a dimension, for variables that are decoded. Repeatable.",
)
@option(
    "--codecs",
    type=choice(Codecs),
    default="common",
    help="Send stored chunks if all zarr clients know the codecs, or if only zarr-python does [default: common].",
)
@option(
    "--absent",
    type=choice(OnAbsent),
    default="fill",
    help="Chunks without a source: the fill value, or an error [default: fill].",
)
@option("--redirect", is_flag=True, help="Send clients to public objects that are whole chunks.")
@option("--memory", default="1 GiB", help="Memory for chunks that are read or sent [default: 1 GiB].")
@option("--cache", default="256 MiB", help="Memory for chunks that are kept [default: 256 MiB].")
@option("--threads", type=options.POSITIVE, default=32, help="Chunks of a cube to read at a time [default: 32].")
@option("--workers", type=options.POSITIVE, default=1, help="Processes that answer requests [default: 1].")
@option(
    "--timeout",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    help="Seconds to wait for a source [default: 60].",
)
@option("--refresh", type=click.FloatRange(min=0), default=1.0, help="Seconds between looks at a store [default: 1].")
@option(
    "--verified",
    shell_complete=complete_files,
    metavar="[NAME=]FILE",
    multiple=True,
    help=f"{_VERIFIED} Repeatable, with the names of the cubes.",
)
@options.allow
@joining_files
@options.storage
def serve(
    cubes: tuple[str, ...],
    host: str,
    port: int,
    workers: int,
    token: str | None,
    origins: tuple[str, ...],
    hosts: tuple[str, ...],
    chunks: tuple[tuple[str, int], ...],
    verified: tuple[str, ...],
    **others: Any,
) -> None:
    """Serve cubes over HTTP as zarr 2 and zarr 3, with a page that shows them."""
    from virtualstack.location import absolute_url

    try:
        processes = importlib.import_module("virtualstack.serve.workers")
    except ModuleNotFoundError as error:
        raise MissingDependencyError("serving cubes", extra="serve") from error
    named = _named(cubes)
    is_local = host in _LOOPBACK
    served = {
        **{name: value for name, value in others.items() if name not in NAMES},
        "cubes": named,
        "token": token,
        "origins": origins or (["*"] if token else None),
        "hosts": hosts or (None if is_local else ["*"]),
        "chunks": dict(chunks),
        "build": _joining(others),
        "verified": _of_cubes(verified, named),
    }

    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    say("note", f"{address}/ answers when {counted(len(named), 'cube')} {'is' if len(named) == 1 else 'are'} open")

    def announce(refused: Mapping[str, VirtualStackError]) -> None:
        for name, cube in named.items():
            if name in refused:
                say("error", f"{name} is not served: {worded(refused[name])}")
            else:
                say("note", f"{address}/{name}/ serves {absolute_url(cube)}")
        shown = next((name for name in named if name not in refused), None)
        if shown is not None and not token:
            call = f'xr.open_dataset("{address}/{shown}/", engine="virtualstack")'
            say("note", f"open {address}/ in a browser, or a cube in Python: {call}")
        if not is_local and not token:
            say("warning", "everyone who reaches this machine can read these cubes; --token asks for a secret")

    try:
        processes.run(served, host=host, port=port, workers=workers, announce=announce)
    except ValueError as error:
        if isinstance(error, VirtualStackError):
            raise
        raise VirtualStackError(str(error)) from error


@command(
    "report",
    examples=[
        "virtualstack report cube.vstack -o cube.html",
        "virtualstack report 'data/*.nc' -o data.html",
        "virtualstack report cube.vstack -o cube.json",
    ],
)
@click.argument(
    "cube",
    shell_complete=complete_files,
    metavar="CUBE",
    help="Path or URL of references or of a file; a pattern is joined to one cube.",
)
@option(
    "-o",
    "--output",
    shell_complete=complete_files,
    metavar="FILE",
    help="File to write: .html, or .json for the page on a static web server. One that exists is replaced.",
)
@option("--name", metavar="NAME", help="Name of the cube in the report [default: that of its file].")
@option("--at", metavar="SNAPSHOT", help="Number or id of a snapshot [default: the newest].")
@option("--verified", shell_complete=complete_files, metavar="FILE", help=_VERIFIED)
@options.allow
@options.dry_run
@joining_files
@options.storage
def report(
    cube: str,
    output: str | None,
    name: str | None,
    at: str | None,
    verified: str | None,
    allow: tuple[str, ...],
    storage: Any,
    dry_run: bool,
    **joining: Any,
) -> None:
    """Write a page about a cube, as one HTML file."""
    if output is None:
        from virtualstack.serve.cubes import name_from_url

        raise click.UsageError(
            f"the name of the file to write is missing. Add it: -o {name or name_from_url(cube)}.html"
        )
    settings = {
        "name": name,
        "at": at,
        "allow": allow,
        "storage": storage,
        "build": _joining(joining),
        "verified": verified,
    }
    with maybe_dry(dry_run) as record:
        importlib.import_module("virtualstack.serve").report(cube, output, **settings)
    if record is not None:
        show(dry_text(record, output))
        return
    is_json = output.lower().endswith(".json")
    use = "add it to the address of the page: page.html?store=URL&facts=URL" if is_json else "open it in a browser"
    say("note", f"'{output}' is written: {use}")


def _joining(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of joining files of a pattern: by labels, or in the order of their names."""
    if given["in_order"] and given["concat_dim"] is None:
        raise click.UsageError("--in-order needs the dimension: add --concat-dim DIM")
    return taken(given)


def _named(texts: tuple[str, ...]) -> dict[str, str]:
    """Return cubes by name: the name in front of ``=``, or that of the file without its suffix."""
    from virtualstack.serve.cubes import name_from_url, name_in_url

    cubes: dict[str, str] = {}
    for text in texts:
        name, equals, cube = text.partition("=")
        if not equals or "/" in name or "?" in name:
            name, cube = name_from_url(text), text
        else:
            name = name_in_url(name)
        if name in cubes:
            raise VirtualStackError(
                f"'{cubes[name]}' and '{cube}' would both have the name '{name}'. Name one: other-name={cube}"
            )
        cubes[name] = cube
    return cubes


def _of_cubes(texts: tuple[str, ...], cubes: Mapping[str, str]) -> dict[str, str]:
    """Return files by the names of the cubes that they are about; with one cube, the name may be left out."""
    from virtualstack.serve.cubes import name_in_url

    files: dict[str, str] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not equals or "/" in name:
            if len(cubes) > 1:
                raise click.UsageError(f"--verified {text} is about which cube? Name it: --verified NAME={text}")
            (name,), file = cubes, text
        name = name_in_url(name)
        if name in files:
            raise click.UsageError(f"--verified names the cube '{name}' twice: '{files[name]}' and '{file}'")
        files[name] = file
    return files

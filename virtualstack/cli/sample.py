"""``virtualstack sample``: write a small archive to try virtualstack with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import click

from virtualstack.cli import options
from virtualstack.cli.commands import command, complete_files, complete_names
from virtualstack.cli.output import report, table
from virtualstack.printable import counted, did_you_mean
from virtualstack.sizes import human_bytes


def _names() -> list[str]:
    from virtualstack import sample

    return sample.__all__


@command("sample", examples=["virtualstack sample", "virtualstack sample hourly", "virtualstack sample scenes data"])
@click.argument(
    "name",
    shell_complete=complete_names(_names),
    metavar="[NAME]",
    required=False,
    help="Name of the sample; without it, all are listed.",
)
@click.argument(
    "folder",
    shell_complete=complete_files,
    metavar="[FOLDER]",
    required=False,
    help="Folder to write the files into [default: sample/NAME].",
)
@options.dry_run
@options.as_json
def sample(name: str | None, folder: str | None, dry_run: bool, as_json: bool) -> None:
    """Write a small archive to try virtualstack with, or list the samples."""
    from tempfile import TemporaryDirectory

    from virtualstack import sample as samples

    if name is None:
        rows = [(each, _first_line(getattr(samples, each).__doc__)) for each in samples.__all__]
        facts = [{"name": each, "description": text} for each, text in rows]
        report(lambda: {"samples": facts}, lambda: "\n".join(table(rows, right=())), as_json=as_json)
        return
    if name not in samples.__all__:
        raise no_sample(name)
    is_installed = name in samples.INSTALLED
    if is_installed and folder is not None:
        raise click.UsageError(
            f"the files of '{name}' are part of an installed package, and are not written to '{folder}'; "
            "leave FOLDER out"
        )
    target = folder or f"sample/{name}"
    with TemporaryDirectory() if dry_run else nullcontext(target) as place:
        paths = write_sample(name, None if is_installed else place)
        size = sum(Path(path).stat().st_size for path in paths)
    written = (0, 0) if is_installed else (len(paths), size)
    dry = {"objects": written[0], "bytes": written[1], "deleted": 0} if dry_run else None
    paths = [path.replace(place, target, 1) for path in paths] if dry_run and not is_installed else list(paths)

    def text() -> str:
        names = f": {paths[0]}" if len(paths) == 1 else f", from {paths[0]} to {paths[-1]}"
        told = f"{counted(len(paths), 'file')}{names}"
        if dry_run and is_installed:
            return f"dry run: nothing is ever written, as the files are part of an installed package: {told}"
        return f"dry run: nothing is written. It would write {human_bytes(size)}: {told}" if dry_run else told

    report(lambda: {"name": name, "files": paths, "dry_run": dry}, text, as_json=as_json)


def no_sample(name: str, /) -> click.UsageError:
    """Return the error for the name of a sample that does not exist."""
    from virtualstack import sample as samples

    return click.UsageError(
        f"there is no sample '{name}'.{did_you_mean(name, samples.__all__)} 'virtualstack sample' lists them"
    )


def write_sample(name: str, folder: str | Path | None, /) -> Sequence[str]:
    """Write the files of a sample into a folder, unless they are installed, and return their paths.

    Raises
    ------
    StorageError
        The files cannot be written.
    """
    from virtualstack import sample as samples
    from virtualstack.errors import StorageError, VirtualStackError

    try:
        return getattr(samples, name)(*([] if folder is None else [folder]))  # type: ignore[no-any-return]
    except OSError as error:
        if isinstance(error, VirtualStackError):
            raise
        raise StorageError(f"the sample '{name}' cannot be written: {error}", url=str(folder)) from error


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]

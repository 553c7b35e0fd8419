"""Remedies in the words of the command line: its options and commands in place of arguments and functions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from virtualstack.errors import Code, Remedy

if TYPE_CHECKING:
    import click

_FLAGS = {
    ("combine", "nested"): "--in-order",
    ("decode_times", False): "--no-decode-times",
    ("duplicates", None): "--keep-all",
    ("duplicates", "first"): "--keep-first",
    ("duplicates", "last"): "--keep-last",
    ("mode", "w"): "--overwrite",
    ("ordered", False): "--in-order --keep-all",
}
"""Options that stand for one value of an argument in Python."""

_FUNCTIONS = {
    "list_readers": "readers",
    "open_virtual_mfdataset": "build",
    "to_kerchunk": "build",
    "to_vstack": "build",
}
"""Commands that are not named like the functions in Python."""


def in_command_words(
    remedy: Remedy, /, command: click.Command | None, commands: Mapping[str, click.Command]
) -> str | None:
    """Return a remedy with the options of the running command or another one; ``None`` if no command has them.

    >>> import click
    >>> leave_out = click.Option(["--drop-variable", "drop_variables"], multiple=True)
    >>> build = click.Command("build", params=[leave_out])
    >>> in_command_words(Remedy("leave it out with", drop_variables=["x", "y z"]), build, {})
    "leave it out with --drop-variable x --drop-variable 'y z'"
    >>> in_command_words(Remedy("convert it with", preprocess=...), build, {}) is None
    True
    """
    running = command
    if remedy.function is not None:
        name = remedy.function.partition("(")[0].rpartition(".")[2]
        command = commands.get(_FUNCTIONS.get(name, name), running)
        if name == "open_virtual_mfdataset" and running is not None:  # whose options append has, too
            command = running if remedy.arguments.keys() <= {x.name for x in running.params} else command
        if command is running and not remedy.arguments:
            return None
    params = [] if command is None else command.params
    options = {flag: x for x in params for flag in (x.name, *x.opts) if flag}
    texts = [_option(argument, value, options) for argument, value in remedy.arguments.items()]
    if None in texts:
        return None
    text = " ".join(filter(None, texts))
    if command is not running and command is not None:
        text = f"'virtualstack {f'{command.name} {text}'.rstrip()}'"
    return remedy.filled(text)


def _option(name: str, value: Any, options: Mapping[str, click.Parameter]) -> str | None:
    """Return the option of an argument with its value, or ``None`` if the command has none that takes the value."""
    if isinstance(value, str | bool | None) and (flag := _FLAGS.get((name, value))) is not None:
        return flag if options.keys() >= {*flag.split()} else None
    if name == "append_dim":
        name = name if name in options else "dim"
    elif name == "unpack" and isinstance(value, bool):
        value = "all" if value else "never"
    elif name == "combine_options":  # of which the command has only one
        name, value = "expand", value.get("data_vars", value.get("coords", {}))
    if (param := options.get(name)) is None:
        return None
    flag = max(param.opts, key=len)
    if getattr(param, "is_flag", False):
        return flag if value is True else None
    if value is ...:
        return f"{flag} {param.metavar or '|'.join(getattr(param.type, 'choices', ()))}"
    if name == "storage":
        texts: list[str | None] = [_text(value) if isinstance(value, Code) else json.dumps(value)]
    elif isinstance(value, Mapping):
        texts = [f"{key}={_text(each)}" for key, each in value.items()]
    else:
        texts = [_text(x) for x in ([value] if isinstance(value, str) or not isinstance(value, Sequence) else value)]
    takes = getattr(param.type, "choices", texts)
    return " ".join(f"{flag} {shlex.quote(x)}" for x in texts if x is not None and x in takes) or None


def _text(value: object) -> str | None:
    return value.command if isinstance(value, Code) else str(value)

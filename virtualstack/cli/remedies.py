"""Messages in the words of the command line: its options in place of arguments of Python functions."""

from __future__ import annotations

import ast
import re
import shlex

import click

__all__ = ["in_command_words"]

# An argument of a Python function in a message, with its value. Text in quotes, such as the name of a file, is
# skipped.
_ARGUMENT = re.compile(
    r"""(?<![^\s(])(?:'[^']*'|(?P<name>[a-z_]+)=(?P<value>'[^']*'|"[^"]*"|\[[^]]*\]|pd\.Timedelta\('[^']*'\)|True|\d[\d.e+-]*\d|\d)?"""
    r"""|(?P<bare>drop_variables|concat_dim|append_dim|inline_limit|on_error)\b)"""
)
_OPTIONS = {
    ("append_dim", None): "--append",
    ("mode", "'w'"): "--overwrite",
    ("combine", "'nested'"): "--in-order",
    ("unpack", "True"): "--unpack all",
}
"""Options that are not named like the arguments in Python."""


def in_command_words(message: str, command: click.Command | None, /) -> str:
    """Return a message in which options of the command replace arguments of Python functions.

    Examples
    --------
    >>> leave_out = click.Option(["--drop-variable", "drop_variables"], multiple=True)
    >>> in_command_words("leave it out with drop_variables=['x']", click.Command("build", params=[leave_out]))
    'leave it out with --drop-variable x'
    >>> in_command_words("use drop_variables=['x']", click.Command("inspect"))
    "use drop_variables=['x'] (this command has no option for drop_variables, which exists only in Python)"
    """
    params = [] if command is None else [x for x in command.params if isinstance(x, click.Option)]
    flags = {name: max(x.opts, key=len) for x in params if x.name for name in (x.name, *x.opts)}
    others: list[str] = []

    def replace(match: re.Match[str]) -> str:
        name, value = match["name"] or match["bare"], match["value"]
        if name is None:
            return match[0]
        own = _OPTIONS.get((name, value)) or _OPTIONS.get((name, None))
        flag = own if own and own.split()[0] in flags else flags.get(name)
        if flag is None:
            others.append(name)
            return match[0]
        if value is None or (name, value) in _OPTIONS:
            return flag
        given = ast.literal_eval(value.removeprefix("pd.Timedelta(").removesuffix(")"))
        return " ".join(f"{flag} {shlex.quote(str(x))}" for x in (given if isinstance(given, list) else [given]))

    said = _ARGUMENT.sub(replace, message)
    if not others:
        return said
    named = ", ".join(dict.fromkeys(others))
    return f"{said} (this command has no option for {named}, which exists only in Python)"

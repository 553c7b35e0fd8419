"""Messages in the words of the command line: its options and commands in place of functions and arguments of Python."""

from __future__ import annotations

import ast
import os
import re
import shlex
from itertools import pairwise

import click

__all__ = ["MAX_CHARACTERS", "in_command_words"]

MAX_CHARACTERS = 330
"""Most characters of a message without ``--verbose``: three lines of 110 characters."""

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

_WORDS = {
    r"combine='nested' and concat_dim=(\w+|'[^']*')": "--in-order",
    r"vs\.list_readers\(\)": "'virtualstack readers'",
    r"vs\.Repository\.open\([^)]*\)\.log\(\)": "'virtualstack log'",
    r"(?:vs\.)?Repository\.(append|update|write|refresh|relocate|expire|compact|verify|log|diff)\b": (
        r"'virtualstack \1'"
    ),
    r"vs\.(convert|survey)\b": r"'virtualstack \1'",
    r"vds\.virtual\.to_vstack\(\.\.\., mode='w'\)": "'virtualstack build --overwrite'",
    r"vds\.virtual\.to_\w+(?:\(\.\.\.\))?": "'virtualstack build'",
    r"open_virtual_mfdataset\(\.\.\., ([^)]*)\)": r"\1",
    r'allow=vs\.Listed\(("[^"]*")\)': r"--allow \1",
    r"grace=timedelta\(0\)": "--grace 0",
}
"""Functions and expressions of Python, and what does the same on the command line."""

_PYTHON = re.compile(r"vds\.virtual\.|vs\.\w+\.|\bxr\.|(?<![^\s(])[a-z_]+=[^=]")
"""What only Python has, once options and commands have replaced the others."""

_OWN = re.compile(r"--[a-z]|'virtualstack ")
"""An option or a command of the command line: a clause with it says what to do."""

_CLAUSE = re.compile(r"(?<=[;.?]) +")


def in_command_words(message: str, command: click.Command | None, /, *, most: int | None = None) -> str:
    """Return a message in which options of the command replace arguments of Python functions.

    Clauses with a remedy that only Python has are left out, if another clause remains.

    Parameters
    ----------
    message
        A message of a function.
    command
        The command that runs.
    most
        Most characters. The last remedies are left out if the message has more.

    Examples
    --------
    >>> leave_out = click.Option(["--drop-variable", "drop_variables"], multiple=True)
    >>> build = click.Command("build", params=[leave_out])
    >>> in_command_words("leave it out with drop_variables=['x']", build)
    'leave it out with --drop-variable x'
    >>> in_command_words("'x' is odd. Correct it with preprocess=, or so. Or drop_variables=['x']", build)
    "'x' is odd. Or --drop-variable x"
    >>> in_command_words('open the store with allow=vs.Listed("/data/")', build)
    'open the store with --allow "/data/"'
    >>> in_command_words("use drop_variables=['x']", click.Command("inspect"))
    "use drop_variables=['x'] (this command has no option for drop_variables, which exists only in Python)"
    """
    for words, own in _WORDS.items():
        message = re.sub(words, own, message)
    first, *remedies = [_with_options(each, command) for each in _clauses(_without_folder(message))]
    usable = [x for x in remedies if _OWN.search(x[0]) or not (x[1] or _PYTHON.search(_unquoted(x[0])))] or remedies
    others = [*first[1], *(name for _, missing in usable for name in missing)]
    text = " ".join([first[0], *_shortened([x for x, _ in usable], None if most is None else most - _length(first[0]))])
    text = re.sub(r";(?: or)?$", "", text)
    if not others:
        return text
    named = ", ".join(dict.fromkeys(others))
    return f"{text} (this command has no option for {named}, which exists only in Python)"


def _shortened(clauses: list[str], most: int | None) -> list[str]:
    """Return the clauses that fit: first those that name an option or a command, and always one of them."""
    if most is None:
        return clauses
    kept: set[int] = set()
    for i in sorted(range(len(clauses)), key=lambda i: (_OWN.search(clauses[i]) is None, i)):
        if not kept and _length(clauses[i]) > most:
            clauses = [*clauses[:i], _first_choice(clauses[i], most), *clauses[i + 1 :]]
        if not kept or _length(clauses[i]) <= most:
            kept.add(i)
            most -= _length(clauses[i])
    return [each for i, each in enumerate(clauses) if i in kept]


def _first_choice(clause: str, most: int) -> str:
    """Return the beginning of a clause with several choices: the first one, and the others that fit."""
    first, *others = re.split(r"(?=, (?:else|or) )", clause)
    for each in others:
        if _length(first + each) > most:
            break
        first += each
    return first


def _length(text: str) -> int:
    """Return the number of characters; the paths of a user may be as long as they are."""
    return len(re.sub(r"'[^']{20,}'", "'...'", text))


def _clauses(message: str) -> list[str]:
    """Return the clauses of a message; the ends of clauses in quotes are none."""
    masked = re.sub(r"'[^']*'", lambda found: "'" + "_" * (len(found[0]) - 2) + "'", message)
    starts = [0, *(found.end() for found in _CLAUSE.finditer(masked)), len(message)]
    return [message[a:b].rstrip() for a, b in pairwise(starts) if message[a:b].strip()] or [""]


def _without_folder(message: str) -> str:
    """Return a message with local URLs as paths, which are relative if they are in the working directory."""
    here = f"{os.getcwd().rstrip('/')}/"
    plain = re.sub(r"(?<![\w+:])file://(?=/)", "", message)
    return plain if here == "/" else plain.replace(f"'{here}", "'")


def _unquoted(text: str) -> str:
    return re.sub(r"'[^']*'", "''", text)


def _with_options(text: str, command: click.Command | None) -> tuple[str, list[str]]:
    """Return a text with the options of a command, and the arguments that are none of its options."""
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
        try:
            given = ast.literal_eval(value.removeprefix("pd.Timedelta(").removesuffix(")"))
        except (ValueError, SyntaxError):  # an ellipsis: the user chooses
            return flag
        return " ".join(f"{flag} {shlex.quote(str(x))}" for x in (given if isinstance(given, list) else [given]))

    return _ARGUMENT.sub(replace, text), others

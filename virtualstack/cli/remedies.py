"""Messages in the words of the command line: its options and commands in place of functions and arguments of Python."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import click

__all__ = ["MAX_CHARACTERS", "in_command_words"]

MAX_CHARACTERS = 330
"""Most characters of a message without ``--verbose``: three lines of 110 characters."""

# The name of an argument of a Python function in a message. Text in quotes, such as the name of a file, is skipped.
_ARGUMENT = re.compile(
    r"""(?<![^\s(])(?<!\w\()(?:'[^']*'|(?P<name>[a-z_]+)=(?!=)"""
    r"""|(?P<bare>drop_variables|concat_dim|append_dim|new_dim|inline_limit|on_error)\b)"""
)
_OPTIONS = {
    ("append_dim", None): ("--append", "--dim"),
    ("mode", "'w'"): ("--overwrite",),
    ("combine", "'nested'"): ("--in-order",),
    ("unpack", "True"): ("--unpack all",),
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
    r"vds\.virtual\.to_(?:vstack|kerchunk|icechunk)(?:\(\.\.\.\))?(?!\()": "'virtualstack build'",
    r"(?:vs\.)?open_virtual_mfdataset\(\.\.\., ([^)]*)\)": r"\1",
    r"\bdrop_vars\(('[^']*')\)": r"drop_variables=[\1]",
    r"allow=vs\.Listed\(([^)]*)\)": r"allow=[\1]",
    r"grace=timedelta\(0\)": "--grace 0",
    r"combine_options=\{'(?:coords|data_vars)': (\[[^]]*\])\}": r"expand=\1",
}
"""Functions and expressions of Python, and what does the same on the command line."""

_PYTHON = re.compile(
    r"\b(?:vds|vs|xr|ds|xarray|icechunk)\.\w|\bopen_virtual_\w|\bdrop_vars\b|\b[a-z]\w*\((?!s\))|(?<![^\s(])[a-z_]+=(?!=)"
)
"""What only Python has, once options and commands have replaced the others."""

_OWN = re.compile(r"--[a-z]|'virtualstack ")
"""An option or a command of the command line: a clause with it says what to do."""

_QUOTED = re.compile(r"(?<!\w)'[^']*'")
"""Text in quotes; an apostrophe opens none."""

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
    >>> in_command_words("use drop_variables=['x']", click.Command("inspect"))
    "use drop_variables=['x'] (this command has no option for drop_variables)"
    """
    for words, own in _WORDS.items():
        message = re.sub(words, own, message)
    first, *others = _clauses(_without_folder(message))
    start = _with_options(first, command)
    worded = [_with_choices(each, command) for each in others]
    usable = [x for x in worded if x.text and not x.is_python]
    n_of_statement = next((i for i, x in enumerate([first, *others]) if not x.endswith(";")), 0)
    is_remedy = [i >= n_of_statement or others[i].startswith("or ") for i in range(len(others))]
    if not any(x in usable and (x.is_own or is_one) for x, is_one in zip(worded, is_remedy, strict=True)):
        usable = [x for x in worded if x.text]
    if most is not None:
        start, usable = _shortened(start, usable, most)
    end = r";(?: or)?$" if message.endswith(".") else r"(?:;(?: or)?|\.)$"  # of a clause that is the last one now
    texts = [x.text for x in (start, *usable)]
    for i, (text, following) in enumerate(pairwise(texts)):
        if text.endswith(";") and following[:1].isupper():  # the clause between them is left out
            texts[i] = f"{text[:-1]}."
    return re.sub(end, "", " ".join(texts)) + _suffix([start, *usable])


@dataclass(frozen=True, slots=True)
class _Worded:
    """A part of a message in the words of a command.

    Parameters
    ----------
    text
        The text.
    missing
        Arguments in it that are none of the options of the command.
    """

    text: str
    missing: tuple[str, ...] = ()

    @property
    def is_own(self) -> bool:
        """True if the text names an option or a command."""
        return _OWN.search(self.text) is not None

    @property
    def is_python(self) -> bool:
        """True if the text names what only Python has."""
        return bool(self.missing) or _PYTHON.search(_unquoted(self.text)) is not None


def _suffix(parts: Sequence[_Worded]) -> str:
    named = ", ".join(dict.fromkeys(name for each in parts for name in each.missing))
    return f" (this command has no option for {named})" if named else ""


def _shortened(start: _Worded, remedies: Sequence[_Worded], most: int) -> tuple[_Worded, list[_Worded]]:
    """Return the beginning and the remedies that fit: first those with an option or a command, and always one."""
    ranked = sorted(range(len(remedies)), key=lambda i: (not remedies[i].is_own, i))
    kept: dict[int, _Worded] = {}
    for i in ranked:
        each = remedies[i]
        if not kept:
            left = most - _length(start.text) - len(_suffix([start, each])) - 1
            if _length(each.text) > left:
                each = replace(each, text=_first_choice(each.text, left))
            start = replace(start, text=_cut(start.text, most - _length(each.text) - len(_suffix([start, each])) - 1))
            kept[i] = each
        elif (
            _length(" ".join(x.text for x in (start, *kept.values(), each)))
            + len(_suffix([start, *kept.values(), each]))
            <= most
        ):
            kept[i] = each
    if not kept:
        start = replace(start, text=_cut(start.text, most - len(_suffix([start]))))
    return start, [kept[i] for i in sorted(kept)]


_SHOWS_ALL = " (--verbose shows all)"


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text, to the end of a word that is not in quotes; at least 80 characters."""
    if _length(text) <= most:
        return text
    ends = [found.start() for found in re.finditer(" ", re.sub(_QUOTED, lambda x: "_" * len(x[0]), text))]
    fitting = [end for end in ends if _length(text[:end]) <= max(most - len(_SHOWS_ALL), 80) - 2]
    return f"{text[: fitting[-1]].rstrip(' ,;:')} …{_SHOWS_ALL}" if fitting else text


def _with_choices(clause: str, command: click.Command | None) -> _Worded:
    """Return a clause without the choices that only Python has, if one remains with an option or a command.

    A choice that names the running command is left out too; the text is empty if there is no other.
    """
    found: list[_Worded] = []
    for piece in _pieces(clause):
        made = _with_options(piece, command)
        is_new = made.is_own or made.is_python or re.match(r", (?:or|else) ", piece)
        if found and (not is_new or piece.startswith(", and ")):
            before = found.pop()
            made = _Worded(before.text + made.text, (*before.missing, *made.missing))
        found.append(made)
    if command is not None:
        found = [x for x in found if f"'virtualstack {command.name}'" not in x.text]
    plain = [x for x in found if not x.is_python]
    kept = plain if any(x.is_own for x in plain) else found
    text = "".join(x.text for x in kept)
    bare = re.sub(r"^, (?:(?:or|else) )?", "", text)
    if bare != text:  # the first choices are left out
        bare = f"use {bare}" if _OWN.match(bare) else bare
        text = bare[:1].upper() + bare[1:] if clause[:1].isupper() else bare
    return _Worded(text, tuple(name for x in kept for name in x.missing))


def _pieces(clause: str) -> list[str]:
    """Return the parts of a clause between commas that are neither in quotes nor in brackets."""
    starts, depth, quote = [0], 0, ""
    for i, letter in enumerate(clause):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"" and not clause[:i][-1:].isalnum():
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif clause.startswith(", ", i) and depth <= 0:
            starts.append(i)
    return [clause[a:b] for a, b in pairwise([*starts, len(clause)])]


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
    return len(re.sub(r"(?<!\w)'[^']{20,}'", "'...'", text))


def _clauses(message: str) -> list[str]:
    """Return the clauses of a message; the ends of clauses in quotes are none."""
    masked = re.sub(_QUOTED, lambda found: "'" + "_" * (len(found[0]) - 2) + "'", message)
    starts = [0, *(found.end() for found in _CLAUSE.finditer(masked)), len(message)]
    return [message[a:b].rstrip() for a, b in pairwise(starts) if message[a:b].strip()] or [""]


def _without_folder(message: str) -> str:
    """Return a message with local URLs as paths, which are relative if they are in the working directory."""
    here = f"{os.getcwd().rstrip('/')}/"
    plain = re.sub(r"(?<![\w+:])file://(?=/)", "", message)
    return plain if here == "/" else plain.replace(f"'{here}", "'")


def _unquoted(text: str) -> str:
    return re.sub(_QUOTED, "''", text)


def _with_options(text: str, command: click.Command | None) -> _Worded:
    """Return a text with the options of a command, and the arguments that are none of its options."""
    params = [] if command is None else [x for x in command.params if isinstance(x, click.Option)]
    options = {name: x for x in params if x.name for name in (x.name, *x.opts)}
    made, missing, end = "", [], 0
    for match in _ARGUMENT.finditer(text):
        name = match["name"] or match["bare"]
        if name is None or match.start() < end:
            continue
        value = _value(text[match.end() :]) if match["name"] else ""
        if value is None:
            continue
        made += text[end : match.start()]
        end = match.end() + len(value)
        own = _option(name, value, options)
        if own is None:
            missing.append(name if name not in options or not value else f"this {name}")
        made += text[match.start() : end] if own is None else own
    return _Worded(made + text[end:], tuple(missing))


def _value(text: str) -> str | None:
    """Return the expression at the beginning of a text, which may be empty; ``None`` if it has no end."""
    depth, quote = 0, ""
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}" and depth:
            depth -= 1
        elif depth == 0 and (letter in " ,);" or re.match(r"[.:](?:\s|$)", text[i:])):
            return text[:i]
    return text if not depth and not quote else None


def _option(name: str, value: str, options: Mapping[str, click.Option]) -> str | None:
    """Return the option of an argument with its value, or ``None`` if the command has none that takes the value."""
    if (at := re.fullmatch(r"(?:vs\.readers\.)?VStack\(at=(\d+)\)", value)) and "at" in options:
        return f"--at {at[1]}"
    if (name, value) == ("mode", "'w'") and "--overwrite" not in options:
        return "'virtualstack build --overwrite'"
    for own in _OPTIONS.get((name, value), ()):
        if own.split()[0] in options:
            return own
    if (name, value) == ("unpack", "True") and name not in options:
        return "'virtualstack build --unpack all'"
    if name == "expand" and name not in options and value:
        return f"'virtualstack build {' '.join(f'--expand {shlex.quote(x)}' for x in ast.literal_eval(value))}'"
    flag = next((x for x in _OPTIONS.get((name, None), ()) if x in options), name)
    if flag not in options:
        return None
    param = options[flag]
    flag = max(param.opts, key=len)
    if param.is_flag:
        return flag if value in ("", "True") else None
    if not value:
        return f"{flag} {param.metavar}" if name == "append_dim" else flag
    try:
        given = ast.literal_eval(re.sub(r"^pd\.Timedelta\((.*)\)$", r"\1", value))
    except (ValueError, SyntaxError):
        return None
    if isinstance(given, dict):
        return f"{flag} {shlex.quote(_json(given))}" if name == "storage" else None
    every = [x for x in (given if isinstance(given, list) else [given]) if x is not ...]
    takes = param.type.choices if isinstance(param.type, click.Choice) else None
    if any(isinstance(x, bool | set | tuple | dict | None) or (takes is not None and x not in takes) for x in every):
        return None
    return " ".join(f"{flag} {shlex.quote(str(x))}" for x in every) or flag


def _json(value: Any) -> str:
    """Return JSON; what the user has to fill in, ``{...}`` or ``...``, stays as it is."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_json(each)}" for key, each in value.items()) + "}"
    if isinstance(value, set):
        return "{...}"
    return "..." if value is ... else json.dumps(value)

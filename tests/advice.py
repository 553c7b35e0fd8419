"""Options that a message names, taken out of its text as a reader takes them."""

from __future__ import annotations

import io
import re
import shlex
import tokenize
from collections.abc import Container
from inspect import signature
from typing import Any

import click
import numpy as np
import pandas as pd

import virtualstack as vs

NAMES = {"vs": vs, "np": np, "pd": pd}
"""What expressions of messages may use."""

JOIN = "open_virtual_mfdataset"
"""Stands for the function that a message names in place of the one that was called; the value is its options."""

_JOINING = signature(vs.open_virtual_mfdataset).parameters


def options_named(message: str, known: Container[str], /) -> list[dict[str, Any]]:
    """Return the alternatives that a message names, in its order: options with their values.

    Options that stand beside each other, with "and" or a comma between them, belong to one alternative.
    """
    found: list[dict[str, Any]] = []
    end = 0
    for match in re.finditer(r"open_virtual_mfdataset\(\.\.\., ([^)]*)\)|(?<![\w.])([a-z_]+)=(?![=\s.,)])", message):
        if match[1] and JOIN in known:
            found.append({JOIN: options_named(match[1], _JOINING)[0]})
            end = match.end()
        if match.start() < end or match[2] not in known:
            continue
        expression = _expression(message[match.end() :])
        if "..." in expression:  # which values are meant is left to the reader
            continue
        try:
            value = eval(expression, dict(NAMES))
        except (SyntaxError, NameError, AttributeError):  # a word, such as in `preprocess=, or`
            continue
        between = message[end : match.start()].strip()
        if found and between in ("and", ",", ", and", "with") and match[2] not in found[-1]:
            found[-1][match[2]] = value
        else:
            found.append({match[2]: value})
        end = match.end() + len(expression)
    return found


def _expression(text: str) -> str:
    """Return the expression of Python with which a text begins: a name with dots, a literal, a call, a list."""
    text = text.partition("\n")[0]
    depth, end, last = 0, 0, ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_dot = token.string == "." and text[token.end[1] : token.end[1] + 1].isidentifier()
            goes_on = token.start[1] == end and (is_dot or token.string in ("(", "[") or last in (".", "-"))
            if depth == 0 and last and not goes_on:
                break
            depth += (token.string in ("(", "[", "{")) - (token.string in (")", "]", "}"))
            if depth < 0:
                break
            end, last = token.end[1], token.string
    except (tokenize.TokenError, SyntaxError):  # an apostrophe further on
        pass
    return text[:end]


def command_options_named(message: str, command: click.Command, /) -> list[dict[tuple[str, ...], None]]:
    """Return the alternatives that a message names for a command: each option with its value as a key."""
    known = {name: x for x in command.params for name in x.opts if isinstance(x, click.Option)}
    found: list[dict[tuple[str, ...], None]] = []
    end = 0
    for match in re.finditer(r"(?<![\w-])(--[a-z][a-z-]+)(?: +(?!--)('[^']*'|\"[^\"]*\"|[^\s,;]+))?", message):
        if match[1] not in known or match[1] == "--verbose":  # which shows more words, and changes nothing
            continue
        given: tuple[str, ...] = (match[1],)
        stop = match.end(1)
        if not known[match[1]].is_flag:
            if match[2] in (None, known[match[1]].metavar):  # which value is meant is left to the reader
                continue
            given += tuple(shlex.split(match[2] if match[2][0] in "'\"" else match[2].rstrip(".)")))
            stop = match.end()
        if found and message[end : match.start()].strip() in ("", "and", ",", "with"):
            found[-1][given] = None
        else:
            found.append({given: None})
        end = stop
    return found

"""Parts of HTML: text of strangers, tables and folded lists of bounded length."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from virtualstack.location import absolute_url
from virtualstack.printable import printable

MAX_LISTED = 200
"""Rows of a table or items of a list that are in the HTML; the others are counted."""

_MAX_CHARACTERS = 500
_SHORT_CHARACTERS = 30  # a date, which must not be broken at its hyphens
_SHOWN_ITEMS = 3
_CELL = "text-align:left;padding:1px 8px;vertical-align:top"
_TABLE = "border-collapse:collapse;font-size:90%;margin:0"  # pages centre tables


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object, /) -> str:
    r"""Return a value as HTML text: escaped, without control characters, and with at most 500 characters.

    URLs of files in the working directory become relative paths, which are shorter and the same on every machine.

    >>> text("<b> & \x1b[2J")
    '&lt;b&gt; &amp; \\x1b[2J'
    >>> text(absolute_url("run/day.nc"))
    'run/day.nc'
    """
    if isinstance(value, Markup):
        return value
    shown = str(value)
    if "file://" in shown:
        shown = _without_working_directory(shown)
    shown = printable(shown).encode(errors="backslashreplace").decode()
    shown = shown if len(shown) <= _MAX_CHARACTERS else f"{shown[: _MAX_CHARACTERS - 1]}…"
    return escape(shown).replace("\n", "<br>")


def _without_working_directory(shown: str) -> str:
    try:
        here = absolute_url(os.getcwd())
    except OSError:  # the directory was deleted
        return shown
    return shown if here.endswith("/") else shown.replace(f"{here}/", "")


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], /, *, total: int | None = None) -> str:
    """Return a table with at most 200 rows, and the number of the other rows."""
    listed = list(rows)
    n = len(listed) if total is None else total
    shown = listed[:MAX_LISTED]
    head = "".join(f'<th style="{_CELL}">{text(x)}</th>' for x in columns)
    body = "".join("<tr>" + "".join(map(_cell, row)) + "</tr>" for row in shown)
    more = f'<tr><td style="{_CELL}" colspan="{len(columns)}">… and {n - len(shown):,} more</td></tr>'
    return (
        f'<table style="{_TABLE}"><thead><tr>{head}</tr></thead><tbody>{body}{more if n > len(shown) else ""}'
        "</tbody></table>"
    )


def _cell(value: object) -> str:
    shown = text("" if value is None else value)
    is_short = not isinstance(value, Markup) and len(shown) <= _SHORT_CHARACTERS
    return f'<td style="{_CELL}{";white-space:nowrap" if is_short and "-" in shown else ""}">{shown}</td>'


def property_table(rows: Mapping[str, object], /) -> str:
    """Return a table of names and values."""
    body = "".join(
        f'<tr><th style="{_CELL}">{text(name)}</th><td style="{_CELL}">{text(value)}</td></tr>'
        for name, value in rows.items()
    )
    return f'<table style="{_TABLE}"><tbody>{body}</tbody></table>'


def folded(summary: str, body: str, /) -> str:
    """Return HTML that is folded behind a line of text; ``body`` is HTML."""
    return f"<details><summary>{text(summary)}</summary>{body}</details>"


def preformatted(value: str, /) -> str:
    """Return lines of text as HTML, with their indents."""
    return f"<pre>{escape(printable(value))}</pre>"


def url_list(urls: Sequence[str], /) -> Markup:
    """Return URLs: up to three as they are, and more folded behind their number."""
    n = len(urls)
    if n <= _SHOWN_ITEMS:
        return Markup("<br>".join(map(text, urls)) or "none")
    items = "".join(f"<li>{text(url)}</li>" for url in urls[:MAX_LISTED])
    more = f"<li>… and {n - MAX_LISTED:,} more</li>" if n > MAX_LISTED else ""
    return Markup(folded(f"{n:,}: {urls[0]} … {urls[-1]}", f"<ul>{items}{more}</ul>"))


def make_page(title: str, *parts: str) -> str:
    """Return the HTML of an object for a notebook: its title in bold, and parts that are HTML."""
    inside = "".join(f'<div style="margin:4px 0">{part}</div>' for part in parts if part)
    return f'<div style="overflow-x:auto"><div><strong>{text(title)}</strong></div>{inside}</div>'

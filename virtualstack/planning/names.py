"""Words in the names of files that tell them apart, and the expressions that find them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from virtualstack.planning.sources import FromName

MEMBER = re.compile(
    r"(?:(r\d+i\d+p\d+(?:f\d+)?)|(?:r|m|mem|member|ens|ensemble|run|realization|number)(\d{1,3}))$", re.I
)
"""A word that names the member of an ensemble."""

_WORD = "[^_./-]+"

_KINDS = ("member", "ensemble", "realization", "run", "model", "experiment", "scenario", "tile", "band", "version")
"""Words that say what the word after them tells apart."""

_DATES = {
    r"\d{8}T\d{6}": "%Y%m%dT%H%M%S",
    r"\d{14}": "%Y%m%d%H%M%S",
    r"\d{12}": "%Y%m%d%H%M",
    r"\d{10}": "%Y%m%d%H",
    **{rf"\d{{4}}{x}\d{{2}}{x}\d{{2}}": f"%Y{x[-1]}%m{x[-1]}%d" for x in ("-", "_", r"\.")},
    r"\d{8}": "%Y%m%d",
    r"\d{7}": "%Y%j",
    r"\d{4}/\d{2}/\d{2}": "%Y/%m/%d",
    r"\d{6}": "%Y%m",
    **{rf"\d{{4}}{x}\d{{2}}": f"%Y{x[-1]}%m" for x in ("-", "_", r"\.", "/")},
    r"\d{4}": "%Y",
}
"""Forms of dates in names, the most exact first."""


def dated(urls: Sequence[str], /) -> FromName | None:
    r"""Return the source of dates that are in all names and differ, or ``None``.

    Dates of which each file has its own are preferred to those that come again.

    >>> dated(["a/S2_20200101_B04.tif", "a/S2_20200111_B04.tif"])
    FromName(pattern='(\\d{8})', format='%Y%m%d')
    """
    again = None
    for form, dates in _DATES.items():
        for before in (r"(?<!\d)", "_", "-", r"\.", "", "[A-Za-z]"):
            for after in (r"(?!\d)", "_"):
                source = FromName(f"{before}({form}){after}", format=dates)
                texts = source.texts(urls)
                if len(set(texts)) < 2 or not all(is_date(text, dates) for text in texts):
                    continue
                if len(set(texts)) == len(texts):
                    return _plainest(source, form, texts, urls)
                again = again or _plainest(source, form, texts, urls)
    return again


def _plainest(source: FromName, form: str, texts: Sequence[str | None], urls: Sequence[str]) -> FromName:
    """Return the shortest expression that finds the same texts."""
    for pattern in (f"({form})", f"_({form})", f"_({form})_"):
        plain = FromName(pattern, format=source.format)
        if plain.texts(urls) == texts:
            return plain
    return source


def is_date(text: object, form: str, /) -> bool:
    """Return whether a text is a date of a format; without a day, numbers of other centuries are dates by chance."""
    if not isinstance(text, str):
        return False
    try:
        return 1800 <= datetime.strptime(text, form).year < 2400 or "%d" in form
    except ValueError:
        return False


def member_words(url: str, /) -> list[str]:
    """Return the words of a name that may name a member of an ensemble.

    >>> member_words("a/tas_Amon_r1i1p1f1_1850.nc")
    ['r1i1p1f1']
    """
    return [word for word in re.findall(_WORD, url) if MEMBER.match(word)]


def differing_words(urls: Sequence[str], /) -> Iterator[tuple[tuple[str, ...], str, FromName]]:
    r"""Yield the words that differ between names of one form, what they are called, and the source that finds them.

    >>> [(words, kind, source.pattern) for words, kind, source in differing_words(["t_run_a.nc", "t_run_b.nc"])]
    [(('a', 'b'), 'run', '_([^_./-]+)\\.nc$')]
    """
    split = [_split(url) for url in urls]
    if len({tuple(parts[1::2]) for parts in split}) > 1 or not split:
        return
    for at in range(0, len(split[0]), 2):
        words = tuple(parts[at] for parts in split)
        if len(set(words)) > 1 and (source := _source(split, at, words, urls)) is not None:
            before = {parts[at - 2] for parts in split} if at else set()
            kind = before.pop().lower() if len(before) == 1 else ""
            yield words, kind if kind in _KINDS else "part", source


def _split(url: str) -> list[str]:
    """Return the words of a path, and what is between them at the odd places."""
    return re.split(r"([_./-]+)", url.partition("://")[2] or url)


def _source(split: Sequence[Sequence[str]], at: int, words: Sequence[str], urls: Sequence[str]) -> FromName | None:
    """Return the plainest expression that finds the words, or the numbers of members; ``None`` if there is none."""
    first = max((i for i, x in enumerate(split[0][:at]) if "/" in x), default=-1)
    in_name = not any("/" in x for x in split[0][at:])
    before = "".join(
        re.escape(part).replace(r"\-", "-") if all(parts[i] == part for parts in split) else _WORD
        for i, part in enumerate(split[0][first + 1 : at], first + 1)
    )
    anchor, parent = "^" if in_name else "/", "" if in_name or first < 1 else split[0][first - 1]
    after = "".join(split[0][at + 1 :])
    patterns = [f"{anchor}{before}({_WORD})", f"{before}({_WORD})", f"{re.escape(parent)}/{before}({_WORD})/"]
    if in_name and after and all("".join(parts[at + 1 :]) == after for parts in split):
        patterns = [f"_({_WORD}){re.escape(after)}$", *patterns]
    members = [MEMBER.match(word) for word in words]
    if in_name and all(member is not None and member[1] for member in members):
        patterns = [r"_(r\d+i\d+p\d+(?:f\d+)?)", *patterns]
    wanted = [(pattern, list(words)) for pattern in patterns]
    numbers = [member[2] for member in members if member is not None and member[2]]
    if len(numbers) == len(words):
        letters = re.match("[A-Za-z]*", words[0])
        stem = "" if letters is None else letters[0]
        forms = (rf"_{stem}(\d+)", rf"^{before}{stem}(\d+)") if in_name else (rf"/{stem}(\d+)/",)
        wanted = [(form, numbers) for form in forms] + wanted
    return next((FromName(pattern) for pattern, texts in wanted if FromName(pattern).texts(urls) == texts), None)

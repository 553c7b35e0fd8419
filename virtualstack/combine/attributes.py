"""Attributes of many files as those of one dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from virtualstack.combine.part import Part
from virtualstack.combine.rules import Rules
from virtualstack.errors import CombineError
from virtualstack.manifests import Refusal, same_value

__all__ = ["merge_attributes"]

_MEANING = ("units", "positive")
"""Values of files that disagree here are other quantities, though their numbers join."""


def merge_attributes(
    attributes: Sequence[Mapping[str, Any]], rules: Rules, /, *, name: str | None, sources: Sequence[Part]
) -> tuple[dict[str, Any], tuple[Refusal, ...]]:
    """Give the attributes that hold for all, and a note on each that was left out.

    Attributes that some files lack are kept, as with xarray's ``"drop_conflicts"``.

    Parameters
    ----------
    attributes
        Of one variable, or of the datasets.
    rules
        With ``combine_attrs``.
    name
        Of the variable; ``None`` for a dataset.
    sources
        Where they are from.

    Raises
    ------
    CombineError
        ``units`` or ``positive`` of a variable differ, and ``combine_attrs`` is not given; or it asks for agreement.
    """
    how = rules.combine_attrs
    first = attributes[0]
    if how == "drop":
        return {}, ()
    if how == "override":
        return dict(first), ()
    if callable(how):
        return dict(how([dict(x) for x in attributes], None)), ()
    merged = dict(first)
    conflicts: dict[str, int] = {}
    for number, other in enumerate(attributes):
        if other is first or _is_equal(other, first):
            continue
        if how == "identical" and other.keys() != first.keys():
            key = sorted(other.keys() ^ first.keys())[0]
            _refuse(key, name, first.get(key), other.get(key), sources[0], sources[number])
        for key, value in other.items():
            if key not in merged:
                if key not in conflicts:
                    merged[key] = value
            elif not _same(merged[key], value):
                if how is not None and how != "drop_conflicts":
                    _refuse(key, name, merged[key], value, sources[0], sources[number])
                if how is None and name is not None and key in _MEANING:
                    _refuse(key, name, merged[key], value, sources[0], sources[number])
                del merged[key]
                conflicts[key] = number
    where = "the dataset" if name is None else f"'{name}'"
    notes = [
        Refusal(
            path=name or "/",
            reason=f"attribute '{key}' of {where} is left out: it differs between files, first in "
            f"{sources[number].called}",
            kind="noted",
        )
        for key, number in conflicts.items()
    ]
    return merged, tuple(notes)


def _is_equal(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    try:
        return bool(a == b)
    except ValueError:  # of arrays
        return False


def _same(a: object, b: object) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return type(a) is type(b) and a == b
    try:
        return same_value(a, b)
    except (ValueError, TypeError):
        return False


def _refuse(key: str, name: str | None, left: object, right: object, a: Part, b: Part) -> None:
    whose = "the dataset" if name is None else f"variable '{name}'"
    raise CombineError(
        f"attribute '{key}' of {whose} is {left!r} in {a.called} and {right!r} in {b.called}; convert one of them with "
        "preprocess=, or say which counts: combine_options={'combine_attrs': 'override'} takes the first file's, "
        "'drop_conflicts' leaves it out",
        variable=name,
        property=key,
        left=left,
        right=right,
        left_url=a.source,
        right_url=b.source,
    )

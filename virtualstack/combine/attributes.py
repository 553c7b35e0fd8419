"""Attributes of many files as those of one dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from virtualstack.combine.conflict_rules import Rules
from virtualstack.combine.part import Attribute, Part
from virtualstack.dataset import virtual_array
from virtualstack.errors import CombineError
from virtualstack.manifests import same_dates_in, same_value, value_changing

__all__ = ["merge_attributes", "with_attributes"]

_MEANING = ("units", "positive", "calendar")
"""Values of files that disagree here are other quantities, though their numbers join."""
_TIMES = ("units", "calendar")
_MAPPING = ("grid_mapping_name", "crs_wkt", "spatial_ref")
"""Of what says where coordinates are; without one that differs, the others would say something else."""


def merge_attributes(
    attributes: Sequence[Mapping[str, Any]], rules: Rules, /, *, name: str | None, sources: Sequence[Part]
) -> tuple[dict[str, Any], frozenset[Attribute]]:
    """Give the attributes that hold for all, and which were left out.

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
        ``units``, ``positive`` or the coordinate reference system of a variable differ, and ``combine_attrs`` is not
        given; or it asks for agreement.
    """
    how = rules.combine_attrs
    first = attributes[0]
    if how == "drop":
        return {}, frozenset()
    if how == "override":
        return dict(first), frozenset()
    if callable(how):
        return dict(how([dict(x) for x in attributes], None)), frozenset()
    left_out = {x.key for part in sources for x in part.left_out if x.name == name}
    merged = {key: value for key, value in first.items() if key not in left_out}
    for other, source in zip(attributes, sources, strict=True):
        if other is first or _is_equal(other, first):
            continue
        if how == "identical" and other.keys() != first.keys():
            key = sorted(other.keys() ^ first.keys())[0]
            _refuse(key, name, first.get(key), other.get(key), sources[0], source)
        for key, value in other.items():
            if key in left_out:
                continue
            if key not in merged:
                merged[key] = value
            elif not (_same(merged[key], value) or (key in _TIMES and same_dates_in({**first, **merged}, other))):
                is_other = how is None and name is not None and _changes_meaning(key, value, merged)
                if is_other or how in ("identical", "no_conflicts"):
                    _refuse(key, name, merged[key], value, sources[0], source)
                del merged[key]
                left_out.add(key)
    return merged, frozenset(Attribute(name, key) for key in left_out)


def with_attributes(variable: xr.Variable, attributes: Mapping[str, Any], /) -> xr.Variable:
    """Give the variable with other attributes; those that change values stay its own, and none are added.

    An array knows how its numbers are packed; what joins with it means the same, and what does not is not in it.
    """
    array = virtual_array(variable)
    own = value_changing(variable.attrs) if array is None else array.cf
    if array is not None:
        kept = {key: value for key, value in own.items() if key in variable.attrs or key in attributes}
        attributes = {**attributes, **kept}
    added = value_changing(attributes).keys() - own.keys()
    changed: xr.Variable = variable.copy(deep=False)
    changed.attrs = {key: value for key, value in attributes.items() if key not in added}
    return changed


def _changes_meaning(key: str, value: object, attributes: Mapping[str, Any]) -> bool:
    """Tell whether values mean something else with another value of an attribute; of grid mappings, all numbers do."""
    is_mapping = any(name in attributes for name in _MAPPING)
    return key in _MEANING or (is_mapping and (key in _MAPPING or not isinstance(value, str)))


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

"""What a plan leaves open, as errors that name the files and the options that decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from virtualstack.errors import Code, CombineError, Remedy
from virtualstack.planning.facts import FileFacts
from virtualstack.planning.labels import Named, is_dates, is_jitter, misfit, span
from virtualstack.planning.names import dated, is_date
from virtualstack.planning.places import Place, find_places, highest, lowest
from virtualstack.planning.sources import FromAttribute, FromName, name_of
from virtualstack.planning.telling import Axis, enough_words, unequal_dims
from virtualstack.printable import counted, first_names

_KEEP = (
    Remedy("{} keeps the first of them", duplicates="first"),
    Remedy("{} keeps the last of them", duplicates="last"),
)

_FORMATS = ("%Y:%m:%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d", "%Y%m%d")
_OF_PRODUCTION = ("creat", "history", "modif", "process", "produc", "stamp")


def new_dimensions(sources: Mapping[str, FromName | FromAttribute], /) -> dict[str, Code]:
    r"""Return the value of ``new_dim=`` that makes dimensions.

    >>> new_dimensions({"time": FromName(r"_(\d{8})", format="%Y%m%d")})
    {'time': vs.FromName(r'_(\d{8})', format='%Y%m%d')}
    """
    made = {}
    for dim, source in sources.items():
        text = source.pattern if isinstance(source, FromName) else f"@{source.name}"
        shown = f"r'{text}'" if isinstance(source, FromName) and "'" not in text else repr(text.removeprefix("@"))
        dates = "" if source.format is None else f", format={source.format!r}"
        words = text if source.format is None else f"{text}:{source.format}"
        made[dim] = Code(f"vs.{type(source).__name__}({shown}{dates})", words)
    return made


def duplicated(
    files: Sequence[FileFacts],
    pairs: Sequence[Any],
    words: Sequence[Axis],
    /,
    *,
    is_alone: bool,
    is_everywhere: bool,
) -> CombineError:
    """Return the error on files that have the same labels.

    If words in the names tell files apart everywhere, the files are bands or members, and none of them is left out. Nor
    is one of two files with the same name in two folders, as experiments are kept.
    """
    first = pairs[0]
    left, right = sorted((first.kept, first.other))
    a, b = files[left], files[right]
    what = f"{a.called} and {b.called} both have {first.labels}"
    if a.source is not None and a.source == b.source:
        what, words = f"{a.called} is given twice", ()
    n_more = len(pairs) - 1
    more = f", as {'does' if n_more == 1 else 'do'} {counted(n_more, 'more pair')}" if n_more else ""
    sources = _from_names(words)
    telling = [Remedy("{} tells them apart", new_dim=new_dimensions(sources))] if sources else []
    are_in_folders = a.source is not None and b.source is not None and name_of(a.source) == name_of(b.source)
    kept = () if telling and (are_in_folders or (is_everywhere and not is_alone)) else _KEEP
    return CombineError(
        f"{what}{more}",
        *([*telling, *kept] if is_alone else [*kept, *telling]),
        property="labels",
        left_url=a.source,
        right_url=b.source,
    )


def overlapping(files: Sequence[Named], places: Sequence[Place], tolerance: Any, /) -> CombineError:
    """Return the error on files whose labels overlap along a dimension, or nearly agree."""
    crowded = [place for place in places if not place.is_disjoint] or places
    for place in crowded:
        if is_jitter(place.found):
            return misfit(place.dim, files, place.found, tolerance)
    dim, found = crowded[0].dim, crowded[0].found
    order = sorted(range(len(found.labels)), key=lambda n: lowest(found.labels[n]))
    pairs = [(a, b) for a, b in pairwise(order) if not highest(found.labels[a]) < lowest(found.labels[b])]
    a, b = pairs[0] if pairs else order[:2]
    left, right = files[found.first(a)], files[found.first(b)]
    spans = f"{span(found.labels[a])} in {left.called} and {span(found.labels[b])} in {right.called}"
    common = found.labels[a].intersection(found.labels[b])
    if len(common):
        what = (
            f"coordinate '{dim}' overlaps: {spans} have {counted(len(common), 'label')} in common, such as {common[0]}"
        )
        remedies = [Remedy("leave a file out"), Remedy("select a part of the files with", preprocess=...)]
    else:
        what = f"labels of '{dim}' alternate between files: {spans}"
        remedies = [Remedy("join them one after another with {} in a vstack", "Repository.update")]
    return CombineError(
        what,
        *remedies,
        variable=dim,
        property="labels",
        left=(found.labels[a][0], found.labels[a][-1]),
        right=(found.labels[b][0], found.labels[b][-1]),
        left_url=left.source,
        right_url=right.source,
    )


def at_one_place(
    files: Sequence[FileFacts], words: Sequence[Axis] = (), /, *, other: str | None = None
) -> CombineError:
    """Return the error on files that nothing tells apart, or only their names or attributes."""
    if files[0].groups and not any(file.names for file in files):
        return CombineError(
            f"{files[0].called} and the other files have no data variables in this group, but groups below it have: "
            f"{first_names(files[0].groups)}",
            Remedy("join one of them with", group=files[0].groups[0]),
            property="presence",
            left_url=files[0].source,
        )
    if files[0].sizes and files[1].sizes and not files[0].sizes.keys() & files[1].sizes.keys():
        return CombineError(
            f"the files have no dimension in common to join them along: {files[0].called} has "
            f"{sorted(files[0].sizes)}, {files[1].called} has {sorted(files[1].sizes)}",
            Remedy("give files of one kind"),
            property="dimension",
            left_url=files[0].source,
            right_url=files[1].source,
        )
    if uneven := unequal_dims(files):
        dim = min(uneven)
        first = next(file for file in files if dim in file.sizes)
        odd = next(file for file in files if file.sizes.get(dim, first.sizes[dim]) != first.sizes[dim])
        a, b = first.sizes[dim], odd.sizes[dim]
        return CombineError(
            f"{first.called} has {a:,} elements along '{dim}', {odd.called} has {b:,}, and nothing says how they join",
            Remedy("join only files of the same lengths"),
            property="dimension",
            left=a,
            right=b,
            left_url=first.source,
            right_url=odd.source,
        )
    urls = [file.source or "" for file in files]
    sources: list[dict[str, FromName | FromAttribute]] = []
    dim = "time" if not any("time" in file.sizes or "time" in file.names for file in files) else "date"
    if (dates := dated(urls)) is not None:
        days = np.unique([text or "" for text in dates.texts(urls)], return_inverse=True)[1]
        others = enough_words(files, [days]) if days.max() + 1 < len(files) else []
        sources.append({dim: dates, **_from_names(others)})
    sources += [{dim: source} for source in _date_attributes(files)]
    if not sources:
        sources += [found] if (found := _from_names(words)) else []
    arguments: list[dict[str, Any]] = [{"labels": {dim: name}} for dim, name in _other_times(files)[:1]]
    arguments = arguments or [{"new_dim": new_dimensions(x)} for x in sources[:2]]
    remedies = [Remedy("" if i else "say what tells them apart with", **x) for i, x in enumerate(arguments)]
    same = sorted(set.intersection(*(set(file.labels) for file in files)))
    return CombineError(
        f"{files[0].called} and {files[1].called} have {f'the same coordinates {same}' if same else 'no coordinates'}, "
        "so their order is not known"
        f"{'' if other is None else f', although {other}'}",
        *(remedies or [Remedy("give each file a label with", new_dim=...)]),
        property="labels",
        left_url=files[0].source,
        right_url=files[1].source,
    )


def _from_names(words: Sequence[Axis]) -> dict[str, FromName | FromAttribute]:
    return {axis.dim: axis.source for axis in words if isinstance(axis.source, FromName)}


def _other_times(files: Sequence[FileFacts]) -> list[tuple[str, str]]:
    """Return dimensions whose labels are the same in all files, with other times along them that are not."""
    return [
        (dim, name)
        for dim, its in files[0].along.items()
        for name, labels in its.items()
        if dim in files[0].labels
        and is_dates(labels)
        and all(name in file.along.get(dim, {}) for file in files)
        and not any(file.along[dim][name].isin(labels).any() for file in files[1:])
    ]


def _date_attributes(files: Sequence[FileFacts]) -> list[FromAttribute]:
    """Return attributes that are another date in each file."""
    found = []
    for name in files[0].attributes:
        texts = [file.attributes.get(name) for file in files]
        if len(set(map(str, texts))) < len(texts) or any(x in name.lower() for x in _OF_PRODUCTION):
            continue
        dates = next((x for x in _FORMATS if all(is_date(t, x) for t in texts)), None)
        if dates is not None:
            found.append(FromAttribute(name, format=dates))
    return found


def _decides(files: Sequence[FileFacts], dim: str, name: str) -> bool:
    """Return whether the values of a text variable put all files in an order."""
    labels = [x for file in files if (x := file.texts.get(dim, {}).get(name)) is not None]
    if len(labels) < len(files) or any(x.hasnans or not (x.is_monotonic_increasing and x.is_unique) for x in labels):
        return False
    places = find_places(files, [{dim: x} for x in labels])
    return bool(places) and places[0].is_disjoint


def without_labels(files: Sequence[FileFacts], dims: Sequence[str], /) -> CombineError:
    """Return the error on files with a dimension to follow each other along, and no labels of it."""
    dim = dims[0]
    names = [name for name in files[0].texts.get(dim, ()) if _decides(files, dim, name)]
    return CombineError(
        f"{files[0].called} has no labels along '{dim}' that decide the order",
        *(Remedy(f"{{}} takes those of '{name}'", labels={dim: name}) for name in names[:1]),
        Remedy("{} joins the files in the given order", combine="nested", concat_dim=dim),
        variable=dim,
        property="labels",
        left=dim,
        left_url=files[0].source,
    )

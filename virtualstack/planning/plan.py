"""The plan of how files join: along which dimensions, in which order, and what is ambiguous."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from virtualstack.errors import CombineError
from virtualstack.planning.dimension import main_dimension
from virtualstack.planning.facts import FileFacts
from virtualstack.planning.gaps import MissingSteps, missing_steps
from virtualstack.planning.labels import Labels, all_labels, distinct_labels, is_dates, is_jitter, misfit, span
from virtualstack.planning.overlaps import count_shared, label_codes
from virtualstack.planning.places import Place, find_places, labelled_in_all
from virtualstack.planning.questions import at_one_place, duplicated, overlapping, without_labels
from virtualstack.planning.sources import FromAttribute, FromName, names_of_two
from virtualstack.planning.telling import Axis, candidates, enough_words, telling_words, unequal_dims
from virtualstack.printable import counted

type Duplicates = Literal["first", "last", "raise"]

_MAX_NAMED_PAIRS = 1 << 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """Two files that have the same labels."""

    kept: int
    other: int
    labels: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Plan:
    """How files join.

    Parameters
    ----------
    dims
        Dimensions along which files follow each other, new ones first.
    grows
        The one that later files continue, or ``None``.
    new
        Dimensions that the files do not have, with what gives their labels: a coordinate without a dimension
        (``"scalar"``), an attribute, or a place in the names.
    labels
        Label of each file along each new dimension.
    along
        What decides the order along dimensions without labels: labels of each file, which the result does not get.
    by
        Name of the coordinate or attribute that gives ``along``.
    kept
        Elements of a file along a dimension that are kept, if not all of them are.
    left_out
        Files of which nothing is kept.
    empty
        Those of them that have no elements along a dimension of the others, and add nothing.
    order
        The other files in the order of their places.
    duplicates
        Files that have labels of other files.
    gaps
        Missing steps.
    grids
        Dimensions of each grid, if the files are tiles of several: variables of each are joined by themselves.
    question
        What is ambiguous, with the options that decide; ``None`` if the plan is complete.
    is_crowded
        If true, the labels of dimensions do not tell all files apart, so that more facts may help.
    """

    dims: tuple[str, ...] = ()
    grows: str | None = None
    new: Mapping[str, Literal["scalar"] | FromAttribute | FromName] = field(default_factory=dict)
    labels: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    along: Mapping[str, Mapping[int, Labels]] = field(default_factory=dict)
    by: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[int, Mapping[str, NDArray[np.intp]]] = field(default_factory=dict)
    left_out: tuple[int, ...] = ()
    empty: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    duplicates: tuple[Duplicate, ...] = ()
    gaps: tuple[MissingSteps, ...] = ()
    grids: tuple[tuple[str, str], ...] = ()
    question: CombineError | None = None
    is_crowded: bool = False

    def are_apart(self, i: int, j: int, files: Sequence[FileFacts], /, *, but: str | None = None) -> bool:
        """Return whether two files have other labels along a dimension other than one, as members and tiles."""
        a, b = (_all_labels(files[k], k, self.labels, self.along) for k in (i, j))
        return any(dim != but and dim in b and not a[dim].equals(b[dim]) for dim in a)

    def notes(self, files: Sequence[FileFacts], /, *, gaps: bool = True) -> list[str]:
        """Return what was decided, in sentences: new dimensions, files that are left out, and missing steps."""
        said = []
        for dim, source in self.new.items():
            by = "a coordinate of each file"
            if isinstance(source, FromAttribute):
                by = f"an attribute of each file: {len(set(map(str, self.labels[dim])))} values"
            elif isinstance(source, FromName):
                by = f"what their names have at {source.pattern!r}: {len(set(map(str, self.labels[dim])))} values"
            said.append(f"the files are joined along '{dim}', {by}")
        said += [f"the order along '{dim}' is that of {by}" for dim, by in self.by.items()]
        for pair in self.duplicates if self.question is None else ():
            other, kept = names_of_two(*(files[i].source or "a dataset" for i in (pair.other, pair.kept)))
            said.append(f"'{other}' is not used for {pair.labels}, which '{kept}' has")
        for gap in self.gaps if gaps else ():
            verb = "is" if gap.n_steps == 1 else "are"
            steps = f"{counted(gap.n_steps, 'step')} of '{gap.dim}' {verb} missing"
            said.append(f"{steps} between {gap.after} and {gap.before}")
        return said


def make_plan(
    files: Sequence[FileFacts],
    /,
    *,
    dims: Collection[str] = (),
    along: Collection[str] = (),
    tolerance: Any = None,
    duplicates: Duplicates | None = None,
    is_exact: bool = False,
) -> Plan:
    """Return how files join; with ``is_exact``, labels that differ and do not follow each other are a question.

    Examples
    --------
    >>> scenes = [FileFacts(source=f"{t}.nc", names=frozenset({"v"}), scalars={"t": t}) for t in (20, 0, 10)]
    >>> plan = make_plan(scenes)
    >>> plan.dims, plan.order
    (('t',), (1, 2, 0))
    """
    maker = _Maker(files, tolerance, duplicates, is_exact)
    by_names: dict[frozenset[str], list[int]] = {}
    for i, file in enumerate(files):
        if i not in maker.empty:
            by_names.setdefault(file.names, []).append(i)
    maker.require([*dims, *along])
    try:
        for members in by_names.values():
            maker.tell_apart(members)
        maker.check_along(along)
        return maker.plan(by_names.values())
    except CombineError as question:
        return maker.plan_of(question)


class _Maker:
    """The plan while it is made."""

    def __init__(
        self, files: Sequence[FileFacts], tolerance: Any, duplicates: Duplicates | None, is_exact: bool
    ) -> None:
        self.files = list(files)
        self.is_exact = is_exact
        self.tolerance = tolerance
        self.keep = None if duplicates == "raise" else duplicates
        self.new: dict[str, Literal["scalar"] | FromAttribute | FromName] = {}
        self.along: dict[str, dict[int, Labels]] = {}
        self.by: dict[str, str] = {}
        self.kept: dict[int, dict[str, NDArray[np.intp]]] = {}
        self.duplicates: list[Duplicate] = []
        filled = {dim for file in files for dim, n in file.sizes.items() if n}
        has_none = [i for i, x in enumerate(files) if any(not n and dim in filled for dim, n in x.sizes.items())]
        self.empty = [i for i in has_none if not _has_own_dates(i, files)]
        self.left_out: set[int] = {*self.empty}
        self.labels: dict[str, list[Any]] = {}
        self.is_crowded = False

    # -- what tells files apart ---------------------------------------------------------------------------

    def require(self, dims: Collection[str]) -> None:
        """Give the files dimensions that they have as a coordinate without a dimension, or as an attribute."""
        for dim in dims:
            if all(dim in x.scalars for x in self.files):
                self.new[dim] = "scalar"
            elif all(
                isinstance(x.attributes.get(dim), str | int | np.integer) and dim not in x.sizes and dim not in x.names
                for x in self.files
            ):
                self.new[dim] = FromAttribute(dim)

    def check_along(self, dims: Collection[str]) -> None:
        """Refuse files without a dimension that they must be joined along, or without labels of it."""
        for dim in dims:
            for file in self.files:
                if dim in self.new or dim in self.along or dim in file.labels:
                    continue
                if dim in file.sizes and len(self.files) > 1:
                    raise without_labels([file, *self.files], [dim])
                if dim not in file.sizes:
                    raise CombineError(
                        f"{file.called} has no dimension '{dim}' to join along; it has {sorted(file.sizes)}",
                        property="dimension",
                        left=dim,
                        left_url=file.source,
                    )

    def tell_apart(self, members: Sequence[int]) -> None:
        """Find what tells apart files of the same variables whose labels are the same."""
        files = [self.files[i] for i in members]
        codes = self._codes(members)
        if not _crowds(codes, len(files)):
            return
        self.is_crowded = True
        for stage in candidates(files):
            codes = self._taken(stage, codes, members)
        same = all(self._are_alike([files[k] for k in crowd]) for crowd in _crowds(codes, len(files)))
        words = list(telling_words(files, codes)) if same else []
        if all(is_member for _, is_member in words):
            self._taken([[axis] for axis, _ in words], codes, members)

    def _are_alike(self, files: Sequence[FileFacts]) -> bool:
        """Return whether files have the same labels, and the same coordinates along dimensions without labels."""
        dims = labelled_in_all([file.labels for file in files])
        along = {(dim, name): x for dim, its in files[0].along.items() if dim not in dims for name, x in its.items()}
        return not any(self._differ(files, dim) for dim in dims) and all(
            x.equals(file.along.get(dim, {}).get(name, x)) for file in files for (dim, name), x in along.items()
        )

    def _codes(self, members: Sequence[int]) -> list[NDArray[np.intp]]:
        """Return the places of files along each dimension that is known."""
        files = [self.files[i] for i in members]
        codes = [place.rank for place in find_places(files, [x.labels for x in files], self.tolerance)]
        for dim, source in self.new.items():
            values = self._values(dim, source, files)
            numbers = {value: k for k, value in enumerate(dict.fromkeys(values))}
            codes.append(np.array([numbers[x] for x in values], np.intp))
        return codes

    def _taken(
        self, stage: Sequence[Sequence[Axis]], codes: list[NDArray[np.intp]], members: Sequence[int]
    ) -> list[NDArray[np.intp]]:
        """Take what tells more files apart, as long as there is something: the one that makes the fullest grid."""
        rest = list(stage)
        while rest and (crowds := _crowds(codes, len(members))):
            n = sum(map(len, crowds)) - len(crowds)
            ranked = []
            for k, axes in enumerate(rest):
                more = [*codes, *(axis.code for axis in axes)]
                left = _crowds(more, len(members))
                n_left = sum(map(len, left)) - len(left)
                ranked.append((n_left, float(np.prod([len(np.unique(x)) for x in more])), k))
            n_left, _, best = min(ranked)
            if n_left >= n:
                break
            for axis in rest.pop(best):
                codes = [*codes, axis.code]
                self._add(axis, members)
        return codes

    def _add(self, axis: Axis, members: Sequence[int]) -> None:
        if axis.source != "along":
            self.new[axis.dim] = axis.source
            return
        self.by[axis.dim] = axis.by
        for k, i in enumerate(members):
            self.along.setdefault(axis.dim, {})[i] = axis.labels[k]
            if axis.kept and len(axis.labels[k]) < self.files[i].sizes[axis.dim]:
                self.kept.setdefault(i, {})[axis.dim] = np.arange(self.files[i].sizes[axis.dim])[axis.kept[k]]

    def _values(self, dim: str, source: object, files: Sequence[FileFacts]) -> list[Any]:
        if isinstance(source, FromName):
            texts = source.texts([file.source or "" for file in files])
            return [int(x) for x in texts if x] if all(x and x.isdecimal() for x in texts) else list(texts)
        if isinstance(source, FromAttribute):
            return [x.item() if isinstance(x := file.attributes.get(dim), np.integer) else x for file in files]
        return [file.scalars.get(dim) for file in files]

    # -- files with the same labels -----------------------------------------------------------------------

    def plan(self, groups: Collection[Sequence[int]]) -> Plan:
        """Return the plan, after files with the same labels are found."""
        for dim, source in self.new.items():
            self.labels[dim] = self._values(dim, source, self.files)
        self.files = [
            replace(file, labels=_all_labels(file, i, self.labels, self.along)) for i, file in enumerate(self.files)
        ]
        for members in groups:
            self._resolve(members)
        return self.plan_of(None)

    def _resolve(self, members: Sequence[int]) -> None:
        """Decide between files with the same labels."""
        files = [self.files[i] for i in members]
        places = find_places(files, [x.labels for x in files], self.tolerance)
        codes = [place.rank for place in places]
        for crowd in _crowds(codes, len(members)):
            self._decide([members[k] for k in crowd], members, codes)

    def _decide(self, crowd: Sequence[int], members: Sequence[int], codes: Sequence[NDArray[np.intp]]) -> None:
        """Decide between files at one place; a question if nothing decides."""
        files = [self.files[i] for i in crowd]
        differing = [dim for dim in labelled_in_all([file.labels for file in files]) if self._differ(files, dim)]
        if len(differing) > 1:
            raise self._overlap(crowd, members)
        for dim in () if differing else labelled_in_all([file.labels for file in files]):
            found = distinct_labels([x.labels[dim] for x in files], self.tolerance)
            if is_jitter(found):
                raise misfit(dim, files, found, self.tolerance)
        words = [] if differing else enough_words([self.files[i] for i in members], codes)
        has_times = any(dim in files[0].times or is_dates(x) for dim, x in files[0].labels.items())
        has_times |= bool(files[0].scalar_times)
        if not differing and not has_times and len(crowd) == len(members):
            unlabelled = _unlabelled(files)
            raise without_labels(files, unlabelled) if unlabelled else at_one_place(files, words)
        if not differing and (other := _other_place(files)) is not None:
            raise at_one_place(files, words, other=other)
        same = self._same_labels(crowd, differing[0] if differing else None)
        self.duplicates += same
        if self.keep is None and same:
            n_places = len(set(zip(*(code.tolist() for code in codes), strict=True)))
            raise duplicated(
                self.files,
                same,
                words,
                is_alone=len(crowd) == len(members),
                is_everywhere=len(_crowds(codes, len(members))) == n_places,
            )
        if not same:
            raise self._overlap(crowd, members)

    def _overlap(self, crowd: Sequence[int], members: Sequence[int]) -> CombineError:
        """Return the error on files that overlap each other, or that another file lies between."""
        for some in (crowd, members, crowd):
            files = [self.files[i] for i in some]
            places = find_places(files, [x.labels for x in files], self.tolerance)
            if not all(place.is_disjoint for place in places):
                break
        return overlapping(files, places, self.tolerance)

    def _differ(self, files: Sequence[FileFacts], dim: str) -> bool:
        found = distinct_labels([x.labels[dim] for x in files], self.tolerance)
        return len(found.labels) > 1 and not is_jitter(found)

    def _same_labels(self, crowd: Sequence[int], dim: str | None) -> list[Duplicate]:
        """Return which labels of a file an earlier one has, and leave them out; ``None`` stands for all labels."""
        order = list(crowd if self.keep != "last" else reversed(crowd))
        if dim is None:
            self.left_out.update(order[1:])
            return [Duplicate(kept=order[0], other=i, labels=self._place_text(i)) for i in order[1:]]
        labels = [self.files[i].labels[dim] for i in order]
        codes = label_codes(labels)
        owner = np.repeat(np.arange(len(order)), [len(x) for x in codes])
        first = owner[np.unique(np.concatenate(codes), return_index=True)[1]]
        for k, i in enumerate(order):
            is_seen = first[codes[k]] != k
            if is_seen.all():
                self.left_out.add(i)
            elif is_seen.any():
                self.kept.setdefault(i, {})[dim] = np.flatnonzero(~is_seen)
        return [
            Duplicate(kept=order[a], other=order[b], labels=f"{dim} {span(labels[b][np.isin(codes[b], codes[a])])}")
            for a, b in sorted(count_shared(codes, _MAX_NAMED_PAIRS).counts)
            if a != b
        ]

    def _place_text(self, i: int) -> str:
        labels, values = self.files[i].labels, self.files[i].scalars
        scalars = [f"{name} {values[name]}" for name in sorted(self.files[i].scalar_times & values.keys())]
        dims = [dim for dim in labels if dim in self.new or is_dates(labels[dim])] or ([] if scalars else list(labels))
        texts = [f"{dim} {span(labels[dim])}" for dim in dims]
        return ", ".join(texts or scalars)

    # -- the result ---------------------------------------------------------------------------------------

    def plan_of(self, question: CombineError | None) -> Plan:
        """Return the plan."""
        there = [i for i in range(len(self.files)) if i not in self.left_out]
        order, dims = there, (*self.new,)
        if question is None and len(there) > 1:
            places = self._places(there)
            keys = [place.rank for place in reversed(places)]
            order = [there[k] for k in np.lexsort(keys)] if keys else there
            groups = self._side_by_side(there)
            if len(groups) == 1:
                own = [(there, place) for place in places]
            else:
                own = [(group, place) for group in groups for place in self._places(group)]
            dims = tuple(dict.fromkeys((*self.new, *(place.dim for _, place in own if place.is_disjoint))))
            apart = [(group, place) for group, place in own if not place.is_disjoint]
            if len(groups) > 1:
                apart += [(there, place) for place in places if not self._are_whole(place.dim, groups)]
            if self.is_exact and apart:
                group, place = apart[0]
                question = misfit(place.dim, [self.files[i] for i in group], place.found, self.tolerance)
        return Plan(
            dims=dims,
            grows=self._grows(dims),
            new=self.new,
            labels=self.labels,
            along=self.along,
            by=self.by,
            kept=self.kept,
            left_out=tuple(sorted(self.left_out)),
            empty=tuple(self.empty),
            order=tuple(order),
            duplicates=tuple(self.duplicates),
            gaps=tuple(self._gaps(there, dims)) if question is None else (),
            grids=tuple(x.dims for x in self.files[0].grids if self.along.keys() >= {*x.dims}) if self.files else (),
            question=question,
            is_crowded=self.is_crowded,
        )

    def _places(self, members: Sequence[int]) -> list[Place]:
        return find_places([self.files[i] for i in members], [self._kept_labels(i) for i in members], self.tolerance)

    def _side_by_side(self, members: Sequence[int]) -> list[list[int]]:
        """Return the files of the same variables, if each variable is in files of one kind; else all files."""
        groups: dict[frozenset[str], list[int]] = {}
        for i in members:
            groups.setdefault(self.files[i].names, []).append(i)
        is_apart = sum(map(len, groups)) == len(frozenset[str]().union(*groups))
        return list(groups.values()) if is_apart else [[*members]]

    def _are_whole(self, dim: str, groups: Sequence[Sequence[int]]) -> bool:
        """Return whether the files of each kind have the same labels together."""
        whole = [all_labels([self._kept_labels(i)[dim] for i in group], self.tolerance) for group in groups]
        return len(distinct_labels(whole, self.tolerance).labels) == 1

    def _kept_labels(self, i: int) -> dict[str, Labels]:
        kept = self.kept.get(i, {})
        return {
            dim: x if dim not in kept or len(x) == len(kept[dim]) else x[kept[dim]]
            for dim, x in self.files[i].labels.items()
        }

    def _grows(self, dims: Sequence[str]) -> str | None:
        """Return the dimension that later files continue: the one that files declare, or else one with labels."""
        declared = main_dimension(self.files)
        others = [dim for dim in dims if not isinstance(self.new.get(dim), FromAttribute | FromName)]
        return declared if declared in dims else next(iter(others or dims), None)

    def _gaps(self, there: Sequence[int], dims: Sequence[str]) -> list[MissingSteps]:
        gaps = []
        for dim in dims:
            if dim in self.along or isinstance(self.new.get(dim), FromAttribute | FromName):
                continue
            parts = [x for i in there if (x := self._kept_labels(i).get(dim)) is not None]
            if not parts or len({x.dtype for x in parts}) > 1:
                continue
            found = missing_steps(dim, parts)
            gaps += [] if isinstance(found, str) else found
        return gaps


def _all_labels(
    file: FileFacts, i: int, new: Mapping[str, Sequence[Any]], along: Mapping[str, Mapping[int, Labels]]
) -> dict[str, Labels]:
    """Return the labels of a file, with those that it has by the plan."""
    return {
        **{dim: pd.Index([labels[i]]) for dim, labels in new.items() if labels[i] is not None},
        **{dim: its[i] for dim, its in along.items() if i in its},
        **file.labels,
    }


def _has_own_dates(i: int, files: Sequence[FileFacts]) -> bool:
    """Return whether a file has dates that no other file has."""
    others = [file for k, file in enumerate(files) if k != i]
    return any(
        is_dates(x) and len(x) and not any(x.equals(file.labels.get(dim)) for file in others)
        for dim, x in files[i].labels.items()
    )


def _unlabelled(files: Sequence[FileFacts]) -> list[str]:
    """Return the dimensions without labels that the files may follow each other along: unlimited, or with other texts.

    All other dimensions have the same length in all files.
    """
    common = [dim for dim in files[0].dims if all(dim in file.dims and dim not in file.labels for file in files)]
    unlimited = frozenset.intersection(*(file.unlimited for file in files))
    return [dim for dim in common if (dim in unlimited or _other_texts(files, dim)) and unequal_dims(files) <= {dim}]


def _other_texts(files: Sequence[FileFacts], dim: str) -> bool:
    """Return whether texts along a dimension differ: stations of the same names are no labels that go on."""
    first = files[0].texts.get(dim, {})
    return any(not x.equals(file.texts.get(dim, {}).get(name)) for file in files[1:] for name, x in first.items())


def _other_place(files: Sequence[FileFacts]) -> str | None:
    """Return what shows that files with the same labels are no duplicates, or ``None``."""
    first = files[0]
    for file in files[1:]:
        for dim, n in file.sizes.items():
            if n != first.sizes.get(dim, n):
                return f"'{dim}' has {counted(first.sizes[dim], 'element')} in one and {n} in the other"
        for dim, its in file.along.items():
            for name, labels in its.items():
                if name in first.along.get(dim, {}) and not labels.equals(first.along[dim][name]):
                    return f"'{name}' differs"
        if any(not np.array_equal(a.corner, b.corner) for a, b in zip(file.grids, first.grids, strict=False)):
            return "their 2-D coordinates differ"
    return None


def _crowds(codes: Sequence[NDArray[np.intp]], n: int) -> list[list[int]]:
    """Return the groups of files with the same codes, if they are several."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i in range(n):
        groups.setdefault(tuple(int(code[i]) for code in codes), []).append(i)
    return [group for group in groups.values() if len(group) > 1]

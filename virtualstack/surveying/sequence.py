"""Files along the dimension: missing labels, duplicates, and files that interleave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from virtualstack.manifests import ManifestGroup
from virtualstack.planning.gaps import MissingSteps, missing_steps
from virtualstack.planning.labels import Labels, distinct_labels, kind_of, numbers_of
from virtualstack.planning.overlaps import count_shared, find_interleaved, label_codes


def find_missing(
    series: Mapping[str, Sequence[int]], labels: Mapping[int, Labels], dim: str | None, /
) -> tuple[list[tuple[str, MissingSteps]], pd.DataFrame]:
    """Return the missing steps of each series of files, and the table of reasons why they are not known."""
    found, unknown = [], []
    for name, files in series.items():
        kinds = _by_kind(files, labels)
        if not kinds and dim is not None:
            unknown.append((name, f"no file has labels of '{dim}' that can be compared"))
        if len(kinds) > 1:
            unknown.append((name, f"labels of several kinds, between which gaps cannot be found: {', '.join(kinds)}"))
        for members in kinds.values():
            steps = missing_steps(dim or "", [labels[i] for i in members])
            if isinstance(steps, str):
                unknown.append((name, steps))
            else:
                found += [(name, each) for each in steps]
    return found, pd.DataFrame(unknown, columns=["series", "reason"])


def find_duplicates(
    series: Iterable[Sequence[int]],
    labels: Mapping[int, Labels],
    groups: Sequence[ManifestGroup],
    are_apart: Callable[[int, int], bool],
    /,
) -> tuple[pd.DataFrame, pd.DataFrame, bool]:
    """Return the tables of duplicates and of files that interleave, and whether all pairs are listed.

    A file with exactly the labels of an earlier file is paired only with the first such file.
    """
    rows: list[tuple[int, int, str, int | None]] = []
    interleaved: list[tuple[int, int]] = []
    has_all = True
    for files in series:
        unread = [i for i in files if i not in labels]
        versions = [read_version(groups[i]) for i in unread]
        first = {version: i for i, version in reversed([*zip(unread, versions, strict=True)])}
        copies = [(first[x], i) for i, x in zip(unread, versions, strict=True) if None not in x and first[x] != i]
        rows += [(i, j, "same size and etag", None) for i, j in copies]
        known = [i for i in files if i in labels]
        found = distinct_labels([labels[i] for i in known])
        firsts = [known[found.first(number)] for number in range(len(found.labels))]
        pairs = [(firsts[number], i) for i, number in zip(known, found.which.tolist(), strict=True)]
        shared = [(i, j, _sameness(groups[i], groups[j]), len(labels[j])) for i, j in pairs if i != j]
        for members in _by_kind(firsts, labels).values():
            codes = label_codes([labels[i] for i in members])
            counted = count_shared(codes)
            has_all &= counted.has_all
            shared += [
                (members[a], members[b], "overlap" if a != b else "repeats", n)
                for (a, b), n in sorted(counted.counts.items())
            ]
            if numbers_of(labels[members[0]]) is not None:
                interleaved += [(members[a], members[b]) for a, b in find_interleaved(codes)]
        rows += [row for row in shared if row[0] == row[1] or not are_apart(row[0], row[1])]
    urls = [find_url(group) for group in groups]
    table = pd.DataFrame(
        [(urls[i], urls[j], kind, n) for i, j, kind, n in rows], columns=["url", "other", "kind", "values"]
    )
    pairs_of_urls = [(urls[i], urls[j]) for i, j in interleaved]
    return table.astype({"values": "Int64"}), pd.DataFrame(pairs_of_urls, columns=["url", "other"]), has_all


def _by_kind(files: Iterable[int], labels: Mapping[int, Labels]) -> dict[str, list[int]]:
    """Return files that have labels, grouped so that the labels in a group can be compared."""
    found: dict[str, list[int]] = {}
    for i in files:
        if i in labels:
            found.setdefault(kind_of(labels[i]), []).append(i)
    return found


def _sameness(a: ManifestGroup, b: ManifestGroup) -> str:
    version = read_version(a)
    is_copy = None not in version and version == read_version(b)
    return "same labels, size and etag" if is_copy else "same labels"


# -- of one file ----------------------------------------------------------------------------------------------


def find_url(group: ManifestGroup, /) -> str:
    """Return the URL of the file."""
    return group.url or next((x.a_url() or "" for x in group.arrays.values()), "")


def read_version(group: ManifestGroup, /) -> tuple[int | None, str | None]:
    """Return the size and etag of the file, if an array refers to it."""
    for array in group.arrays.values():
        for location in array.manifest.tables.locations:
            if location.url == group.url:
                return location.size, location.etag
    return None, None

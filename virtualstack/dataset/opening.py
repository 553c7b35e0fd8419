"""Opening of a group from a reader, as the dataset or tree that the user requested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, cast

import xarray as xr

from virtualstack.dataset.decode import default_loaded, to_dataset
from virtualstack.dataset.hdfeos import groups_with_variables, only_structure, with_fields
from virtualstack.dataset.variables import DecodeTimes
from virtualstack.errors import (
    GroupNotFoundError,
    ReaderError,
    Remedy,
    StorageError,
    UnsupportedFeatureError,
    advised,
    check_type,
)
from virtualstack.formats.base import PARTS, Assembler, Reader, ReadOptions
from virtualstack.formats.registry import find_reader
from virtualstack.manifests import ManifestArray, ManifestGroup, Refusal, inheriting, labels_of
from virtualstack.options import OnError, Unsupported
from virtualstack.printable import counted, first_names
from virtualstack.storage import Allow, Stale, Storage, StorageLike
from virtualstack.storage.threads import concurrently
from virtualstack.warning import warn

_MAX_SHOWN_REASONS = 5
"""Number of refused variables whose reasons a message shows; remedies that need names list all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """Options by which sources are opened, as in :func:`virtualstack.open_virtual_dataset`.

    Parameters
    ----------
    options
        Options of the readers: group, dropped variables, permitted URLs and the largest size to inline.
    storage
        Storage by which the sources are read.
    unsupported
        ``"inline"``, ``"raise"`` or ``"skip"``: treatment of variables that cannot be referenced.
    decode_times
        If not false, loaded and unpacked times become dates; a coder or a map decides how.
    unpack
        If true, virtual variables are decoded as loaded ones are.
    """

    options: ReadOptions
    storage: Storage
    unsupported: Unsupported
    decode_times: DecodeTimes
    unpack: bool

    def __post_init__(self) -> None:
        wanted = "true, false, a coder of dates, or a map by variable"
        check_type("decode_times", self.decode_times, bool | xr.coders.CFDatetimeCoder | Mapping | None, wanted)

    @classmethod
    def from_options(
        cls,
        *,
        group: str | None = None,
        storage: StorageLike = None,
        drop_variables: str | Iterable[str] | None = (),
        decode_times: DecodeTimes = None,
        unpack: bool = False,
        unsupported: Unsupported = "inline",
        inline_limit: int | str = "1 MiB",
        is_tree: bool = False,
        allow: Allow = (),
        stale: Stale | None = None,
    ) -> Opening:
        """Check the options of a user."""
        options = ReadOptions.from_options(
            group=group,
            is_tree=is_tree,
            drop_variables=drop_variables,
            unsupported=unsupported,
            inline_limit=inline_limit,
            allow=allow,
        )
        return cls(
            options=options,
            storage=Storage.from_option(storage).with_stale(stale),
            unsupported=unsupported,
            decode_times=decode_times,
            unpack=unpack,
        )

    def node(self, root: ManifestGroup, /, *, with_children: bool = False) -> ManifestGroup:
        """Return the group that the options name, with the labels of the groups above it; see :func:`select_group`.

        For one dataset, without children, the fields of a swath or grid of HDF-EOS5 are one group. If a file has only
        one of these and no group is named, it is opened.
        """
        path = self.options.group
        if path is None and not with_children:
            path = only_structure(root)
        node = select_group(root, path)
        labels: dict[str, ManifestArray] = {}
        for above in _groups_above(root, path):
            labels |= labels_of(above)
        return inheriting(node if with_children else with_fields(node), labels)

    def dataset(self, node: ManifestGroup, /, *, loadable_variables: str | Iterable[str] | None = None) -> xr.Dataset:
        """Make the virtual dataset of a group; see :func:`virtualstack.dataset.to_dataset`.

        What is named is loaded beside what is by default; an empty list loads nothing.
        """
        loaded = None
        if loadable_variables is not None:
            names = [loadable_variables] if isinstance(loadable_variables, str) else list(loadable_variables)
            loaded = {**(default_loaded(node) if names else {}), **dict.fromkeys(names, True)}
        return to_dataset(
            node,
            storage=self.storage,
            loaded=loaded,
            decode_times=self.decode_times,
            unpack=self.unpack,
            inline_limit=self.options.inline_limit,
            skips=self.unsupported == "skip",
        )

    def tree(self, node: ManifestGroup, /) -> xr.DataTree:
        """Make the tree of virtual datasets of a group and all groups below it; dimension coordinates are loaded."""
        return tree_of({path or "/": self.dataset(child) for path, child in node.walk()}, node.url)


def tree_of(datasets: Mapping[str, xr.Dataset], url: str | None, /, *, has_indexes: bool = True) -> xr.DataTree:
    """Return the tree of datasets by their paths; those of an engine have no indexes, so labels are compared here."""
    try:
        if not has_indexes:
            _check_labels(datasets)
        return xr.DataTree.from_dict(dict(datasets))
    except ValueError as error:
        raise ReaderError(
            f"'{url}': its groups do not form one tree: {error}",
            Remedy("open them one by one with", group=...),
            url=url,
        ) from error


def _check_labels(datasets: Mapping[str, xr.Dataset]) -> None:
    """Compare the labels of dimensions that a group has, and a group above it too; only these are read."""
    for path, dataset in datasets.items():
        for above in PurePosixPath(path).parents:
            inherited = datasets.get(str(above), xr.Dataset()).coords
            for name in dataset.coords.keys() & inherited.keys() & dataset.sizes.keys():
                own, other = dataset.variables[name], inherited[name].variable
                if not own.equals(other):  # type: ignore[no-untyped-call]
                    raise ValueError(f"group '{path}' is not aligned with its parents: '{name}' differs from '{above}'")


def select_group(root: ManifestGroup, path: str | None, /) -> ManifestGroup:
    """Return the group at a path, or the root for ``None``. It knows the attributes of the groups above it."""
    try:
        node = root[path or ""]
    except KeyError as error:
        raise GroupNotFoundError(f"'{root.url}': {error.args[0]}", url=root.url) from error
    if not isinstance(node, ManifestGroup):
        raise GroupNotFoundError(f"'{path}' of '{root.url}' is a variable, not a group", url=root.url)
    inherited: dict[str, Any] = {}
    for above in _groups_above(root, path):
        inherited |= above.attributes
    return replace(node, inherited=inherited) if inherited else node


def _groups_above(root: ManifestGroup, path: str | None) -> Iterator[ManifestGroup]:
    for name in filter(None, (path or "").split("/")):
        yield root
        root = root.groups[name]


def account_for(
    node: ManifestGroup,
    unsupported: Unsupported,
    /,
    *,
    with_children: bool,
    options: ReadOptions | None = None,
    urls: Sequence[str] = (),
) -> None:
    """Raise an error for refused variables that are not dropped; warn instead with ``unsupported="skip"``."""
    refused = [x for x in _refused(node, with_children) if options is None or not options.drops(x.path)]
    if not refused:
        return
    if unsupported == "skip":
        warn(_left_out(node, refused))
        return
    are_many = node.url is None and len(urls) > 1
    where = f"{len(urls)} files '{urls[0]}', ..." if are_many else f"'{node.url}'"
    raise UnsupportedFeatureError(
        f"{where}: {counted(len(refused), 'variable')} cannot be referenced: {_listed(refused)}",
        *_remedies(refused, unsupported, with_paths=with_children and bool(node.groups)),
        url=node.url,
        variable=refused[0].path,
        feature=refused[0].reason,
    )


def warn_of_groups(node: ManifestGroup, path: str | None, /) -> None:
    """Warn if the group at a path opens without data, although groups below it have variables."""
    text = where_variables_are(node, path)
    if text is not None:
        warn(text)


def where_variables_are(node: ManifestGroup, path: str | None, /) -> str | None:
    """Return where the variables below a group at a path are that has none, and which of them cannot be read."""
    if any(array.dimension_names != (name,) for name, array in node.arrays.items()):
        return None
    lack = "only coordinates" if node.arrays else "no variables"
    path = f"/{(path or '').strip('/')}"
    below = [f"{path.rstrip('/')}/{name}" for name in groups_with_variables(node)]
    refused = [x for x in _refused(node, True) if x not in node.refusals]  # its own were accounted for
    lost = f"; {counted(len(refused), 'variable')} cannot be read: {_listed(refused)}" if refused else ""
    if below:
        return advised(
            f"'{node.url}': the group '{path}' has {lack}, but groups below it have: {first_names(below)}{lost}",
            Remedy("open one of them with", group=below[0]),
            Remedy("open all as a tree with", "open_virtual_datatree"),
        )
    return f"'{node.url}': the group '{path}' has {lack}{lost}" if refused else None


def _remedies(refused: Sequence[Refusal], unsupported: Unsupported, *, with_paths: bool) -> list[Remedy]:
    """Return how to open the other variables, and how to inline the refused ones if they are only too large."""
    names = [x.path if with_paths else _name(x) for x in refused]
    which = "it" if len(refused) == 1 else "them"
    remedies = [
        Remedy(f"leave {which} out with", drop_variables=names),
        Remedy("", unsupported="skip"),
    ]
    large = {name: x.inline_size for name, x in zip(names, refused, strict=True) if x.inline_size}
    if large:
        which = which if len(large) == len(refused) else f"{list(large)}"
        inline = {"unsupported": "inline"} if unsupported == "raise" else {}
        put = f"put the values of {which} into the references with {{}} or more"  # only their number may be known
        remedies.append(Remedy(put, **inline, inline_limit=max(large.values())))
    return remedies


def what_is_left_out(node: ManifestGroup, /, *, with_children: bool) -> str | None:
    """Return a text that lists the variables that the reader refused, or ``None`` if it refused none."""
    refused = _refused(node, with_children)
    return _left_out(node, refused) if refused else None


def _refused(node: ManifestGroup, with_children: bool) -> list[Refusal]:
    groups = [group for _, group in node.walk()] if with_children else [node]
    return [refusal for group in groups for refusal in group.refusals if refusal.kind == "refused"]


def _name(refusal: Refusal) -> str:
    return refusal.path.rsplit("/", 1)[-1]


def _left_out(node: ManifestGroup, refused: list[Refusal]) -> str:
    where = "these files" if node.url is None else f"'{node.url}'"
    return f"{where}: left out {_listed(refused)}"


def _listed(refused: list[Refusal]) -> str:
    listed = "; ".join(f"'{x.path}': {x.reason}" for x in refused[:_MAX_SHOWN_REASONS])
    return listed + (f"; and {len(refused) - _MAX_SHOWN_REASONS} more" if len(refused) > _MAX_SHOWN_REASONS else "")


def open_groups[T](
    groups: Sequence[ManifestGroup],
    urls: Sequence[str],
    open_node: Callable[[ManifestGroup], T],
    opening: Opening,
    reader: str | Reader | None,
    /,
    *,
    on_error: OnError,
) -> tuple[list[T], bool, dict[str, Exception]]:
    """Open groups that were scanned, in several threads if their sources are remote.

    Returns
    -------
    tuple
        The opened groups; true if all were parts of one kind, and were assembled; and the errors by URL.
    """

    def attempt(root: ManifestGroup) -> T | ManifestGroup | Exception:
        try:
            return root if _is_part(root) else open_node(root)
        except (ReaderError, StorageError) as error:
            if on_error == "raise":
                raise
            return error

    outcomes = list(concurrently(attempt, groups, urls))
    errors = {url: x for url, x in zip(urls, outcomes, strict=True) if isinstance(x, Exception)}
    opened = [x for x in outcomes if not isinstance(x, Exception)]
    return *_put_together(opened, open_node, opening, reader), errors


def _put_together[T](
    opened: Sequence[T | ManifestGroup],
    open_node: Callable[[ManifestGroup], T],
    opening: Opening,
    reader: str | Reader | None,
) -> tuple[list[T], bool]:
    """Open parts as one group if all are parts of the same kind, otherwise separately; return whether they are one."""
    if not any(map(_is_part, opened)):
        return cast(list[T], list(opened)), False

    def assembled(parts: Sequence[ManifestGroup]) -> T:
        name = parts[0].attributes[PARTS]
        assembler = find_reader("", opening.storage, name if reader is None else reader)
        if not isinstance(assembler, Assembler):
            raise ReaderError(f"the reader '{name}' cannot assemble its parts", url=parts[0].url)
        return open_node(assembler.assemble(parts, opening.options))

    if are_parts_of_one(opened):
        return [assembled(cast(Sequence[ManifestGroup], opened))], True
    return [assembled([cast(ManifestGroup, x)]) if _is_part(x) else cast(T, x) for x in opened], False


def _is_part(item: object) -> bool:
    return isinstance(item, ManifestGroup) and PARTS in item.attributes


def are_parts_of_one(opened: Sequence[Any], /) -> bool:
    """Return whether all items are groups that one reader puts together to one."""
    kinds = {x.attributes.get(PARTS) if isinstance(x, ManifestGroup) else None for x in opened}
    return len(kinds) == 1 and None not in kinds

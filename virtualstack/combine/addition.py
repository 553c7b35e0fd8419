"""Which options of adding to a target go together, and what they make of the two."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from virtualstack.combine.append import appended
from virtualstack.combine.fitting import Fitting
from virtualstack.combine.nodes import bundled_in
from virtualstack.combine.region import Region, placed
from virtualstack.manifests import ManifestGroup
from virtualstack.manifests.manifest import Overlay
from virtualstack.storage import Storage, StorageLike

__all__ = ["Addition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """How a group is added to what a target holds: behind it along a dimension, or over a region of it.

    The rules are the same for kerchunk, Icechunk and vstack; made by :meth:`from_options`.

    Parameters
    ----------
    append_dim
        Dimension along which the group is put behind what the target holds; ``None`` for a region.
    region
        Region of the target that the group is put over; ``None`` for appending.
    ordered
        Whether labels along ``append_dim`` must ascend.
    fitting
        What is done where the group differs from what the target holds.
    """

    append_dim: str | None
    region: Region | None
    ordered: bool
    fitting: Fitting

    @classmethod
    def from_options(
        cls,
        *,
        mode: str = "w-",
        append_dim: str | None = None,
        region: Region | None = None,
        ordered: bool = True,
        join: Literal["exact", "left", "outer"] = "exact",
        combine_options: Mapping[str, Any] | None = None,
        storage: StorageLike = None,
    ) -> Addition | None:
        """Check which options go together, and return how to add; ``None`` where the target is written whole.

        Raises
        ------
        ValueError
            Options contradict each other, or one of them needs another one that is not given.
        """
        if append_dim is None and (join != "exact" or not ordered):
            raise ValueError(f"join={join!r} and ordered={ordered} say how append_dim= adds, which is not given")
        if append_dim is None and region is None:
            if combine_options is not None:
                raise ValueError("combine_options say how append_dim= or region= adds, and neither is given")
            return None
        if mode != "w-" or (append_dim is not None and region is not None):
            raise ValueError(
                f"append_dim={append_dim!r} and region={region!r} each add to what the target holds, and mode='w' "
                f"replaces it (mode={mode!r}): give one of them"
            )
        fitting = Fitting.of(join=join, options=combine_options, storage=Storage.of(storage))
        return cls(append_dim=append_dim, region=region, ordered=ordered, fitting=fitting)

    def add(
        self,
        stored: ManifestGroup,
        group: ManifestGroup,
        /,
        *,
        bundled: Callable[[ManifestGroup], Collection[str]] = bundled_in,
    ) -> tuple[ManifestGroup, Mapping[str, Sequence[Overlay]]]:
        """Return what the target then holds, and what comes over its virtual variables, by their paths.

        Parameters
        ----------
        stored
            What the target holds.
        group
            What is added.
        bundled
            Names the variables of a group whose values are compared and joined in memory.

        Raises
        ------
        CombineError
            They do not fit.
        ChunkAlignmentError
            Chunks end elsewhere than those of the target.
        """
        if self.append_dim is not None:
            return appended(stored, group, self.append_dim, self.fitting, ordered=self.ordered, bundled=bundled), {}
        if self.region is None:
            raise TypeError("an addition has a dimension or a region")
        return placed(stored, group, self.region, self.fitting)

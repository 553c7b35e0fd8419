"""How many files are combined: what a user asks for, checked before any file is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from virtualstack.combine.conflict_rules import Join, Rules
from virtualstack.combine.new_dim import Labelling, check_labellings

__all__ = ["Combine", "CombineOptions"]

type Combine = Literal["by_coords", "nested"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineOptions:
    """How datasets or trees are combined.

    Parameters
    ----------
    dims
        Of nested lists, outermost first, ``None`` where files are put side by side; or no list, where coordinates tell
        the order.
    rules
        What is done where files differ.
    new_dim
        Dimensions that the files lack, and where their labels are from.
    unpack_where_differing
        Whether variables that files pack differently are unpacked.
    decode_times
        Whether numbers that are unpacked become dates where they have units of time.
    """

    dims: Sequence[str | None] | None = None
    rules: Rules = field(default_factory=Rules)
    new_dim: Mapping[str, Labelling] = field(default_factory=dict)
    unpack_where_differing: bool = False
    decode_times: bool = True

    @classmethod
    def of(
        cls,
        *,
        combine: Combine = "by_coords",
        concat_dim: str | Sequence[str | None] | None = None,
        join: Join = "exact",
        tolerance: Any = None,
        new_dim: Mapping[str, Labelling] | None = None,
        unpack: bool | Literal["differing"] = False,
        decode_times: bool | None = None,
        combine_options: Mapping[str, Any] | None = None,
    ) -> CombineOptions:
        """Check what a user gives; parameters are those of :func:`virtualstack.open_virtual_mfdataset`.

        Raises
        ------
        ValueError
            A word or an option is not known, or they do not go together.
        CombineError
            ``tolerance`` or ``new_dim`` is none.
        """
        if unpack not in (True, False, "differing"):
            raise ValueError(f"unpack={unpack!r}; it is False, True or 'differing'")
        return cls(
            dims=_dims(combine, concat_dim),
            rules=Rules.of(join=join, tolerance=tolerance, options=combine_options),
            new_dim=check_labellings(new_dim),
            unpack_where_differing=unpack == "differing",
            decode_times=decode_times is not False,
        )


def _dims(combine: Combine, concat_dim: str | Sequence[str | None] | None) -> list[str | None] | None:
    if combine not in ("by_coords", "nested"):
        raise ValueError(f"combine={combine!r}; it is 'by_coords' or 'nested'")
    if combine == "by_coords":
        if concat_dim is not None:
            raise ValueError(
                f"concat_dim={concat_dim!r} has no meaning with combine='by_coords', where coordinates tell; give "
                "combine='nested' too"
            )
        return None
    if concat_dim is None:
        raise ValueError("combine='nested' needs concat_dim=, the dimension that files are joined along")
    return [concat_dim] if isinstance(concat_dim, str) else list(concat_dim)

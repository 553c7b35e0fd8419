"""Answers to elementwise comparisons that are one answer for the whole array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from virtualstack.errors import VirtualValuesError

__all__ = ["Verdict"]


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What ``a == b`` gives for virtual arrays: one truth value of the shape of the arrays, without a mask in memory.

    xarray combines such results with ``|``, ``&`` and ``~`` and asks ``all()``; it asks for its elements nowhere where
    a virtual array can answer, and everywhere else it is refused.

    Parameters
    ----------
    value
        True where the arrays are provably equal.
    shape
        Shape of the arrays compared, in elements.
    is_known
        False where it stands for "which elements are missing values", which no virtual array knows: then it gives way
        to a verdict that is known, and is refused where it stands alone.
    """

    value: bool
    shape: tuple[int, ...] = ()
    is_known: bool = True

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[np.bool_]:
        """Always bool."""
        return np.dtype(np.bool_)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Verdict:
        """Give itself as bool; another dtype would need its elements."""
        return self if np.dtype(dtype) == np.bool_ else self._refuse()

    def __or__(self, other: Verdict) -> Verdict:
        return Verdict(self.value or other.value, self.shape, self.is_known or other.is_known)

    def __and__(self, other: Verdict) -> Verdict:
        return Verdict(self.value and other.value, self.shape, self.is_known or other.is_known)

    def __invert__(self) -> Verdict:
        return Verdict(not self.value, self.shape, self.is_known)

    def __bool__(self) -> bool:
        return self.all()

    def all(self) -> bool:
        """Tell whether it holds for every element."""
        return self.value if self.is_known else self._refuse()

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> NoReturn:
        self._refuse()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc in (np.logical_not, np.invert) and method == "__call__" and not kwargs:
            return ~self
        return self._refuse()

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if any(not issubclass(kind, Verdict) for kind in types):
            return NotImplemented  # the virtual array beside it knows
        if function is np.all and len(args) == 1 and kwargs.get("axis") is None:
            return self.all()
        return self._refuse()

    def _refuse(self) -> NoReturn:
        raise VirtualValuesError(
            "a comparison of virtual arrays has one answer for the whole array, not one an element; "
            "use vds.virtual.open() for a lazy dataset with values"
        )

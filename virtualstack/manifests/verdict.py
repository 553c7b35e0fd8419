"""Results of elementwise comparisons that have one answer for the whole array."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from virtualstack.errors import VirtualValuesError

__all__ = ["Verdict"]


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """Result of ``a == b`` for virtual arrays: one truth value with the shape of the arrays, without a mask in memory.

    xarray combines such results with ``|``, ``&`` and ``~`` and calls ``all()``. If arrays are not provably equal, the
    answer is not known without reading values; then ``all()`` raises an error, as either answer might be wrong.

    Parameters
    ----------
    value
        True if the comparison provably holds for all elements, false if it provably holds for none; otherwise ``None``.
    shape
        Shape of the compared arrays, in elements.
    name
        Name of the variable, for messages.
    """

    value: bool | None
    shape: tuple[int, ...] = ()
    name: str | None = None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[np.bool_]:
        """Always bool."""
        return np.dtype(np.bool_)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Verdict:
        """Return the verdict itself for bool; refuse other dtypes, which would need its elements."""
        return self if np.dtype(dtype) == np.bool_ else self._refuse()

    def __or__(self, other: object) -> Verdict:
        if not isinstance(other, Verdict):
            return self._refuse()
        both = {self.value, other.value}
        return Verdict(True if True in both else None if None in both else False, self.shape, self.name)

    def __and__(self, other: object) -> Verdict:
        if not isinstance(other, Verdict):
            return self._refuse()
        both = {self.value, other.value}
        return Verdict(False if False in both else None if None in both else True, self.shape, self.name)

    def __invert__(self) -> Verdict:
        return Verdict(None if self.value is None else not self.value, self.shape, self.name)

    __ror__, __rand__ = __or__, __and__

    def __xor__(self, other: object) -> NoReturn:
        self._refuse()

    __rxor__ = __xor__

    def __getitem__(self, key: object, /) -> NoReturn:
        self._refuse()

    def transpose(self, *axes: Any) -> Verdict:
        """Return the verdict itself, which is the same for all elements."""
        return self

    def __bool__(self) -> bool:
        return self.all()

    def all(self) -> bool:
        """Return whether the comparison holds for every element."""
        return self._refuse() if self.value is None else self.value

    def any(self) -> bool:
        """Return whether the comparison holds for any element."""
        return self.all()

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
            return NotImplemented  # the virtual array among the arguments handles it
        if function in (np.all, np.any) and len(args) == 1 and kwargs.get("axis") is None:
            return self.all()
        return self._refuse()

    def _refuse(self) -> NoReturn:
        raise VirtualValuesError(
            f"variable '{self.name}' is virtual: what its elements are compared with others is not known without "
            "reading them; use vds.virtual.open() for a lazy dataset with values, load it with "
            f"loadable_variables=['{self.name}'], or, where xarray joins datasets, leave it as it is with "
            "compat='override' and coords='minimal', or join the files with open_virtual_mfdataset"
        )

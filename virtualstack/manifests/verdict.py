"""Results of elementwise questions that may be answered without reading values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from virtualstack.manifests.values import check_not_dates


@dataclass(frozen=True, slots=True, eq=False)
class Verdict(NDArrayOperatorsMixin):
    """Result of ``a == b`` or ``isnull(a)`` for virtual arrays: one truth value, or elements that are read when needed.

    xarray combines such results with ``|``, ``&`` and ``~`` and calls ``all()``. If references prove the result,
    nothing is read: of equal arrays, ``a == b`` is what is not missing, and that or ``isnull(a)`` is true.
    """

    value: bool | None
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.bool_]]
    array: Any = None
    """The virtual array whose missing elements are asked for, or not (see ``is_missing``)."""
    is_missing: bool = True

    @classmethod
    def known(cls, value: bool, shape: tuple[int, ...], /) -> Verdict:
        """Return the result that is the same for all elements."""
        return cls(value, shape, lambda: np.full(shape, value))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[np.bool_]:
        """Always bool."""
        return np.dtype(np.bool_)

    def __or__(self, other: object) -> Any:
        if not isinstance(other, Verdict):
            return np.asarray(self) | np.asarray(other)
        if True in (self.value, other.value):
            return Verdict.known(True, self.shape)
        if self.value is False:
            return other
        if self.array is not None and other.array is not None and self.array.equals(other.array):
            return self if self.is_missing == other.is_missing else Verdict.known(True, self.shape)
        return self if other.value is False else Verdict(None, self.shape, lambda: self.read() | other.read())

    def __and__(self, other: object) -> Any:
        return ~(~self | ~other) if isinstance(other, Verdict) else np.asarray(self) & np.asarray(other)

    def __invert__(self) -> Verdict:
        value = None if self.value is None else not self.value
        return Verdict(value, self.shape, lambda: ~self.read(), self.array, not self.is_missing)

    __ror__, __rand__ = __or__, __and__

    def __getitem__(self, key: Any, /) -> Any:
        return np.asarray(self)[key]

    def transpose(self, *axes: Any) -> Any:
        """Return the elements with permuted axes."""
        return np.asarray(self).transpose(*axes)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Any:
        """Return the result itself for bool, and numbers for another dtype."""
        return self if np.dtype(dtype) == np.bool_ else np.asarray(self).astype(dtype)

    def __bool__(self) -> bool:
        return bool(np.asarray(self)) if self.value is None else self.value

    def all(self) -> bool:
        """Return whether every element is true."""
        return bool(self.read().all()) if self.value is None else self.value

    def any(self) -> bool:
        """Return whether any element is true."""
        return bool(self.read().any()) if self.value is None else self.value

    def __array__(self, dtype: Any = None, *, copy: bool | None = None) -> NDArray[Any]:
        if self.array is not None:
            check_not_dates(self.array)
        return np.asarray(self.read(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc in (np.logical_not, np.invert) and method == "__call__" and not kwargs:
            return ~self
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, Verdict) else x for x in inputs), **kwargs)

    def __array_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if any(not issubclass(kind, Verdict | np.ndarray) for kind in types):
            return NotImplemented  # the virtual array among the arguments handles it
        if function in (np.all, np.any) and len(args) == 1 and kwargs.get("axis") is None:
            return self.all() if function is np.all else self.any()
        return function(*(np.asarray(x) if isinstance(x, Verdict) else x for x in args), **kwargs)

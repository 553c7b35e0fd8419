"""Result of a scan: groups of references, and the errors of sources that failed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, overload

import pandas as pd
import xarray as xr

from virtualstack.dataset.opening import Opening, account_for, are_parts_of_one, open_groups
from virtualstack.dataset.variables import DecodeTimes
from virtualstack.errors import check_word
from virtualstack.formats.base import Reader, ReadOptions
from virtualstack.manifests import ManifestGroup
from virtualstack.options import OnError, Unsupported
from virtualstack.printable import counted
from virtualstack.storage import Storage
from virtualstack.warning import warn


@dataclass(frozen=True, eq=False)
class ScanResult(Sequence[ManifestGroup]):
    """Result of :func:`scan`: a sequence of groups in the order of the URLs, and the errors of sources that failed.

    When to use: to inspect the groups of many files, or to open and join them later with :meth:`datasets`.
    Alternatives: :func:`open_virtual_mfdataset` scans and joins in one call.

    Parameters
    ----------
    groups
        One group of references for each file that could be read.
    errors
        Pairs of URL and error for files that could not be read. :attr:`failures` shows them as a table.
    urls
        Absolute URL of the source of each group.
    reader, storage, options
        Reader, storage and options that the sources were scanned with.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> xr.Dataset({"rain": ("time", [1.0])}).to_netcdf("day.nc", engine="netcdf4")
    >>> found = vs.scan(["day.nc", "nowhere.nc"], on_error="skip")
    >>> found
    ScanResult(1 group, 1 failed)
    >>> found.failures["error"].tolist()
    ['SourceNotFoundError']
    """

    groups: tuple[ManifestGroup, ...]
    errors: tuple[tuple[str, Exception], ...] = ()
    urls: tuple[str, ...] = ()
    reader: Reader | None = None
    storage: Storage = field(default_factory=Storage.from_option)
    options: ReadOptions = field(default_factory=ReadOptions)

    @overload
    def __getitem__(self, index: int, /) -> ManifestGroup: ...
    @overload
    def __getitem__(self, index: slice, /) -> ScanResult: ...
    def __getitem__(self, index: int | slice, /) -> ManifestGroup | ScanResult:
        """Return one group, or for a slice a result with those groups and the same errors."""
        if isinstance(index, slice):
            return replace(self, groups=self.groups[index], urls=self.urls[index])
        return self.groups[index]

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[ManifestGroup]:
        return iter(self.groups)

    def datasets(
        self,
        *,
        loadable_variables: str | Iterable[str] | None = None,
        decode_times: DecodeTimes = None,
        unpack: bool = False,
        unsupported: Literal["raise", "skip"] = "raise",
        on_error: OnError = "raise",
    ) -> list[xr.Dataset]:
        """Open the groups as virtual datasets, which :func:`virtualstack.combine_datasets` joins.

        Only the values of loadable variables are read. Each dataset names its source in ``dataset.encoding["source"]``.
        The option ``options=`` of the scan has decided which group of each file is opened (by default the root group),
        which variables are dropped, and which values are INLINE: those that fit in its ``inline_limit``.

        Parameters
        ----------
        loadable_variables
            Names of variables to load and decode. By default dimension coordinates and small coordinates (up
            to 16 KiB) are loaded.
        decode_times
            If true, loaded and unpacked times become dates. This is the default.
        unpack
            If true, virtual variables are decoded as ``xr.open_dataset`` decodes them: missing values, scale and
            offset, and times.
        unsupported
            Treatment of variables that the reader refused: it found no byte ranges for them, and their values did not
            fit in ``inline_limit`` of the scan or cannot be INLINE. ``"raise"`` raises `UnsupportedFeatureError`, and
            ``"skip"`` leaves them out with a warning.
        on_error
            Treatment of a group that cannot be opened: ``"raise"`` raises its error, and ``"skip"`` leaves it out with
            a warning that names it.

        Returns
        -------
        list of xarray.Dataset
            One dataset for each file, in the same order. If the files are parts of one dataset (see
            :attr:`are_parts_of_one`), the list has only this dataset.

        Raises
        ------
        ValueError
            ``unsupported`` or ``on_error`` has an unknown value.
        ReaderError, StorageError
            A variable was refused, or values cannot be read or decoded. With ``on_error="skip"``, this error is raised
            only if no group can be opened.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> for day in range(2):
        ...     part = xr.Dataset({"rain": ("time", [1.0 + day])}, {"time": [day]})
        ...     part.to_netcdf(f"day{day}.nc", engine="netcdf4")
        >>> found = vs.scan(["day0.nc", "day1.nc"])
        >>> vs.combine_datasets(found.datasets()).sizes["time"]
        2
        """
        if unsupported not in ("raise", "skip"):
            raise ValueError(
                f"unsupported={unsupported!r}; after a scan it must be 'raise' or 'skip'. To inline values, scan "
                "with options=vs.readers.ReadOptions(inline_limit=...)"
            )
        check_word("on_error", on_error, OnError)
        scanned: Unsupported = "inline" if self.options.inline_limit else "raise"
        opening = Opening(
            options=self.options,
            storage=self.storage,
            unsupported="skip" if unsupported == "skip" else scanned,
            decode_times=decode_times,
            unpack=unpack,
        )

        def open_node(root: ManifestGroup) -> xr.Dataset:
            node = opening.node(root)
            account_for(node, opening.unsupported, with_children=False, urls=self.urls)
            return opening.dataset(node, loadable_variables=loadable_variables)

        found, _, errors = open_groups(self, self.urls, open_node, opening, self.reader, on_error=on_error)
        for url, error in errors.items():
            if not found:
                raise error
            warn(f"left out '{url}': {error}")
        return found

    @property
    def are_parts_of_one(self) -> bool:
        """Whether the groups must be assembled to one dataset by their reader, as :meth:`datasets` does.

        This is so after a scan with ``ReadOptions(is_part=True)`` by a reader that assembles parts, such as GRIB's.

        Examples
        --------
        >>> import xarray as xr
        >>> import virtualstack as vs
        >>> xr.Dataset({"rain": ("time", [1.0])}).to_netcdf("day.nc", engine="netcdf4")
        >>> vs.scan(["day.nc"]).are_parts_of_one
        False
        """
        return are_parts_of_one(self.groups)

    @property
    def failures(self) -> pd.DataFrame:
        """Table of the sources that failed: columns ``url``, ``error`` (class of the error) and ``message``."""
        rows = [(url, type(error).__name__, str(error)) for url, error in self.errors]
        return pd.DataFrame(rows, columns=["url", "error", "message"])

    def __repr__(self) -> str:
        failed = f", {len(self.errors)} failed" if self.errors else ""
        return f"ScanResult({counted(len(self.groups), 'group')}{failed})"

"""Sources of labels for dimensions that the files lack: their names, and their attributes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from virtualstack.errors import check_type


@dataclass(frozen=True, slots=True)
class FromName:
    r"""The label of a file from its name: the text of the group of a regular expression.

    The expression is searched in the names of the files; if no name has a match, in their whole URLs. A file without a
    match is an error.

    When to use: if the label of a file, such as its date, is in the name of the file. Alternatives:
    :class:`FromAttribute`, or a function of the dataset.

    Parameters
    ----------
    pattern
        Regular expression. With one group, the label is the text of the group. Without a group, it is the whole match.
    format
        Format of dates, as in :meth:`datetime.datetime.strptime`. Without it, labels are integers if all labels are
        whole numbers, otherwise text.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> for day in ("20200130", "20200131"):
    ...     xr.Dataset({"tas": ("x", [1.0])}).to_netcdf(f"tas_{day}.nc", engine="netcdf4")
    >>> days = vs.FromName(r"_(\d{8})", format="%Y%m%d")
    >>> vds = vs.open_virtual_mfdataset("tas_*.nc", new_dim={"time": days})
    >>> [str(day)[:10] for day in vds["time"].values]
    ['2020-01-30', '2020-01-31']
    >>> days.texts(["s3://bucket/2020/tas_20200131.nc"])
    ['20200131']

    Raises
    ------
    ValueError
        The pattern is not a regular expression, or has several groups.
    """

    pattern: str
    format: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_type("pattern", self.pattern, str, "a regular expression")
        try:
            groups = re.compile(self.pattern).groups
        except re.error as error:
            raise ValueError(f"FromName({self.pattern!r}) is not a valid regular expression: {error}") from error
        if groups > 1:
            raise ValueError(
                f"FromName({self.pattern!r}) has {groups} groups, and one is needed. Write the other groups as (?:...)"
            )

    def texts(self, urls: Sequence[str], /) -> list[str | None]:
        """Return the label that the pattern finds in each name; if no name has a match, in each URL."""
        found = [self._text(name_of(url)) for url in urls]
        return [self._text(url) for url in urls] if all(text is None for text in found) else found

    def _text(self, where: str) -> str | None:
        found = re.search(self.pattern, where)
        return None if found is None else found[found.re.groups]


def name_of(url: str, /, n: int = 1) -> str:
    """Return the name of a file without its folder, or the last ``n`` words of its path."""
    name = "/".join(url.rstrip("/").split("/")[-n:])
    return unquote(name) if url.startswith(("http://", "https://")) else name


def names_of_two(a: str, b: str, /) -> tuple[str, str]:
    """Return the names of two files, with the folders that tell them apart.

    >>> names_of_two("2020/r1/t.nc", "2020/r2/t.nc")
    ('r1/t.nc', 'r2/t.nc')
    """
    most = min(a.count("/"), b.count("/")) + 1
    n = next((n for n in range(1, most + 1) if name_of(a, n) != name_of(b, n)), 1)
    return name_of(a, n), name_of(b, n)


@dataclass(frozen=True, slots=True)
class FromAttribute:
    """The label of a file from an attribute of its dataset, or of a group above it in the file.

    With ``group=``, the attribute may be one of the group, of its parents, or of the root of the file: the global
    attributes of netCDF. The nearest group counts.

    When to use: if the files have the label as a global attribute. Alternatives: :class:`FromName`, or a function of
    the dataset.

    Parameters
    ----------
    name
        Name of the attribute.
    format
        Format of dates, as in :class:`FromName`; numbers stay numbers.

    Examples
    --------
    >>> import xarray as xr
    >>> import virtualstack as vs
    >>> runs = [xr.Dataset({"t": ("x", [1.0, 2.0])}, attrs={"run": run}) for run in (3, 4)]
    >>> vs.combine_datasets(runs, new_dim={"run": vs.FromAttribute("run")})["run"].values.tolist()
    [3, 4]
    """

    name: str
    format: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_type("name", self.name, str, "the name of an attribute")

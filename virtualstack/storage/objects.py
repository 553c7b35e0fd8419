"""Read the objects under one URL, whole or in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from virtualstack.errors import SourceNotFoundError
from virtualstack.location import Location, is_remote
from virtualstack.storage.dry_run import unless_dry
from virtualstack.storage.named import in_both
from virtualstack.storage.permission import Allow, Permission
from virtualstack.storage.registry import Storage
from virtualstack.storage.source import ByteRange, Bytes
from virtualstack.storage.target import Target
from virtualstack.storage.web.public_web import PublicWeb


@dataclass(frozen=True)
class ObjectStore:
    """Objects under keys relative to a URL, which do not change once they exist."""

    url: str
    storage: Storage = field(compare=False, repr=False)
    allow: Allow = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", self.url.rstrip("/") + "/")
        # the option is meant for sources, which do change
        object.__setattr__(self, "storage", self.storage.with_stale("error").with_named([self.url]))

    @property
    def target(self) -> Target:
        """The target where objects are listed, written and deleted; in a dry run it writes nothing."""
        return unless_dry(self._target)

    @cached_property
    def _target(self) -> Target:
        return self.storage.writing_target(self.url)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.url, self.storage, self.allow)

    @cached_property
    def permission(self) -> Permission:
        """The permission of the store as it is opened, whatever its snapshots name."""
        return Permission.from_allow(self.url, self.allow)

    @cached_property
    def _checked(self) -> Storage:
        """Storage that reads objects as what references name: a web server may redirect them to public hosts only."""
        return replace(self.storage, named=in_both(self.storage.named, self.permission.named))

    @cached_property
    def _public(self) -> Target | None:
        """Target that reads objects of a web server which references name, if this is such a store."""
        prefix, backend = self._checked.find(self.url) if is_remote(self.url) else ("", None)
        if not isinstance(backend, PublicWeb):
            return None
        return self.storage.with_given({**dict(self.storage.given), prefix: backend}).target(self.url)

    def get(self, key: str, /, *, most: int) -> bytes:
        """Read a whole object of at most ``most`` bytes with one request; it is `SourceNotFoundError` if it is gone."""
        self.permission.check([self.url + key])
        try:
            return (self._public or self.target).get(key, most=most)
        except SourceNotFoundError as error:
            raise self._gone(key, error) from error

    def first(self, prefix: str, /) -> str | None:
        """Return the first key in a folder; see :meth:`Target.first`."""
        self.permission.check([self.url + prefix])
        return self.target.first(prefix)

    def read_ranges(self, key: str, size: int, ranges: Sequence[ByteRange], /) -> list[Bytes]:
        """Read ranges of an object; the size of the object is checked against ``size`` without a further request."""
        url = self.url + key
        self.permission.check([url])
        try:
            return self._checked.source(url, expected=Location(url, size)).read_ranges(ranges)
        except SourceNotFoundError as error:
            raise self._gone(key, error) from error

    def _gone(self, key: str, error: SourceNotFoundError) -> SourceNotFoundError:
        return SourceNotFoundError(
            f"{error}. If it existed when '{self.url.rstrip('/')}' was opened, its snapshot has expired since: open "
            "the store again",
            url=self.url + key,
        )

    def list(self, prefix: str, /) -> list[str]:
        """List the keys in a folder and below it, sorted."""
        self.permission.check([self.url + prefix])
        return self.target.list(prefix)

"""Read the chunks of an Icechunk session that a user passes; arrays carry the session along."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from virtualstack.errors import StorageError

type Range = tuple[int, int]

_MAX_REQUESTS = 32


@dataclass(frozen=True, slots=True, eq=False)
class SessionStore:
    """The store of a session that does not change, with the methods of obspec; it pickles if the session does."""

    store: Any = field(repr=False)

    @classmethod
    def of(cls, obj: Any, /) -> SessionStore:
        """Return the store of a session, of a store, or of the branch ``"main"`` of a repository."""
        session = obj.readonly_session("main") if hasattr(obj, "readonly_session") else getattr(obj, "session", obj)
        if session.read_only:
            return cls(session.store)
        if session.has_uncommitted_changes:
            raise StorageError(
                "the session of Icechunk has changes that are not committed, and might still change. Call "
                "session.commit(...) first"
            )
        return cls(session.fork().store)  # which later writes to the session do not change

    def head(self, key: str, /) -> dict[str, Any]:
        """Return the size of a chunk in bytes."""
        from zarr.core.sync import sync

        return {"size": sync(self.store.getsize(key))}

    def get_ranges(self, key: str, /, *, starts: Sequence[int], lengths: Sequence[int]) -> list[bytes]:
        """Return ranges of a chunk."""
        return self.read((key, (start, length)) for start, length in zip(starts, lengths, strict=True))

    def read(self, wanted: Iterable[tuple[str, Range]], /) -> list[bytes]:
        """Return ranges of several chunks, each an offset and a length."""
        from zarr.abc.store import RangeByteRequest
        from zarr.core.buffer import cpu
        from zarr.core.sync import sync

        async def get(key: str, span: Range) -> bytes:
            part = RangeByteRequest(span[0], sum(span))
            async with limit:
                data = await self.store.get(key, cpu.buffer_prototype, part)
            if data is None:
                raise FileNotFoundError(key)
            return bytes(data.to_bytes())

        async def get_all() -> list[bytes]:
            return await asyncio.gather(*(get(key, span) for key, span in wanted))

        limit = asyncio.Semaphore(_MAX_REQUESTS)
        return sync(get_all())

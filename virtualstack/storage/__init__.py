"""Read byte ranges at URLs and write objects there; obstore and fsspec are imported only when a URL needs them."""

from virtualstack.storage.coalesce import Requests, coalesce
from virtualstack.storage.file import SourceFile
from virtualstack.storage.local import LocalSource, LocalTarget
from virtualstack.storage.memory import MemorySource, MemoryTarget
from virtualstack.storage.objects import ObjectStore
from virtualstack.storage.permission import Allow, Listed, Permission, read_allowed_urls
from virtualstack.storage.registry import Stale, Storage, StorageLike, open_source
from virtualstack.storage.source import (
    ByteRange,
    Bytes,
    DirectSource,
    Source,
    SourceChangedWarning,
    WatchfulSource,
    check_version,
)
from virtualstack.storage.target import Target, UnlistableError
from virtualstack.storage.web.public_web import PublicWeb

__all__ = [
    "Allow",
    "ByteRange",
    "Bytes",
    "DirectSource",
    "Listed",
    "LocalSource",
    "LocalTarget",
    "MemorySource",
    "MemoryTarget",
    "ObjectStore",
    "Permission",
    "PublicWeb",
    "Requests",
    "Source",
    "SourceChangedWarning",
    "SourceFile",
    "Stale",
    "Storage",
    "StorageLike",
    "Target",
    "UnlistableError",
    "WatchfulSource",
    "check_version",
    "coalesce",
    "open_source",
    "read_allowed_urls",
]

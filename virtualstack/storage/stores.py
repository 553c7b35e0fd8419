"""Make stores of obstore: one for each bucket or host and identity.

- Without credentials obstore waits for instance metadata services: each store gets an explicit identity.
- obstore mixes explicit keys with the environment's session token: keys are passed by a credential provider.
- A provider is made when its first credentials are needed, within a request of obstore. So its failure is a refusal of
  this identity, as a refusal of the server is, and the next identity is tried.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC
from typing import TYPE_CHECKING, Any, cast

from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from virtualstack.errors import Remedy, StorageError
from virtualstack.storage.identities.identity import CLIENT_OPTIONS, OWN_OPTIONS, WEB_OPTIONS, Identity, split

if TYPE_CHECKING:
    from obstore.store import ObjectStore


class _Provider:
    """A provider of credentials that is made by its first call, in any thread."""

    def __init__(self, make: Callable[[], Callable[[], Any]], /) -> None:
        self._make = make
        self._made: Callable[[], Any] | None = None
        self._lock = threading.Lock()

    def __call__(self) -> dict[str, Any]:
        with self._lock:
            if self._made is None:
                self._made = self._make()
        found = dict(self._made())
        if found.get("expires_at") is not None:  # obstore 0.12 takes no other object for UTC, and its own providers do
            found["expires_at"] = found["expires_at"].astimezone(UTC)
        return found


def make_store(
    root: str, service: str, identity: Identity, region: Mapping[str, str], endpoint: str | None, url: str, /
) -> ObjectStore:
    """Make the store of a bucket or host that signs as one identity; no request is made."""
    options, client, retry = split({**identity.config, **region})
    if service == "http":
        client.setdefault("allow_http", not root.startswith("https://"))  # also applies to redirects
        if options:
            raise StorageError(
                f"'{url}': {', '.join(sorted(options))} have no effect on a web server; the known ones are "
                f"{', '.join(sorted(CLIENT_OPTIONS | OWN_OPTIONS | WEB_OPTIONS))}",
                url=url,
            )
        if identity.session is not None:
            client["default_headers"] = {**client.get("default_headers", {}), **identity.session.headers(url)}
        return HTTPStore(root, client_options=cast(Any, client), retry_config=retry)
    if endpoint is not None:
        options["base_url" if service == "gs" else "endpoint"] = endpoint
    if str(options.get("endpoint", options.get("base_url"))).startswith("http://"):
        client.setdefault("allow_http", True)
    made: Any = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}[service]
    extra: dict[str, Any] = {}
    if identity.provider is not None:
        extra["credential_provider"] = _Provider(identity.provider)
    elif service == "s3" and _KEYS & options.keys():
        extra["credential_provider"] = _static_keys(options, url)
    root = root.replace("gcs://", "gs://")
    store: ObjectStore = made.from_url(root, config=options, client_options=client, retry_config=retry, **extra)
    return store


_KEYS = {"access_key_id", "secret_access_key"}


def _static_keys(options: dict[str, Any], url: str) -> Callable[[], Any]:
    missing = _KEYS - options.keys()
    if missing:  # obstore would ask the instance metadata service instead
        raise StorageError(
            f"'{url}': {missing.pop()} is missing in storage=", Remedy("give both parts of the key"), url=url
        )
    found = {key: options.pop(key) for key in sorted(_KEYS)}
    found |= {"token": options.pop("session_token", options.pop("token", None)), "expires_at": None}
    return lambda: found

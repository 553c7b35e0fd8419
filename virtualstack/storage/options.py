"""The options of ``storage={"s3://bucket/": {...}}``: obstore's words, and fsspec's where they are plain."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

__all__ = ["CLIENT_OPTIONS", "OWN_OPTIONS", "normalise", "split"]

CLIENT_OPTIONS = {"allow_http", "allow_invalid_certificates", "connect_timeout", "default_headers", "http1_only",
           "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate",
           "proxy_excludes", "root_certificate", "read_timeout", "timeout", "user_agent"}  # fmt: skip
# A server that never answers costs one read_timeout, or two: at most 20 s. `timeout` bounds whole bodies.
_CLIENT_DEFAULTS = {"connect_timeout": "5s", "read_timeout": "10s", "timeout": "600s"}
_MAX_RETRIES, _RETRY_SECONDS = 5, 10.0
OWN_OPTIONS = {"max_retries", "min_rate", "retry_timeout"}
_ALIASES = {  # fsspec's words (s3fs, gcsfs, adlfs) that have one plain meaning in obstore's
    "anon": "skip_signature",
    "anonymous": "skip_signature",
    "key": "access_key_id",
    "secret": "secret_access_key",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "headers": "default_headers",
}
_PREFIXES = {"s3": "aws_", "gs": "google_", "az": "azure_", "http": ""}


def normalise(service: str, options: Mapping[str, Any], /) -> dict[str, Any]:
    """Give options in obstore's words: lower case, without ``aws_`` and the like, fsspec's aliases replaced."""
    plain: dict[str, Any] = {}
    for key, value in options.items():
        if key == "client_kwargs" and isinstance(value, Mapping):
            plain |= normalise(service, value)
            continue
        word = key.lower().removeprefix(_PREFIXES[service])
        plain[_ALIASES.get(word, word)] = value
    return plain


def split(options: Mapping[str, Any], /) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Split normalised options in those of the store, of its HTTP client, and of its retries, with our defaults.

    ``retry_timeout`` is in seconds.
    """
    store = {key: value for key, value in options.items() if key != "min_rate"}
    client = {**_CLIENT_DEFAULTS, **{key: store.pop(key) for key in CLIENT_OPTIONS & store.keys()}}
    retry = {
        "max_retries": int(store.pop("max_retries", _MAX_RETRIES)),
        "retry_timeout": timedelta(seconds=float(store.pop("retry_timeout", _RETRY_SECONDS))),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=3), "base": 2},
    }
    return store, client, retry

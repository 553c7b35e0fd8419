"""Where repositories are: the storage objects and the options that Icechunk takes for a URL."""

from __future__ import annotations

import os
from typing import Any, cast
from urllib.parse import urlencode

from virtualstack.errors import Remedy, SourceNotFoundError, UnsupportedFeatureError
from virtualstack.location import is_http, local_path, split_url
from virtualstack.storage import Storage
from virtualstack.storage.identities.identity import CREDENTIALS, identities, normalise
from virtualstack.storage.named import options_at


def repository_storage(icechunk: Any, url: str, storage: Storage, /, *, create: bool = False) -> Any:
    """Return the storage object of Icechunk for a repository, with the options that are known for its URL."""
    path = local_path(url)
    if path is not None:
        if not create and not path.is_dir():
            raise SourceNotFoundError(
                f"'{url}' is neither a directory nor an Icechunk repository; check the URL", url=url
            )
        return icechunk.local_filesystem_storage(str(path))
    backend, is_web = storage.given_for(url), is_http(url)
    if is_web and not create and storage.is_named(url) and isinstance(backend or {}, dict):
        headers = normalise("http", cast(dict[str, Any], backend or {})).get("default_headers")
        return icechunk.http_storage(url, headers=None if headers is None else dict(headers))
    root, key = split_url(url)
    place = root.partition("://")[2].rstrip("/")
    if url.startswith(("az://", "azure://", "abfs://", "abfss://")) and isinstance(storage.find(url)[1] or {}, dict):
        options = _options("az", url, storage)
        container, _, host = place.partition("@")
        named = host.partition(".")[0] or options.get("account_name")
        if account := named or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME"):
            more = _azure_options(options, url)
            return icechunk.azure_storage(account=account, container=container, prefix=key, **more)
        raise UnsupportedFeatureError(
            f"'{url}': Icechunk needs the name of the account",
            Remedy("name it:", storage=options_at(root, account_name="...")),
            url=url,
            feature="account_name",
        )
    if url.startswith(("gs://", "gcs://")) and isinstance(storage.find(url)[1] or {}, dict):
        return icechunk.gcs_storage(bucket=place, prefix=key, **_google_options(_options("gs", url, storage), url))
    given = find_s3_options(url, storage)
    if not given.keys() & {"access_key_id", "anonymous"}:
        given["from_env"] = True
    return icechunk.s3_storage(bucket=place, prefix=key, **given)


def _options(service: str, url: str, storage: Storage) -> dict[str, Any]:
    """Return the options for a bucket; credentials that they name, such as a profile or a role, are asked for once."""
    given = normalise(service, cast(dict[str, Any], storage.find(url)[1] or {}))
    first, *others = identities(service, given, os.environ, split_url(url)[0])
    options = dict(first.config)
    if first.provider is not None and (not others or given.keys() & {"earthdata", "planetary_computer"}):
        options |= first.provider()()
    if "skip_signature" not in given:
        options.pop("skip_signature", None)  # Icechunk asks more services of the machine
    return options


def _checked(given: dict[str, Any], options: dict[str, Any], service: str, url: str) -> dict[str, Any]:
    """Return the options of Icechunk, unless credentials were named that it would ignore."""
    named = sorted(CREDENTIALS[service] & options.keys())
    if named and not given:
        raise UnsupportedFeatureError(
            f"'{url}': Icechunk does not log in with {named[0]} of storage=. Set it in the environment, or give keys "
            "or a token",
            url=url,
            feature=named[0],
        )
    return given


def _azure_options(options: dict[str, Any], url: str) -> dict[str, Any]:
    """Return the options of Azure under the names that Icechunk uses, without the account."""
    sas = options.get("sas_token", options.get("sas_key"))
    known = {
        "access_key": options.get("account_key", options.get("access_key")),
        "sas_token": sas if sas is None or isinstance(sas, str) else urlencode(sas),
        "bearer_token": options.get("bearer_token", options.get("token")),
        "anonymous": True if _is_true(options.get("skip_signature")) else None,
    }
    given = {name: value for name, value in known.items() if value is not None}
    given = _checked(given, options, "az", url) or {"from_env": True}
    endpoint = str(options.get("endpoint") or "")
    is_http = _is_true(options.get("allow_http")) or endpoint.startswith("http://")
    config = {"azure_storage_endpoint": endpoint} if endpoint else {}
    if is_http:
        config["azure_allow_http"] = "true"
    return {**given, "config": config}


def _google_options(options: dict[str, Any], url: str) -> dict[str, Any]:
    """Return the options of Google Cloud Storage under the names that Icechunk uses."""
    known = {
        "service_account_file": options.get("service_account_path", options.get("service_account")),
        "service_account_key": options.get("service_account_key"),
        "application_credentials": options.get("application_credentials"),
        "bearer_token": options.get("bearer_token", options.get("token")),
        "anonymous": True if _is_true(options.get("skip_signature")) else None,
    }
    given = {name: value for name, value in known.items() if value is not None}
    given = _checked(given, options, "gs", url) or {"from_env": True}
    base = options.get("base_url")
    return given if base is None else {**given, "config": {"google_base_url": str(base)}}


def find_s3_options(url: str, storage: Storage, /) -> dict[str, Any]:
    """Return the options of a URL in S3 under the names that Icechunk uses."""
    scheme = url.partition("://")[0]
    _, backend = storage.find(url)
    if scheme not in ("s3", "s3a") or not (backend is None or isinstance(backend, dict)):
        what = f"the scheme '{scheme}://'" if scheme not in ("s3", "s3a") else f"a {type(backend).__name__} as storage="
        raise UnsupportedFeatureError(
            f"'{url}': an Icechunk repository cannot be reached by {what}. Copy it to a local directory or a bucket, "
            "or open it with icechunk and xr.open_zarr(session.store, consolidated=False)",
            url=url,
            feature=what,
        )
    options = _options("s3", url, storage)
    known = {
        "access_key_id": options.get("access_key_id"),
        "secret_access_key": options.get("secret_access_key"),
        "session_token": options.get("session_token", options.get("token")),
        "region": options.get("region"),
        "endpoint_url": options.get("endpoint"),
        "anonymous": True if _is_true(options.get("skip_signature")) else None,
    }
    given = _checked({name: value for name, value in known.items() if value is not None}, options, "s3", url)
    endpoint = str(options.get("endpoint") or "")
    if _is_true(options.get("allow_http")) or endpoint.startswith("http://"):
        given["allow_http"] = True
    if endpoint and not _is_true(options.get("virtual_hosted_style_request")):
        given["force_path_style"] = True
    return given


def _is_true(value: object) -> bool:
    return str(value).lower() in ("1", "true")

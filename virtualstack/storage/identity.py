"""List the credentials to try at a bucket, and interpret the options of ``storage=``. No requests are made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from virtualstack.errors import StorageError
from virtualstack.storage import aws

__all__ = ["CLIENT_OPTIONS", "OWN_OPTIONS", "Identity", "identities", "normalise", "split"]

_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_CREDENTIALS = {
    "s3": {"access_key_id", "secret_access_key", "session_token", "token", "web_identity_token_file", "role_arn",
           "container_credentials_relative_uri", "container_credentials_full_uri"},
    "gs": {"service_account", "service_account_path", "service_account_key", "application_credentials",
           "bearer_token", "token"},
    "az": {"account_key", "access_key", "client_secret", "sas_key", "sas_token", "token", "bearer_token",
           "federated_token_file", "use_azure_cli", "msi_endpoint"},
    "http": set(),
}  # fmt: skip
_ENVIRONMENT = {
    "s3": ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
           "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    "gs": ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH",
           "GOOGLE_SERVICE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN"),
    "az": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN",
           "AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"),
    "http": (),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Identity:
    """One way to sign requests.

    Parameters
    ----------
    name
        Name of the identity in error messages.
    config
        Options of the store. They contain secrets, so they are never part of a repr.
    provider
        Function that makes a credential provider of obstore, which refreshes credentials; ``None``: the credentials are
        in the options. It may take long, so it is called when the first credentials are needed.
    """

    name: str
    config: Mapping[str, Any] = field(repr=False)
    provider: Callable[[], Callable[[], Any]] | None = field(default=None, repr=False)


def identities(service: str, options: Mapping[str, Any], environ: Mapping[str, str], /) -> tuple[Identity, ...]:
    """Return the identities to try, in order.

    If the options hold or name credentials, only these are tried. Otherwise: credentials in the environment, those of
    the AWS profile or of gcloud, anonymous access, and the role of this machine. The role comes last, as the metadata
    service that knows it is slow to ask where there is none, and public buckets never need it.

    Parameters
    ----------
    service
        ``"s3"``, ``"gs"``, ``"az"`` or ``"http"``.
    options
        Options as `normalise` returns them.
    environ
        Environment variables.
    """
    if service == "http":
        return (Identity("the headers in storage=" if "default_headers" in options else "no credentials", options),)
    if str(options.get("skip_signature", "")).lower() in ("1", "true"):
        return (Identity("anonymous", options),)
    if service == "s3" and _names_aws(options):
        return (_named_by_options(options, environ),)
    if _CREDENTIALS[service] & options.keys():
        return (Identity("the credentials in storage=", options),)
    options = {key: value for key, value in options.items() if key != "skip_signature"}
    anonymous = Identity("anonymous", {**options, "skip_signature": True})
    found: list[Identity] = []
    variables = [name for name in _ENVIRONMENT[service] if environ.get(name)]
    if not environ.get("AWS_SECRET_ACCESS_KEY") and "AWS_ACCESS_KEY_ID" in variables:
        variables.remove("AWS_ACCESS_KEY_ID")  # half a key: obstore would ask the metadata service
    if variables:
        found.append(Identity(f"the environment's credentials ({variables[0]})", options))
    if service == "s3" and (profile := aws.profile(environ)) is not None and (profile.keys or profile.asked):
        found.append(_of_profile(profile, options))
    if service == "gs" and not variables and _gcloud(environ).is_file():
        found.append(Identity("gcloud's default credentials", options))
    if environ.get(f"{_PREFIXES[service]}SKIP_SIGNATURE", "").lower() in ("1", "true"):
        return (anonymous,)
    last: list[Identity] = []
    if service == "s3" and environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true" and aws.has_boto3():
        last.append(Identity("the role of this machine", options, aws.machine_role))
    return *found, anonymous, *last


def _named_by_options(options: Mapping[str, Any], environ: Mapping[str, str]) -> Identity:
    """Return the identity of ``profile=`` or ``role_arn=``."""
    rest = {key: value for key, value in options.items() if key not in _AWS_NAMES}
    if "role_arn" in options:
        return Identity(f"the role '{options['role_arn']}' in storage=", rest, lambda: aws.assume_role(options))
    found = aws.profile(environ, options["profile"])
    if found is None:
        raise StorageError(
            f"there is no profile {options['profile']!r} in the files of AWS, which storage= names. They have: "
            f"{', '.join(aws.profile_names(environ)) or 'none'}. Name one of these, or add it with `aws configure`"
        )
    if "region" in found.settings:
        rest.setdefault("region", found.settings["region"])
    return _of_profile(found, rest)


def _of_profile(found: aws.Profile, options: Mapping[str, Any]) -> Identity:
    if found.asked is None and found.keys:
        return Identity(f"profile '{found.name}' of the AWS {found.file} file", {**options, **found.keys})
    reason = found.asked or "no keys"
    name = f"profile '{found.name}' of the AWS {found.file} file ({reason})"
    return Identity(name, options, lambda: aws.ask_boto3(found.name))


_AWS_NAMES = {"profile", "role_arn", "role_session_name", "external_id"}


def _names_aws(options: Mapping[str, Any]) -> bool:
    """Return whether options name AWS credentials for which a file or boto3 is asked."""
    if {"access_key_id", "web_identity_token_file"} & options.keys():  # obstore assumes roles with web identities
        return False
    return bool({"profile", "role_arn"} & options.keys())


def _gcloud(environ: Mapping[str, str]) -> Path:
    folder = environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    return Path(folder).expanduser() / "application_default_credentials.json"


CLIENT_OPTIONS = {"allow_http", "allow_invalid_certificates", "connect_timeout", "default_headers", "http1_only",
           "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate",
           "proxy_excludes", "root_certificate", "read_timeout", "timeout", "user_agent"}  # fmt: skip
# A server that never answers costs one read_timeout, or two: at most 20 s. `timeout` bounds whole bodies.
_CLIENT_DEFAULTS = {"connect_timeout": "5s", "read_timeout": "10s", "timeout": "600s"}
_MAX_RETRIES, _RETRY_SECONDS = 5, 10.0
OWN_OPTIONS = {"max_retries", "min_rate", "retry_timeout"}
_ALIASES = {  # names of fsspec (s3fs, gcsfs, adlfs) that have one plain meaning in obstore
    "anon": "skip_signature",
    "anonymous": "skip_signature",
    "key": "access_key_id",
    "secret": "secret_access_key",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "profile_name": "profile",
    "requester_pays": "request_payer",
    "headers": "default_headers",
}
_OPTION_PREFIXES = {"s3": "aws_", "gs": "google_", "az": "azure_", "http": ""}


def normalise(service: str, options: Mapping[str, Any], /) -> dict[str, Any]:
    """Return options under obstore's names: lower case, without prefixes such as ``aws_``, aliases replaced."""
    plain: dict[str, Any] = {}
    for key, value in options.items():
        if key == "client_kwargs" and isinstance(value, Mapping):
            plain |= normalise(service, value)
            continue
        word = key.lower().removeprefix(_OPTION_PREFIXES[service])
        plain[_ALIASES.get(word, word)] = value
    return plain


def split(options: Mapping[str, Any], /) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Split normalised options into options of the store, of its HTTP client and of its retries, and add the defaults.

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

"""List the credentials to try at a bucket, and interpret the options of ``storage=``. No requests are made here."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from virtualstack.errors import Remedy, StorageError
from virtualstack.storage.identities import aws, azure, earthdata, google_cloud
from virtualstack.storage.identities.packages import is_installed
from virtualstack.storage.named import options_at

_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
CREDENTIALS = {
    "s3": {"access_key_id", "secret_access_key", "session_token", "token", "web_identity_token_file", "role_arn",
           "container_credentials_relative_uri", "container_credentials_full_uri"},
    "gs": {"service_account", "service_account_path", "service_account_key", "application_credentials",
           "bearer_token", "token"},
    "az": {"account_key", "access_key", "client_secret", "sas_key", "sas_token", "token", "bearer_token",
           "federated_token_file", "use_azure_cli", "msi_endpoint"},
    "http": set(),
}  # fmt: skip
"""Options of each service that are credentials, or name them."""
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
    session
        Login at a web server, which is done when the server asks for it; ``None``: there is no login.
    """

    name: str
    config: Mapping[str, Any] = field(repr=False)
    provider: Callable[[], Callable[[], Any]] | None = field(default=None, repr=False)
    session: earthdata.Session | None = field(default=None, repr=False)


def identities(
    service: str, options: Mapping[str, Any], environ: Mapping[str, str], root: str = "", /, *, is_named: bool = True
) -> tuple[Identity, ...]:
    """Return the identities to try, in order.

    If the options hold or name credentials, only these are tried. Otherwise: credentials in the environment, those of
    the AWS profile or of gcloud, anonymous access, and the role of this machine. The role comes last, as the metadata
    service that knows it is slow to ask where there is none, and public buckets never need it.
    """
    if not is_named:
        options = {"earthdata": False, **options}
    if service == "http":
        return _web(options, environ, root)
    options = _PLAIN[service](options) if service in _PLAIN else options
    if not is_named:
        options = {key: value for key, value in options.items() if key not in CREDENTIALS[service] | _AWS_NAMES}
    if _is_true(options.get("skip_signature")):
        rest = {key: value for key, value in options.items() if key not in _WORDS}
        return (Identity("anonymous", {**rest, "skip_signature": True}),)
    if service == "az" and options.get("planetary_computer"):
        rest = {key: value for key, value in options.items() if key not in _WORDS}
        signed = Identity("Planetary Computer", rest, lambda: azure.planetary_computer(root, options))
        return signed, Identity("anonymous", {**rest, "skip_signature": True})
    of_nasa = _nasa_bucket(options, environ, root) if service == "s3" else ()
    if options.get("earthdata") not in (None, False, KNOWN):
        return of_nasa
    if service == "s3" and _names_aws(options):
        return (_named_by_options(options, environ),)
    if CREDENTIALS[service] & options.keys():
        return (Identity("the credentials in storage=", options),)
    is_unknown = options.get("earthdata") == KNOWN and earthdata.credentials_url(root) is None
    options = {key: value for key, value in options.items() if key not in _WORDS}
    anonymous = Identity("anonymous", {**options, "skip_signature": True})
    found = [] if is_unknown else list(of_nasa)
    variables = [name for name in _ENVIRONMENT[service] if environ.get(name)]
    if not environ.get("AWS_SECRET_ACCESS_KEY") and "AWS_ACCESS_KEY_ID" in variables:
        variables.remove("AWS_ACCESS_KEY_ID")  # half a key: obstore would ask the metadata service
    if service == "az" and (text := environ.get("AZURE_STORAGE_CONNECTION_STRING")):
        parts = azure.from_connection_string(text)
        options = {**{key: parts[key] for key in ("account_name", "endpoint") if key in parts}, **options}
        found.append(Identity("AZURE_STORAGE_CONNECTION_STRING", {**parts, **options}))
        anonymous = Identity("anonymous", {**options, "skip_signature": True})
    if not is_named:
        return *(() if is_unknown else of_nasa), anonymous
    if service == "gs" and "GOOGLE_APPLICATION_CREDENTIALS" in variables:
        found.append(_of_file("GOOGLE_APPLICATION_CREDENTIALS", environ["GOOGLE_APPLICATION_CREDENTIALS"], options))
    elif variables:
        is_token = variables[0] == "AWS_WEB_IDENTITY_TOKEN_FILE" and is_installed("boto3")
        provider = (lambda: aws.web_identity(environ)) if is_token else None
        found.append(Identity(f"the environment's credentials ({variables[0]})", options, provider))
    if service == "s3" and (profile := aws.profile(environ)) is not None and (profile.keys or profile.asked):
        found.append(_of_profile(profile, options))
    file = google_cloud.credentials_file(environ)
    if service == "gs" and not variables and file.is_file():
        found.append(_of_file(None, str(file), options))
    if environ.get(f"{_PREFIXES[service]}SKIP_SIGNATURE", "").lower() in ("1", "true"):
        return (anonymous,)
    last = _last(service, options, environ)
    return *found, anonymous, *last, *(of_nasa if is_unknown else ())


def _last(service: str, options: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[Identity, ...]:
    """Return the identity for which a service of this machine is asked, if a library that asks it is installed."""
    if service == "s3" and not _is_true(environ.get("AWS_EC2_METADATA_DISABLED")) and is_installed("boto3"):
        return (Identity("the role of this machine", options, aws.machine_role),)
    if service == "gs" and not _is_true(environ.get("NO_GCE_CHECK")) and is_installed("google", "google.auth"):
        name = "the service account of this machine"
        return (Identity(name, options, lambda: google_cloud.machine_account(environ)),)
    if service == "az" and is_installed("azure", "azure.identity"):
        return (Identity("DefaultAzureCredential of azure-identity", options, azure.default_credentials),)
    return ()


def _of_file(variable: str | None, path: str, options: Mapping[str, Any]) -> Identity:
    """Return the identity of a file of Google Cloud."""
    name = "gcloud's default credentials" if variable is None else f"the environment's credentials ({variable})"
    if google_cloud.foreign_kind(path) is None:
        return Identity(name, {**options, "application_credentials": path})
    return Identity(name, options, google_cloud.default_file)


def _plain_azure(options: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(options)
    if "connection_string" in plain:
        plain = {**azure.from_connection_string(str(plain.pop("connection_string"))), **plain}
    for name in ("sas_token", "sas_key"):
        if isinstance(plain.get(name), str):
            plain[name] = plain[name].removeprefix("?")
    return plain


def _plain_google(options: Mapping[str, Any]) -> dict[str, Any]:
    plain = dict(options)
    if "token" in plain:
        plain |= google_cloud.token_options(plain.pop("token"))
    return plain


_PLAIN = {"az": _plain_azure, "gs": _plain_google}
_WORDS = {"skip_signature", "earthdata", "planetary_computer"}


def _named_by_options(options: Mapping[str, Any], environ: Mapping[str, str]) -> Identity:
    """Return the identity of ``profile=`` or ``role_arn=``."""
    rest = {key: value for key, value in options.items() if key not in _AWS_NAMES}
    if "role_arn" in options:
        return Identity(f"the role '{options['role_arn']}' in storage=", rest, lambda: aws.assume_role(options))
    found = aws.profile(environ, options["profile"])
    if found is None:
        raise StorageError(
            f"storage= names the profile {options['profile']!r}, which does not exist in the files of AWS. They "
            f"have: {', '.join(aws.profile_names(environ)) or 'none'}. Use one of these, or add it with `aws "
            "configure`"
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


KNOWN = "known"
"""Value of the option ``earthdata``: only hosts and buckets that are known as NASA's."""

WEB_OPTIONS = {"username", "password", "token", "bearer_token", "earthdata", "planetary_computer", "skip_signature"}


def _web(options: Mapping[str, Any], environ: Mapping[str, str], root: str) -> tuple[Identity, ...]:
    rest = {key: value for key, value in options.items() if key not in WEB_OPTIONS}
    headers = options.get("default_headers") or {}
    if _is_true(options.get("skip_signature")):
        return (Identity("anonymous", rest),)
    archive, is_nasa = options.get("earthdata"), earthdata.is_archive(root)
    if archive is not False and (is_nasa or archive not in (None, KNOWN)) and "Authorization" not in headers:
        host = earthdata.login_host(environ)
        found = earthdata.logins(options, environ)
        nobody = Identity(f"no Earthdata login ({_NO_LOGIN.format(host=host)})", rest)
        return *(Identity(each.name, rest, session=earthdata.Session(each, host)) for each in found), nobody
    if token := options.get("token") or options.get("bearer_token"):
        return (Identity("the token in storage=", _authorized(rest, f"Bearer {token}")),)
    if "username" in options:
        pair = f"{options['username']}:{options.get('password', '')}".encode()
        name = f"the user '{options['username']}' in storage="
        return (Identity(name, _authorized(rest, f"Basic {base64.b64encode(pair).decode()}")),)
    return (Identity("the headers in storage=" if "default_headers" in options else "no credentials", rest),)


_NO_LOGIN = "EARTHDATA_TOKEN, EARTHDATA_USERNAME and ~/.netrc have no login for '{host}'"


def _authorized(options: Mapping[str, Any], value: str) -> dict[str, Any]:
    return {**options, "default_headers": {**options.get("default_headers", {}), "Authorization": value}}


def _nasa_bucket(options: Mapping[str, Any], environ: Mapping[str, str], root: str) -> tuple[Identity, ...]:
    """Return the identities that get temporary keys for a bucket of NASA, which is known by its name or option."""
    given = options.get("earthdata")
    url = given if isinstance(given, str) and given != KNOWN else earthdata.credentials_url(root)
    if given is False or (given is None and url is None):
        return ()
    found = earthdata.logins(options if given not in (None, KNOWN) else {}, environ)
    rest = {key: value for key, value in options.items() if key not in WEB_OPTIONS}
    if url is None or (not found and given is not None):
        name = "NASA Earthdata" if url is None else f"temporary keys from {url}"
        return (Identity(name, rest, lambda: _without_earthdata(root, url)),)
    host, rest = earthdata.login_host(environ), {"region": earthdata.REGION, **rest}

    def provider(login: earthdata.Login) -> Callable[[], Callable[[], Any]]:
        return lambda: earthdata.temporary_keys(url, earthdata.Session(login, host))

    return tuple(Identity(f"temporary keys from {url} for {each.name}", rest, provider(each)) for each in found)


def _without_earthdata(root: str, url: str | None) -> Callable[[], Any]:
    if url is None:
        raise StorageError(
            f"'{root}' is not known as one of NASA's buckets",
            Remedy(
                "give the URL at which its archive issues keys:",
                storage=options_at(root, earthdata="https://.../s3credentials"),
            ),
        )
    raise StorageError(f"{_NO_LOGIN.format(host=earthdata.DEFAULT_LOGIN_HOST)}", Remedy("set one of them"))


def _is_true(value: object) -> bool:
    return str(value).lower() in ("1", "true")


_AWS_NAMES = {"profile", "role_arn", "role_session_name", "external_id"}


def _names_aws(options: Mapping[str, Any]) -> bool:
    """Return whether options name AWS credentials for which a file or boto3 is asked."""
    if {"access_key_id", "web_identity_token_file"} & options.keys():  # obstore assumes roles with web identities
        return False
    return bool({"profile", "role_arn"} & options.keys())


CLIENT_OPTIONS = {"allow_http", "allow_invalid_certificates", "connect_timeout", "default_headers", "http1_only",
           "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_url", "proxy_ca_certificate",
           "proxy_excludes", "root_certificate", "read_timeout", "timeout", "user_agent"}  # fmt: skip
# A server that never answers costs one read_timeout, or two: at most 20 s. `timeout` bounds whole bodies.
_CLIENT_DEFAULTS = {"connect_timeout": "5s", "read_timeout": "10s", "timeout": "600s"}
MAX_RETRIES = 5
"""Largest number of quick repetitions of a request."""

RETRY_SECONDS = 10.0
"""Seconds after the first request in which quick repetitions begin."""

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
        if key == "auth" and service == "http":  # as requests and aiohttp have it
            plain |= {"username": value[0], "password": value[1]}
            continue
        word = key.lower().removeprefix(_OPTION_PREFIXES[service])
        if service == "az":
            word = word.removeprefix("storage_")  # AZURE_STORAGE_ACCOUNT_KEY
        plain[_ALIASES.get(word, word)] = value
    if service == "gs" and "endpoint" in plain:
        plain["base_url"] = plain.pop("endpoint")
    return plain


def split(options: Mapping[str, Any], /) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """Split normalised options into options of the store, of its HTTP client and of its retries, and add the defaults.

    ``retry_timeout`` is in seconds.
    """
    store = {key: value for key, value in options.items() if key != "min_rate"}
    client = {**_CLIENT_DEFAULTS, **{key: store.pop(key) for key in CLIENT_OPTIONS & store.keys()}}
    retry = {
        "max_retries": int(store.pop("max_retries", MAX_RETRIES)),
        "retry_timeout": timedelta(seconds=float(store.pop("retry_timeout", RETRY_SECONDS))),
        "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=3), "base": 2},
    }
    return store, client, retry

"""Find credentials and endpoints of AWS as boto3 does: the environment, profiles, and roles of this machine.

Keys that are written in a profile are read here. Everything that boto3 must ask somebody for (SSO, ``role_arn``,
``credential_process``, roles of this machine) is left to boto3, if it is installed: importing it takes 0.2 s, so it is
imported when such credentials are needed.
"""

from __future__ import annotations

import configparser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from virtualstack.errors import StorageError
from virtualstack.storage.identities.packages import load

_ASKED = "role_arn", "sso_session", "sso_start_url", "login_session"  # botocore prefers these to keys
_TTL = timedelta(minutes=5)  # botocore refreshes credentials at least 10 minutes before they expire
_ROLE_OPTIONS = {"role_arn": "RoleArn", "role_session_name": "RoleSessionName", "external_id": "ExternalId"}


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile of ``~/.aws/config`` and ``~/.aws/credentials``.

    Parameters
    ----------
    name
        Its name.
    file
        ``"credentials"`` or ``"config"``: the file that has the keys, or the setting named by ``asked``.
    keys
        Options of obstore with the keys; empty if boto3 must be asked for them, or if there are none.
    asked
        Setting for which boto3 must be asked, such as ``"role_arn"``; ``None``: there is no such setting.
    settings
        All settings.
    services
        Settings of the section ``services`` that the profile names.
    """

    name: str
    file: str
    keys: Mapping[str, str]
    asked: str | None
    settings: Mapping[str, str]
    services: Mapping[str, str]


def profile(environ: Mapping[str, str], name: str | None = None, /) -> Profile | None:
    """Return a profile, or ``None`` if it does not exist; a file that is damaged counts as empty."""
    name = name or environ.get("AWS_PROFILE") or "default"
    credentials, config = _files(environ)
    section = name if name == "default" else f"profile {name}"
    settings = config.get(section, {})
    own = credentials.get(name, {})
    if not settings and not own:
        return None
    merged = {**settings, **own}
    asked = next((key for key in _ASKED if key in merged), None)
    file = "credentials" if asked in own else "config"
    keys: dict[str, str] = {}
    if asked is None:
        if _has_keys(own):
            file, keys = "credentials", _keys(own)
        elif "credential_process" in merged:
            file, asked = "credentials" if "credential_process" in own else "config", "credential_process"
        elif _has_keys(settings):
            keys = _keys(settings)
    services = config.get(f"services {merged['services']}", {}) if "services" in merged else {}
    return Profile(name, file, keys, asked, merged, services)


def profile_names(environ: Mapping[str, str], /) -> list[str]:
    """Return the names of all profiles, sorted."""
    config = [
        name.removeprefix("profile ") for name in _files(environ)[1] if not name.startswith(("sso-", "services "))
    ]
    return sorted({*config, *_files(environ)[0]})


def _files(environ: Mapping[str, str]) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    credentials = environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return _read(credentials), _read(environ.get("AWS_CONFIG_FILE") or "~/.aws/config")


def _read(path: str) -> dict[str, dict[str, str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read(Path(path).expanduser(), encoding="utf-8")
        return {section: dict(parser[section]) for section in parser.sections()}
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}


def _has_keys(section: Mapping[str, str]) -> bool:
    return {"aws_access_key_id", "aws_secret_access_key"} <= section.keys()


def _keys(section: Mapping[str, str]) -> dict[str, str]:
    names = "access_key_id", "secret_access_key", "session_token"
    return {name: section[f"aws_{name}"] for name in names if section.get(f"aws_{name}")}


def endpoint(options: Mapping[str, Any], environ: Mapping[str, str], /) -> str | None:
    """Return the endpoint of S3 that options, the environment or the profile name, in boto3's order."""
    if options.get("endpoint"):
        return str(options["endpoint"])
    if environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return None
    found = profile(environ, options.get("profile"))
    settings, services = ({}, {}) if found is None else (found.settings, found.services)
    own = dict(line.split("=", 1) for line in services.get("s3", "").splitlines() if "=" in line)
    candidates = (
        environ.get("AWS_ENDPOINT_URL_S3"),
        environ.get("AWS_ENDPOINT_URL"),
        environ.get("AWS_ENDPOINT"),  # of obstore
        {key.strip(): value.strip() for key, value in own.items()}.get("endpoint_url"),
        settings.get("endpoint_url"),
    )
    return next(filter(None, candidates), None)


def ask_boto3(name: str, /) -> Callable[[], Any]:
    """Return obstore's provider of boto3's credentials for a profile."""
    session = load("boto3", "boto3").Session(profile_name=name)
    found, exceptions = _provider("Boto3CredentialProvider", session, ttl=_TTL), load("botocore.exceptions", "boto3")

    def ask() -> Any:
        try:
            return found()
        except (exceptions.SSOError, exceptions.TokenRetrievalError) as error:
            raise StorageError(f"{error}. Log in with the command: aws sso login --profile {name}") from error

    return ask


def assume_role(options: Mapping[str, Any], /) -> Callable[[], Any]:
    """Return obstore's provider of the role in ``role_arn``, which boto3's own credentials assume."""
    more = {_ROLE_OPTIONS[key]: options[key] for key in _ROLE_OPTIONS.keys() & options.keys()}
    session = load("boto3", "boto3").Session(profile_name=options.get("profile"))
    return _provider("StsCredentialProvider", session, **{"RoleSessionName": "virtualstack", **more})


def machine_role() -> Callable[[], Any]:
    """Return obstore's provider of the role of this machine, from the metadata service of EC2."""
    return _of_one_kind("iam-role", {}, "the metadata service of EC2 has no credentials")


def web_identity(environ: Mapping[str, str], /) -> Callable[[], Any]:
    """Return obstore's provider of the role of a token in a file, as in Kubernetes. Its own one needs STS at https."""
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return _of_one_kind("assume-role-with-web-identity", {"region": region}, "AWS_WEB_IDENTITY_TOKEN_FILE is not set")


def _of_one_kind(kind: str, settings: Mapping[str, str], absent: str) -> Callable[[], Any]:
    """Return obstore's provider of the credentials of one of botocore's providers."""
    session = load("botocore.session", "boto3").Session()
    for name, value in settings.items():
        session.set_config_variable(name, value)
    chain = session.get_component("credential_provider")
    only = load("botocore.credentials", "boto3").CredentialResolver([chain.get_provider(kind)])
    session.register_component("credential_provider", only)
    if session.get_credentials() is None:
        raise StorageError(absent)
    return _provider("Boto3CredentialProvider", session, ttl=_TTL)


def _provider(name: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    provider: Callable[[], Any] = getattr(load("obstore.auth.boto3", "boto3"), name)(*arguments, **options)
    return provider

"""Find credentials of Google Cloud: application default credentials, and the service account of this machine."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from virtualstack.errors import StorageError
from virtualstack.storage.identities.packages import load

_PACKAGES = "google-auth requests"
_METADATA_HOST = "metadata.google.internal"
_OF_OBSTORE = "service_account", "authorized_user"  # kinds of files that obstore reads itself
_SCOPES = ("https://www.googleapis.com/auth/devstorage.full_control",)


def credentials_file(environ: Mapping[str, str], /) -> Path:
    """Return the path of the file that ``gcloud auth application-default login`` writes, which need not exist."""
    folder = environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud"
    return Path(folder).expanduser() / "application_default_credentials.json"


def foreign_kind(path: str | Path, /) -> str | None:
    """Return the kind of a file with credentials if obstore cannot read it itself, or ``None``."""
    try:
        kind = json.loads(Path(path).expanduser().read_bytes()).get("type")
    except (OSError, ValueError, AttributeError):
        return None
    return kind if isinstance(kind, str) and kind not in _OF_OBSTORE else None


def token_options(token: object, /) -> dict[str, Any]:
    """Return the options of obstore for the ``token=`` of gcsfs: a word, a path, the content of a file, or a token.

    >>> token_options("anon"), token_options("ya29.x")
    ({'skip_signature': True}, {'bearer_token': 'ya29.x'})
    """
    if isinstance(token, Mapping):
        return {"service_account_key": json.dumps(dict(token))}
    text = str(token)
    if text == "anon":
        return {"skip_signature": True}
    if text in ("google_default", "cache", "cloud", "browser"):
        return {}  # who is found without options
    is_path = text.endswith(".json") or "/" in text
    return {"application_credentials": text} if is_path else {"bearer_token": text}


def default_file() -> Callable[[], Any]:
    """Return obstore's provider of application default credentials, in a file of any kind that google-auth knows."""
    credentials, _ = load("google.auth", _PACKAGES).default(scopes=_SCOPES)
    return _provider(credentials)


def machine_account(environ: Mapping[str, str], /) -> Callable[[], Any]:
    """Return obstore's provider of the service account of this machine, from the metadata service of Google Cloud."""
    host, _, port = environ.get("GCE_METADATA_HOST", _METADATA_HOST).partition(":")
    try:
        socket.create_connection((host, int(port or 80)), timeout=1).close()  # google-auth would try for 9 s
    except OSError as error:
        raise StorageError("there is no metadata service of Google Cloud") from error
    return _provider(load("google.auth.compute_engine", _PACKAGES).Credentials())


def _provider(credentials: Any) -> Callable[[], Any]:
    provider: Callable[[], Any] = load("obstore.auth.google", _PACKAGES).GoogleCredentialProvider(credentials)
    return provider

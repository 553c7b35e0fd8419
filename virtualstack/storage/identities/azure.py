"""Find credentials of Azure: connection strings, keys, SAS tokens, and those of azure-identity."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from virtualstack.errors import StorageError
from virtualstack.storage.identities.packages import load

OPTIONS = frozenset(["account_key", "connection_string", "planetary_computer", "sas_key", "sas_token"])
"""Options with which the https URL of a blob is opened as one of its container."""

_BLOB = ".blob.core.windows.net"
_ACCOUNTS = _BLOB, ".dfs.core.windows.net", ".blob.fabric.microsoft.com", ".dfs.fabric.microsoft.com"
_EMULATOR = {  # the account that every emulator has; its key is public
    "account_name": "devstoreaccount1",
    "account_key": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "endpoint": "http://127.0.0.1:10000/devstoreaccount1",
}
_PARTS = {"AccountName": "account_name", "AccountKey": "account_key", "SharedAccessSignature": "sas_key",
          "BlobEndpoint": "endpoint"}  # fmt: skip


def blob_account(root: str, /) -> str | None:
    """Return the account whose blobs a host serves, or ``None``.

    >>> blob_account("https://daymeteuwest.blob.core.windows.net/"), blob_account("https://x.org/")
    ('daymeteuwest', None)
    """
    host = urlsplit(root).hostname or ""
    return host.removesuffix(_BLOB) if host.endswith(_BLOB) else None


def from_connection_string(text: str, /) -> dict[str, str]:
    """Return the options of obstore that a connection string has.

    >>> from_connection_string("AccountName=a;AccountKey=k==;EndpointSuffix=core.windows.net")
    {'account_name': 'a', 'account_key': 'k=='}
    """
    parts = dict(part.strip().split("=", 1) for part in text.split(";") if "=" in part)
    if parts.get("UseDevelopmentStorage", "").lower() == "true":
        return dict(_EMULATOR)
    found = {name: parts[part] for part, name in _PARTS.items() if part in parts}
    suffix = parts.get("EndpointSuffix", "core.windows.net")
    if "endpoint" not in found and suffix != "core.windows.net" and "account_name" in found:
        found["endpoint"] = f"{parts.get('DefaultEndpointsProtocol', 'https')}://{found['account_name']}.blob.{suffix}"
    host = urlsplit(found.get("endpoint", "")).hostname or ""
    if "account_name" not in found and "." in host:  # a string with a SAS token has no name
        found["account_name"] = host.partition(".")[0]
    if "account_name" not in found:
        raise StorageError(
            "the connection string of Azure has no AccountName. Give a text such as "
            "'DefaultEndpointsProtocol=https;AccountName=...;AccountKey=...;EndpointSuffix=core.windows.net'"
        )
    return found


def default_credentials() -> Callable[[], Any]:
    """Return obstore's provider of ``DefaultAzureCredential``."""
    provider: Callable[[], Any] = load("obstore.auth.azure", "azure-identity").AzureCredentialProvider()
    return provider


def planetary_computer(root: str, options: Mapping[str, Any], /) -> Callable[[], Any]:
    """Return obstore's provider of the tokens with which Planetary Computer opens a container."""
    parts = urlsplit(root)
    container, _, host = parts.netloc.partition("@") if parts.scheme != "https" else (parts.path.strip("/"), "", "")
    suffix = next((suffix for suffix in _ACCOUNTS if host.endswith(suffix)), None)
    account = options.get("account_name") or blob_account(root) or (suffix and host.removesuffix(suffix))
    if not account:
        raise StorageError(f'\'{root}\' does not name its account. Give it: {{"account_name": "..."}}')
    load("requests", "requests")
    module = load("obstore.auth.planetary_computer", "requests")
    provider: Callable[[], Any] = module.PlanetaryComputerCredentialProvider(
        account_name=account, container_name=container
    )
    return provider

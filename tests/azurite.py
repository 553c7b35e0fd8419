"""Azurite, Microsoft's own emulator of Azure's blobs, on loopback; npm installs it once into the user's cache."""

from __future__ import annotations

import atexit
import base64
import contextlib
import hashlib
import hmac
import os
import re
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import cache
from pathlib import Path
from typing import Self
from urllib.parse import urlencode

import obstore
import platformdirs
from obstore.store import AzureStore

__all__ = ["Azurite", "find_program", "sas_of_container", "shared"]

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_PACKAGE = "azurite@3"


@cache
def find_program() -> str | None:
    """Return the path of the program, or None where it cannot be had."""
    found = shutil.which("azurite-blob")
    folder = platformdirs.user_cache_path("virtualstack-tests") / "azurite"
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if found or program.exists():
        return found or str(program)
    npm = shutil.which("npm")
    if npm is None:
        return None
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=folder.parent))
    command = [npm, "install", "--prefix", str(made), "--no-audit", "--no-fund", "--silent", _PACKAGE]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=180)
        made.rename(folder)
    except (OSError, subprocess.SubprocessError):  # OSError: another worker was faster
        shutil.rmtree(made, ignore_errors=True)
    return str(program) if program.exists() else None


class Azurite:
    """A context manager with one account; `endpoint` is its URL."""

    def __enter__(self) -> Self:
        options = [
            "--blobPort",
            "0",
            "--blobHost",
            "127.0.0.1",
            "--inMemoryPersistence",
            "--skipApiVersionCheck",
            "--silent",
        ]
        self._process = subprocess.Popen(
            [find_program(), *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=os.getcwd()
        )
        for line in self._process.stdout:
            if found := re.search(r"listens on http://127\.0\.0\.1:(\d+)", line):
                self.endpoint = f"http://127.0.0.1:{found.group(1)}/{ACCOUNT}"
                return self
        raise RuntimeError("Azurite ended before it listened")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._process.stdout.close()

    def create(self, container: str, *, is_public: bool = False) -> None:
        """Make a container."""
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
        if is_public:
            headers["x-ms-blob-public-access"] = "container"
        named = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        text = f"PUT{12 * '\n'}{named}/{ACCOUNT}/{ACCOUNT}/{container}\nrestype:container"
        digest = hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        url = f"{self.endpoint}/{container}?restype=container"
        with contextlib.suppress(urllib.error.HTTPError):  # it exists
            urllib.request.urlopen(urllib.request.Request(url, headers=headers, method="PUT")).close()

    def store(self, container: str) -> AzureStore:
        """Return obstore's own store of a container."""
        options = {"account_name": ACCOUNT, "account_key": KEY, "endpoint": self.endpoint}
        return AzureStore.from_url(f"az://{container}", config=options, client_options={"allow_http": True})

    def sas(self, container: str, key: str) -> str:
        """Return a SAS token that reads one blob for an hour."""
        return obstore.sign(self.store(container), "GET", key, timedelta(hours=1)).partition("?")[2]


@cache
def shared() -> Azurite:
    """Return the one of this process, which ends with it."""
    server = Azurite()
    server.__enter__()
    atexit.register(server.__exit__)
    return server


def sas_of_container(container: str) -> str:
    """Return a SAS token that reads all blobs of a container for an hour."""
    begins, ends = (formatted(datetime.now(UTC) + timedelta(hours=hours)) for hours in (-1, 1))
    version, place = "2020-10-02", f"/blob/{ACCOUNT}/{container}"
    text = "\n".join(["rl", begins, ends, place, "", "", "", version, "c", "", "", "", "", "", ""])
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    return urlencode({"sp": "rl", "st": begins, "se": ends, "sv": version, "sr": "c", "sig": signature})


def formatted(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")

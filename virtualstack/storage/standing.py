"""Read what a user has set once: storage options by URL prefix, and places that references may name."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import cast

import platformdirs

from virtualstack.errors import StorageError
from virtualstack.location import absolute_url

ALLOW_VARIABLE = "VIRTUALSTACK_ALLOW"
"""Environment variable with places that references may name, separated by spaces and quoted as in a shell."""

CONFIG_VARIABLE = "VIRTUALSTACK_CONFIG"
"""Environment variable that names another configuration file."""

STORAGE_VARIABLE = "VIRTUALSTACK_STORAGE"
"""Environment variable with options by URL prefix, as a JSON object; they take precedence over those of the file."""


def config_path() -> Path:
    """Return the path of the configuration file, which need not exist.

    It is ``config.toml`` in the user's folder for configurations, such as ``~/.config/virtualstack``, or the file that
    the environment variable ``VIRTUALSTACK_CONFIG`` names.
    """
    named = os.environ.get(CONFIG_VARIABLE)
    return Path(named).expanduser() if named else platformdirs.user_config_path("virtualstack") / "config.toml"


def standing_options() -> Mapping[str, Mapping[str, object]]:
    """Return the options by absolute URL prefix of the configuration file and of the environment, longest prefix first.

    The file is read once in a process, and has one table for each prefix::

        [storage."s3://bucket/"]
        endpoint = "https://minio.example.org"
        anonymous = true

    The environment variable ``VIRTUALSTACK_STORAGE`` has the same options as a JSON object, and takes precedence::

        {"s3://bucket/": {"endpoint": "https://minio.example.org", "anonymous": true}}
    """
    return _options(os.environ.get(CONFIG_VARIABLE), os.environ.get(STORAGE_VARIABLE))


@cache
def _options(config: str | None, text: str | None) -> Mapping[str, Mapping[str, object]]:
    found = {**_read(config)[0], **(_of_environment(text) if text else {})}
    options = {absolute_url(prefix): found[prefix] for prefix in found}
    return dict(sorted(options.items(), key=lambda entry: (-len(entry[0]), entry[0])))


def standing_places() -> tuple[str, ...]:
    """Return the URLs of ``VIRTUALSTACK_ALLOW``, and of ``allow = [...]`` at the top of the configuration file."""
    text = os.environ.get(ALLOW_VARIABLE)
    named = _split(text, os.getcwd()) if text else ()
    return (*named, *map(absolute_url, _read(os.environ.get(CONFIG_VARIABLE))[1]))


@lru_cache(maxsize=4)
def _split(text: str, _: str) -> tuple[str, ...]:
    import shlex

    try:
        return tuple(map(absolute_url, shlex.split(text)))
    except ValueError as error:
        raise StorageError(
            f"{ALLOW_VARIABLE}={text!r} is not a list of places: {error}. Separate places by spaces, and quote a path "
            "that contains spaces"
        ) from error


@cache
def _read(_: str | None) -> tuple[Mapping[str, Mapping[str, object]], tuple[str, ...]]:
    path = config_path()
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}, ()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"the configuration file '{path}' could not be read: {error}") from error
    import tomllib

    remedy = f"Correct it, or name another file with {CONFIG_VARIABLE}"
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StorageError(f"the configuration file '{path}' is not TOML: {error}. {remedy}") from error
    unknown = sorted(found.keys() - {"storage", "allow"})
    if unknown:
        raise StorageError(
            f"the configuration file '{path}' has '{unknown[0]}'; only allow and [storage] are known. {remedy}"
        )
    places = found.get("allow", [])
    if not isinstance(places, list) or not all(map(_is_place, places)):
        raise StorageError(
            f"the configuration file '{path}' has allow = {places!r}, which is not a list of URLs and absolute paths. "
            f'An example is allow = ["/data/", "s3://bucket/"]. {remedy}'
        )
    tables = found.get("storage", {})
    if (wrong := _wrong_prefix(tables)) is not None:
        raise StorageError(
            f"the configuration file '{path}' has no options by URL prefix at 'storage.{wrong}'; a table is "
            f'[storage."s3://bucket/"], with options such as endpoint = "https://host". {remedy}'
        )
    return tables, tuple(os.path.expanduser(x) for x in places)


def _of_environment(text: str) -> Mapping[str, Mapping[str, object]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if (wrong := _wrong_prefix(found)) is not None:  # the text is not shown, as it may have secrets
        where = f"at '{wrong}'" if wrong else "in it"
        raise StorageError(
            f"the environment variable {STORAGE_VARIABLE} has no options by URL prefix {where}. Set it to a JSON "
            'object, such as {"s3://bucket/": {"endpoint": "https://host"}}'
        )
    return cast(Mapping[str, Mapping[str, object]], found)


def _wrong_prefix(tables: object) -> str | None:
    """Return the first key that is not a URL prefix with options, ``""`` if there are no keys, ``None`` if all are."""
    if not isinstance(tables, dict):
        return ""
    return next((str(x) for x, options in tables.items() if not isinstance(options, dict) or "://" not in x), None)


def _is_place(text: object) -> bool:
    return isinstance(text, str) and (text.startswith(("/", "~")) or "://" in text)

"""The portal of AWS SSO on loopback, and the token that ``aws sso login`` leaves in the cache of botocore."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import botocore.credentials
import botocore.tokens
import pytest

from tests.servers import RangeServer

__all__ = ["SSO_LEGACY_PROFILE", "SSO_PROFILE", "sso_portal"]

_START = "https://corp.awsapps.com/start"
SSO_PROFILE = (
    "[{}]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = reader\n"
    f"[sso-session corp]\nsso_start_url = {_START}\nsso_region = us-east-1\n"
)
"""Text of a profile with a session, as ``aws configure sso`` writes it now."""

SSO_LEGACY_PROFILE = (
    f"[{{}}]\nsso_start_url = {_START}\nsso_region = us-east-1\nsso_account_id = 123456789012\nsso_role_name = reader\n"
)
"""Text of a profile without a session, as it wrote it before."""


@contextlib.contextmanager
def sso_portal(patch: pytest.MonkeyPatch, cache: Path, *, hours: float = 8) -> Iterator[RangeServer]:
    """Run the portal, which gives the keys ``SSO``, with a token in the cache that is valid for some hours."""
    ends = datetime.now(UTC) + timedelta(hours=hours)
    token = {"accessToken": "token of ann", "expiresAt": ends.strftime("%Y-%m-%dT%H:%M:%SZ"), "region": "us-east-1"}
    cache.mkdir()
    for name in ("corp", _START):
        (cache / f"{hashlib.sha1(name.encode()).hexdigest()}.json").write_text(json.dumps(token))
    for kind in (botocore.credentials.SSOProvider, botocore.tokens.SSOTokenProvider):
        patch.setattr(kind, "_SSO_TOKEN_CACHE_DIR", str(cache))  # ~/.aws/sso/cache, found when botocore is imported
    keys = {"accessKeyId": "SSO", "secretAccessKey": "s", "sessionToken": "t"}
    answer = {"roleCredentials": {**keys, "expiration": int(1000 * (time.time() + 3600))}}
    with RangeServer({"federation/credentials": json.dumps(answer).encode()}) as portal:
        patch.setenv("AWS_ENDPOINT_URL_SSO", portal.root.rstrip("/"))
        patch.setenv("AWS_ENDPOINT_URL_SSO_OIDC", portal.root.rstrip("/"))
        yield portal

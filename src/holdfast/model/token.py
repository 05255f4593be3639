"""Tokens of the service: who calls it and what they may do."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime

PREFIX = "hf_"
SCOPES = ("jobs:read", "jobs:write", "webhooks:read", "webhooks:write", "metrics", "operate", "admin")
"""What a token may be for. metrics is to look at figures; operate is that and limits, queues and workers; admin is
all of it. A tenant's has none of the three."""
SHOWN = len(PREFIX) + 8


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """One row of the table `api_tokens`, without the digest. `shown` is how the token begins; `state` is valid, expired
    or revoked, by the database's clock."""

    id: str
    name: str
    shown: str
    tenant: str | None
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    priority: int
    """The best that its jobs may have: 0 is any."""
    rate: float | None
    """Requests a second that each service lets through; None is any number."""
    state: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose token it is. `everyone` sees the rows of all tenants; the others see their tenant's."""

    id: str
    name: str
    tenant: str | None
    scopes: frozenset[str]
    seconds_left: float | None
    priority: int = 0
    rate: float | None = None

    @property
    def everyone(self) -> bool:
        return self.tenant is None

    def may(self, scope: str) -> bool:
        """Whether the token is for this."""
        held = {"admin", "operate"} if scope == "metrics" else {"admin"}
        return scope in self.scopes or not held.isdisjoint(self.scopes)


def new_token() -> str:
    """256 random bits, with a prefix by which people and scanners know what it is."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """What is kept of a token. It is random, so nothing slower than a hash is needed."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()

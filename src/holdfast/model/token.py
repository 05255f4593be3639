"""Tokens of the service, their scopes, and the callers they identify."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime

from holdfast.model.view import View

PREFIX = "hf_"
SCOPES = ("jobs:read", "jobs:write", "webhooks:read", "webhooks:write", "metrics", "operate", "admin")
"""Scopes of tokens. metrics allows reading figures; operate also limits, queues and workers; admin everything. A
tenant's token has none of the three."""
SHOWN = len(PREFIX) + 8


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """One row of the table `api_tokens`, without the digest. `shown` is the token's beginning; `state` is valid,
    expired or revoked, by the database's clock."""

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
    """The highest priority of its jobs; 0 allows any."""
    rate: float | None
    """Requests per second that each service process allows; None is unlimited."""
    state: str


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token. `everyone`: sees the rows of all tenants, not only of its own."""

    id: str
    name: str
    tenant: str | None
    scopes: frozenset[str]
    seconds_left: float | None = field(compare=False)
    """When it was looked up. Two look-ups of a token give equal callers."""
    priority: int = 0
    rate: float | None = None
    view: View = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        reads, changes = self.may("webhooks:read"), self.may("webhooks:write")
        view = View(tenant=self.tenant, reads_deliveries=reads, changes_deliveries=changes)
        object.__setattr__(self, "view", view)  # made once, because each request needs it

    @property
    def everyone(self) -> bool:
        return self.tenant is None

    def may(self, scope: str) -> bool:
        """Return whether the token has this scope."""
        wider = {"admin", "operate"} if scope == "metrics" else {"admin"}
        return scope in self.scopes or not wider.isdisjoint(self.scopes)


def new_token() -> str:
    """Return 256 random bits, with a prefix that people and secret scanners recognize."""
    return PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> bytes:
    """Return the stored digest of a token. Tokens are random, so a fast hash is safe."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()

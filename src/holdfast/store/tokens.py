"""Calls of the service's tokens and of its stored responses to repeated requests. See call.py."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.model.token import Caller, TokenInfo
from holdfast.store.call import Call, Rows, text_array

_COLUMNS = "id::text, name, shown, tenant, scopes, created_at, expires_at, revoked_at, last_used_at, priority, rate"


@dataclass(frozen=True, slots=True)
class IdempotencyState:
    """The state of an Idempotency-Key: new, same (with the stored response) or other (another request's)."""

    outcome: str
    status: int | None
    body: str | None


class TokenCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def create(
        self,
        id_: str,
        name: str,
        digest: bytes,
        shown: str,
        tenant: str | None,
        scopes: Sequence[str],
        lifetime: float | None,
        priority: int = 0,
        rate: float | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Call[bool]:
        return Call(
            f"SELECT {self.schema}.create_token(%s::uuid, %s, decode(%s, 'hex'), %s, %s, %s::text[], "
            "make_interval(secs => %s), %s, %s, %s, %s)",
            (id_, name, digest.hex(), shown, tenant, text_array(scopes), lifetime, priority, rate, by, reason),
            _first,
        )

    def list(
        self, *, tenant: str | None = None, id_: str | None = None, before: str | None = None, limit: int | None = None
    ) -> Call[builtins.list[TokenInfo]]:
        """Return all tokens, those of a tenant, one, or a page of them before an id; newest first."""
        return Call(
            f"SELECT {_COLUMNS}, CASE WHEN revoked_at IS NOT NULL THEN 'revoked' "
            f"WHEN expires_at <= {self.schema}.clock() THEN 'expired' ELSE 'valid' END FROM {self.schema}.api_tokens "
            "WHERE (%s::text IS NULL OR tenant = %s) AND (%s::uuid IS NULL OR id = %s::uuid) "
            "AND (%s::uuid IS NULL OR api_tokens.id < %s::uuid) ORDER BY api_tokens.id DESC LIMIT %s",
            (tenant, tenant, id_, id_, before, before, limit),
            lambda rows: [TokenInfo(*row) for row in rows],
        )

    def revoke(self, id_: str, by: str | None = None, reason: str | None = None) -> Call[bool]:
        return Call(f"SELECT {self.schema}.revoke_token(%s::uuid, %s, %s)", (id_, by, reason), _first)

    def use(self, digests: Sequence[bytes]) -> Call[builtins.list[Caller | None]]:
        """Return the callers of tokens, None for those that are not valid."""
        return Call(
            "SELECT u.id::text, u.name, u.tenant, u.scopes, u.seconds_left, u.priority, u.rate "
            "FROM unnest(%s::text[]) WITH ORDINALITY AS d(digest, place) "
            f"LEFT JOIN LATERAL {self.schema}.use_token(decode(d.digest, 'hex')) u ON true ORDER BY d.place",
            (text_array([each.hex() for each in digests]),),
            lambda rows: [_caller(*row) for row in rows],
        )

    def cursor_key(self) -> Call[str]:
        """Return the key that seals the cursors of lists, shared by all processes of the service."""
        return Call(f"SELECT key FROM {self.schema}.cursor_keys", (), _first)

    def begin_response(self, owner: str, key: str, fingerprint: bytes) -> Call[IdempotencyState]:
        return Call(
            f"SELECT outcome, status, body FROM {self.schema}.begin_response(%s, %s, decode(%s, 'hex'))",
            (owner, key, fingerprint.hex()),
            lambda rows: IdempotencyState(*rows[0]),
        )

    def store_response(self, owner: str, key: str, status: int, body: str) -> Call[None]:
        return Call(
            f"SELECT {self.schema}.store_response(%s, %s, %s::smallint, %s)", (owner, key, status, body), lambda _: None
        )


def _caller(id_: str | None, name: str, tenant: str | None, scopes: Sequence[str], *rest: Any) -> Caller | None:
    return None if id_ is None else Caller(id_, name, tenant, frozenset(scopes), *rest)


def _first(rows: Rows) -> Any:
    return rows[0][0]

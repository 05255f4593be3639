"""Tokens of the service, `hf.tokens`: create, list and revoke them."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import timedelta

from holdfast.client.operation import Noun, Steps, operation
from holdfast.errors import UnknownToken, UsageError
from holdfast.model import check
from holdfast.model.job import ids, parse_id
from holdfast.model.token import SCOPES, SHOWN, TokenInfo, digest, new_token
from holdfast.store.call import Call
from holdfast.store.tokens import TokenCalls


class Tokens(Noun):
    """`hf.tokens`. A token gives access to the service (`holdfast serve`), for one tenant or for all."""

    @property
    def calls(self) -> TokenCalls:
        return TokenCalls(self._hf.settings.schema)

    def _create(
        self,
        name: str,
        *,
        tenant: str | None,
        scopes: Sequence[str],
        lifetime: float | timedelta | None = None,
        priority: int = 0,
        rate: float | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Steps[tuple[str, TokenInfo]]:
        """Create a token and return it; it cannot be read again. tenant None is for the rows of all tenants. scopes are
        jobs:read, jobs:write, webhooks:read, webhooks:write, metrics, operate and admin. lifetime is in seconds; None:
        forever. priority is the best that its jobs may have; rate, the requests a second that each service process
        accepts.
        """
        yield self.calls.create(
            id_ := ids.make(),
            check.name(name, "a token's name"),
            digest(token := new_token()),
            token[:SHOWN],
            check.tenant(tenant),
            _scopes(scopes),
            None if lifetime is None else check.seconds(lifetime, "lifetime"),
            check.priority(priority),
            check.rate(rate),
            by,
            reason,
        )
        return token, (yield from self._get(id_))

    create, acreate = operation(_create)

    def _get(self, token_id: str) -> Steps[TokenInfo]:
        """Return what is known of a token. Raise UnknownToken if there is none."""
        found: Sequence[TokenInfo] = yield self.calls.list(id_=parse_id(token_id))
        if not found:
            raise UnknownToken(token_id)
        return found[0]

    get, aget = operation(_get)

    def _list(self, *, tenant: str | None = None) -> Call[builtins.list[TokenInfo]]:
        """Return all tokens, or those of a tenant, newest first, including expired and revoked ones."""
        return self.calls.list(tenant=tenant)

    list, alist = operation(_list)

    def _revoke(self, token_id: str, *, by: str | None = None, reason: str | None = None) -> Steps[bool]:
        """Revoke a token; running services accept it for at most `token_cache` seconds more. Return whether it was
        valid."""
        if (yield self.calls.revoke(parse_id(token_id), by, reason)):
            return True
        yield from self._get(token_id)  # raises if there is none
        return False

    revoke, arevoke = operation(_revoke)


def _scopes(scopes: Sequence[str]) -> list[str]:
    if isinstance(scopes, str):
        raise UsageError(f'scopes must be a list, as in ["{scopes}"], got the string {scopes!r:.60}')
    for each in scopes:
        if each not in SCOPES:
            raise UsageError(f"a scope must be {', '.join(SCOPES[:-1])} or {SCOPES[-1]}; got {each!r:.60}")
    return list(dict.fromkeys(scopes))

"""Errors by their codes, and which of them are worth another try."""

from __future__ import annotations

import psycopg

from holdfast import DatabaseUnavailable

RETRYABLE: list[type[BaseException] | str] = [
    "DB_UNAVAILABLE",
    "QUEUE_UNAVAILABLE",
    "HttpException",
    "WebhookTimeout",
    "WebhookNon2xx",
    DatabaseUnavailable,  # DB_UNAVAILABLE, as Holdfast raises it ...
    psycopg.OperationalError,  # ... and as the driver does in a handler's own statements
]
PERMANENT: list[type[BaseException] | str] = [
    "SNAPSHOT_NOT_READY",
    "RULE_PKG_NOT_PUBLISHED",
    "VALIDATION_ERROR",
    "RULE_TYPE_ERROR",
    "PAYLOAD_TOO_LARGE",
    "SIGNING_KEY_MISSING",
]


class PassportError(Exception):
    """What went wrong, with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

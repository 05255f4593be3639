"""Structured log lines on the standard logging module: an event, then fields. Ids, never payloads."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

ROOT = "holdfast"


def get(name: str) -> logging.Logger:
    """The logger of one part."""
    return logging.getLogger(f"{ROOT}.{name}")


def event(logger: logging.Logger, level: int, text: str, **fields: Any) -> None:
    """Logs an event with fields; nothing is formatted unless somebody reads it."""
    if logger.isEnabledFor(level):
        logger.log(level, text, extra={"fields": fields})


def configure(form: str, level: str) -> None:
    """Sends Holdfast's log lines to stderr; for the command line, not for applications that embed a worker."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Console())
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {"time": _time(record).isoformat(), "level": record.levelname.lower(), "logger": record.name,
                "event": record.getMessage(), **getattr(record, "fields", {})}  # fmt: skip
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class Console(logging.Formatter):
    """For people: time, level, event, then fields as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{k}={_short(v)}" for k, v in getattr(record, "fields", {}).items())
        line = (
            f"{_time(record):%H:%M:%S.%f}"[:-3] + f" {record.levelname.lower():<7} {record.getMessage():<28} {fields}"
        )
        return line.rstrip() + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _short(value: Any) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return f'"{text}"' if " " in text else text

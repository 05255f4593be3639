"""Structured log lines on the standard logging module: an event, then fields. Fields contain ids, never payloads; error
texts are scrubbed, because they may quote anything."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from holdfast.model.clock import CLOCK, Clock
from holdfast.telemetry.scrub import scrub

ROOT = "holdfast"
TRACEBACK = "traceback"  # a field that is shown on separate lines, below the event
_FRAME = re.compile(r'^( *File "[^"\n]{1,500}", line \d+, in [^\n]{1,200}\n)', re.MULTILINE)
_MOST = 1000  # distinct warnings remembered


def get(name: str) -> logging.Logger:
    """Return the logger of one component."""
    return logging.getLogger(f"{ROOT}.{name}")


def event(logger: logging.Logger, level: int, text: str, **fields: Any) -> None:
    """Log an event with fields; they are formatted only if a handler emits the record."""
    if logger.isEnabledFor(level):
        if "error" in fields:
            fields["error"] = scrub(str(fields["error"]))
        if TRACEBACK in fields:
            fields[TRACEBACK] = _scrub_traceback(str(fields[TRACEBACK]))
        logger.log(level, "%s%s", text, Fields(fields), extra={"event": text, "fields": fields}, stacklevel=2)


class RateLimitedLog:
    """Rate-limited warnings for conditions that last (an outage): one per interval for each text and subject, repeats
    at level debug."""

    def __init__(self, logger: logging.Logger, every: float = 30.0, clock: Clock = CLOCK) -> None:
        self._logger = logger
        self._clock = clock
        self._every = every
        self._quiet_until: dict[tuple[str, str], float] = {}

    def warn(self, text: str, about: str = "", **fields: Any) -> None:
        """Log a warning, or a debug line if it repeats within the interval."""
        now, key = self._clock.monotonic(), (text, about)
        repeats = now < self._quiet_until.get(key, 0.0)
        if not repeats:
            if len(self._quiet_until) >= _MOST:
                self._quiet_until.clear()
            self._quiet_until[key] = now + self._every
        event(self._logger, logging.DEBUG if repeats else logging.WARNING, text, **fields)

    def failed(self, text: str, error: Exception, **fields: Any) -> None:
        """Log an error; each type of error has its own interval."""
        self.warn(text, type(error).__name__, **fields, error=str(error))

    def forget(self) -> None:
        """End all intervals: the next warning is logged at once."""
        self._quiet_until.clear()


class Fields:
    """The fields as text, for formatters that do not know fields."""

    __slots__ = ("_fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __str__(self) -> str:
        return "".join(f" {each}" for each in _pairs(self._fields)) + _below(self._fields)


def configure(form: str, level: str) -> None:
    """Send Holdfast's log lines to stderr; for the command line, not for applications that embed a worker."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else Console())
    for name, least in ((ROOT, level.upper()), ("psycopg", "WARNING")):  # lost connections, for example
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(least)
        logger.propagate = False


class JsonLines(logging.Formatter):
    """Formats one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = scrub(self.formatException(record.exc_info))
        return printable_json(msgspec.json.encode(line, enc_hook=str).decode())


class Console(logging.Formatter):
    """Formats lines to read: time, level, event, then fields as name=value."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        head = f"{_time(record):%H:%M:%S.%f}"[:-3] + f" {record.levelname.lower():<7} {printable(_event(record)):<28}"
        line = " ".join((head, *_pairs(fields))).rstrip() + _below(fields)
        return line + (_indented(scrub(self.formatException(record.exc_info))) if record.exc_info else "")


def _indented(text: str) -> str:
    """Return the text indented, so that no line of an error's text looks like a log line."""
    return "".join(f"\n  {each}" for each in printable(text, keep="\n\t").splitlines())


def printable(text: str, keep: str = "") -> str:
    """Return the text with control, bidirectional and other invisible characters escaped, except those in `keep`.

    Texts of jobs reach terminals; unescaped, they could move the cursor, rename the window, hide or forge lines.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def printable_json(text: str) -> str:
    """Return JSON with such characters escaped as JSON does; newlines stay, because they occur only between values."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(c if c.isprintable() or c == "\n" else _json_escape(c) for c in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _event(record: logging.LogRecord) -> str:
    return str(getattr(record, "event", None) or record.getMessage())


def _scrub_traceback(text: str) -> str:
    """Scrub a traceback but keep its files and lines: a long path looks like a token, and readers need it."""
    return "".join(part if n % 2 else scrub(part) for n, part in enumerate(_FRAME.split(text)))


def _pairs(fields: Mapping[str, Any]) -> Iterator[str]:
    return (f"{name}={_short(value)}" for name, value in fields.items() if name != TRACEBACK)


def _below(fields: Mapping[str, Any]) -> str:
    return _indented(fields[TRACEBACK].rstrip()) if TRACEBACK in fields else ""


def number(value: float) -> str:
    """Format a number with three digits and no exponent: 0.25, 12.3, 1930."""
    if not math.isfinite(value) or abs(value) >= 100:
        return f"{value:.0f}"
    text = f"{value:.3g}"
    return f"{value:.6f}".rstrip("0").rstrip(".") if "e" in text else text


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        text = ", ".join(f"{name}: {each}" for name, each in value.items())
    else:
        text = number(value) if isinstance(value, float) else str(value)
    return printable(json.dumps(text, ensure_ascii=False) if set(text) & set(' "\n\r\t') else text)

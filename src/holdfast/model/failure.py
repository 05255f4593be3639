"""A failed attempt: as passed to error reporters, and the fingerprint that names the group of its error.

Errors of one task with the same type, normalized message and frame are one group (decision 032). Normalizing replaces
what differs from one failure to the next: quoted text, ids, numbers, times, addresses, paths.
"""

from __future__ import annotations

import os
import re
import site
import sysconfig
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.model.job import Job

_LONGEST = 2000  # characters of a message that are looked at
_QUOTED = re.compile(r"""(?<!\w)'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`[^`\n]*`|«[^»\n]*»|“[^”\n]*”""")
_ROW = re.compile(r"\(.*\)(?= (?:already exists|is not present|is still referenced|conflicts))")
_VALUE = re.compile(r"[\d@/\\#]|\.\w").search  # numbers, ids, times, addresses, hosts, paths, what was quoted
_CALENDAR = [
    "Mon",
    "Tue",
    "Wed",
    "Thu",
    "Fri",
    "Sat",
    "Sun",
    "Jan",
    "Feb",
    "Mar",
    "Apr",
    "May",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Oct",
    "Nov",
    "Dec",
]
_DATES = frozenset([*_CALENDAR, *(f"{each}," for each in _CALENDAR)])
_OURS = str(Path(__file__).parents[1]) + os.sep


@dataclass(frozen=True, slots=True)
class Failure:
    """`ending` is error (the job will be retried), failed or dead; `details` is the content of last_error."""

    job: Job
    error: BaseException
    details: dict[str, Any]
    ending: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """A failed attempt, as it is kept with its job: up to 500 characters of the message, no traceback."""

    attempt: int
    started_at: datetime
    ended_at: datetime
    outcome: str
    worker: str | None = None
    type: str | None = None
    message: str | None = None
    code: str | None = None
    frame: str | None = None
    fingerprint: str | None = None

    @property
    def seconds(self) -> float:
        """Return how long the attempt took."""
        return max(0.0, (self.ended_at - self.started_at).total_seconds())


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failures of one kind. `attempts` failed, and `dead` jobs are dead now; `trend` has the failures of each hour."""

    fingerprint: str
    task: str
    type: str | None
    code: str | None
    message: str | None
    frame: str | None
    attempts: int
    dead: int
    first_at: datetime
    last_at: datetime
    example_job: str | None
    example: dict[str, Any] | None
    trend: dict[datetime, int]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line; `number` counts the lines of its attempt, of which the last 200 are kept."""

    number: int
    at: datetime
    level: str
    text: str


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """What a handler wrote with ctx.log in one attempt."""

    attempt: int
    started_at: datetime
    lines: list[LogEntry]

    @classmethod
    def of(cls, attempt: int, started_at: datetime, lines: list[dict[str, Any]]) -> AttemptLog:
        """Return a row of job_logs with the time of each line."""

        def at(line: dict[str, Any]) -> datetime:
            return started_at + timedelta(seconds=line["at"] or 0)

        return cls(attempt, started_at, [LogEntry(each["n"], at(each), each["level"], each["text"]) for each in lines])


def fingerprint(task: str, details: dict[str, Any]) -> str:
    """Return 16 hexadecimal digits for the group of an error, given as in last_error."""
    message = normalised(str(details.get("message"))[:_LONGEST])
    parts = (task, details.get("type"), details.get("code"), message, details.get("frame"))
    return blake2b("\x1f".join(map(str, parts)).encode("utf-8", "replace"), digest_size=8).hexdigest()


def normalised(message: str) -> str:
    """Return a message with # for each value, and one # for values in a row."""
    if "DETAIL:" in message:
        message = _ROW.sub("#", message)
    words: list[str] = []
    for word in _QUOTED.sub("#", message).split():
        if word not in _DATES and (word.isalpha() or not _VALUE(word)):
            words.append(word)
        elif not words or words[-1] != "#":
            words.append("#")
    return " ".join(words)


def top_frame(frames: TracebackType | None) -> str | None:
    """Return the last frame in the user's code as "file:function", else the last frame of all."""
    last = own = None
    while frames is not None:
        last = frames.tb_frame.f_code
        if _is_own(last.co_filename):
            own = last
        frames = frames.tb_next
    found = own or last
    return None if found is None else f"{os.path.basename(found.co_filename)}:{found.co_qualname}"


@lru_cache(4096)
def _is_own(file: str) -> bool:
    """Return whether code is the user's: not of the standard library, an installed package or Holdfast."""
    return not file.startswith(("<", _OURS, *_installed())) and "site-packages" not in file


@lru_cache(1)
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")} | {site.getusersitepackages()}
    return tuple(folder + os.sep for folder in folders)

"""A failed attempt, as passed to error reporters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.model.job import Job


@dataclass(frozen=True, slots=True)
class Failure:
    """`ending` is error (the job will be retried), failed or dead; `details` is the content of last_error."""

    job: Job
    error: BaseException
    details: dict[str, Any]
    ending: str

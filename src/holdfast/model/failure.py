"""An attempt that failed, as those who report failures see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.model.job import Job


@dataclass(frozen=True, slots=True)
class Failure:
    """`ending` is error (it will be tried again), failed or dead; `told` is what last_error will say."""

    job: Job
    error: BaseException
    told: dict[str, Any]
    ending: str

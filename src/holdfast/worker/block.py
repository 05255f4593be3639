"""Find the handler that blocks the event loop, and where."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any

from holdfast.client.task import Task
from holdfast.model.job import Job

MOST_FRAMES = 12
_BEFORE = ("holdfast.worker.", "asyncio.events")  # modules whose frames lead to the handler


def find_job(
    running: Mapping[Any, Job], tasks: Mapping[str, Task[Any, Any]], current: object, frames: list[FrameType]
) -> Job | None:
    """Return the job whose handler blocks the loop. It is found by the running coroutine, or by the running code if the
    handler has started coroutines of its own."""
    jobs: dict[object, Job] = dict(running)
    if current in jobs:
        return jobs[current]
    codes = {frame.f_code for frame in frames}
    candidates = [job for job in jobs.values() if _code(tasks.get(job.task)) in codes]
    return candidates[0] if len(candidates) == 1 else None


def frames_of(inner: FrameType | None) -> list[FrameType]:
    """Return the handler's frames, outermost first; all frames where no handler runs."""
    frames = []
    while inner is not None:
        frames.append(inner)
        inner = inner.f_back
    frames.reverse()
    before = [n for n, frame in enumerate(frames) if str(frame.f_globals.get("__name__")).startswith(_BEFORE)]
    return frames[before[-1] + 1 :] if before and before[-1] + 1 < len(frames) else frames


def stack_of(frames: list[FrameType]) -> str:
    """Format the stack on one line, without values, which may be secret."""
    return " > ".join(f"{f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_name}" for f in frames[-MOST_FRAMES:])


def _code(task: Task[Any, Any] | None) -> CodeType | None:
    return None if task is None else getattr(inspect.unwrap(task.handler), "__code__", None)

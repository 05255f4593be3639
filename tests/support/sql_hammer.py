"""Concurrent load: functions that threads repeat, each in a session of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from tests.support import sql_core as core
from tests.support.sql_core import Sql

Work = Callable[[Sql, random.Random], Any]


def hammer(
    dsn: str, schema: str, seed: int, seconds: float, works: list[Work], enough: Callable[[], bool], longest: float = 20
) -> list[BaseException]:
    """Repeat each function for this long, and on a slow machine until there is enough; return what they
    raised. It ends: no statement of a session may take longer than core.LONGEST_STATEMENT."""
    begun, errors = time.monotonic(), []

    def going() -> bool:
        lasted = time.monotonic() - begun
        return not errors and (lasted < seconds or (lasted < longest and not enough()))

    def run(number: int, work: Work) -> None:
        rng = random.Random(seed + number)
        try:
            with core.session(dsn, schema) as conn:
                while going():
                    work(core.runner(conn), rng)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=each) for each in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def rounds(seconds: float = 50) -> Iterator[int]:
    """Yield numbers for this long: how often to run a race that must go red."""
    begun, number = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        yield number
        number += 1

"""The lanes with work of one queue and priority, and where a claim shall look in them."""

from __future__ import annotations

import itertools
import random
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable

SKIPPED = 2000  # closed lanes that it may pass by
SPARE = 20  # lanes a claim may visit beyond one for each job it wants: some will have nothing
NO_CUT = (-1, 0)
NOWHERE = (float("-inf"), "00000000-0000-0000-0000-000000000000")
Mark = tuple[float, str]


class Ring:
    """The lanes with work of one queue and priority, in the order of the index, and the last job seen in each."""

    def __init__(self) -> None:
        self.marks: dict[int, Mark] = {}
        self.keys: dict[int, str] = {}  # a limit that the jobs of a lane are under: a claim takes no more than has room
        self.lanes: list[int] = []
        self.at = -1  # the lane visited last
        self.walked = -1  # where the careful lap has got to
        self.lapped = False
        self.closed: list[int] = []  # lanes that wait for a limit, in order
        self.left: set[int] = set()  # lanes that somebody else is busy at
        self.known = False  # whether the last jobs found were under one limit each: there is a shorter way to such
        self.cut = NO_CUT  # the lane whose turn was not over when the claim was full, and how many it has left
        self.looks: set[int] = set()  # lanes that waited, and are tried because it is time to
        self._tenants: Counter[int] = Counter()  # how many lanes each has
        self._turns: dict[int, int] = {}  # the lane of a tenant visited last, where it has several
        self._asked: list[int] = []

    def add(self, lane: int, mark: Mark) -> None:
        """Learns of a job in a lane; never goes back in one."""
        known = self.marks.get(lane)
        if known is None:
            insort(self.lanes, lane)
            self.marks[lane] = mark
            self._tenants[lane >> 32] += 1
        elif mark > known:
            self.marks[lane] = mark

    def drop(self, lane: int) -> Mark:
        """Forgets a lane. Lane 0 is visited by every claim, and stays."""
        if lane and lane in self.marks:
            self.lanes.pop(bisect_left(self.lanes, lane))
            self._tenants[lane >> 32] -= 1
            if not self._tenants[lane >> 32]:
                del self._tenants[lane >> 32]
            self.keys.pop(lane, None)
            return self.marks.pop(lane)
        return NOWHERE

    def forget(self, seen: Iterable[int]) -> None:
        """Forgets every lane but those that were seen to have jobs."""
        for lane in set(self.lanes).difference(seen):
            self.drop(lane)

    def look(self) -> object:
        """Where a careful claim shall walk on; past lanes of which it is known that they must wait."""
        first = bisect_right(self.closed, self.walked)
        skip = self.closed[first : first + SKIPPED]
        return {"from": self.walked} | ({"skip": _array(skip)} if skip else {})

    @property
    def plain(self) -> bool:
        """Whether nothing is known but lane 0."""
        return len(self.lanes) == 1 and self.lanes[0] == 0

    def hint(self, limit: int) -> object:
        """Where a quick claim shall look; None when nothing is known."""
        self._asked = []
        if not self.lanes:
            return None
        if self.plain:
            return self.marks[0]
        if self.at < 0:  # anywhere: workers that start together shall not go round together
            self.at = random.choice(self.lanes)
        lane, left = self.cut
        again = {"first": left} if lane in self.marks else {}
        asked = self._next(min(limit + SPARE, len(self.lanes)))
        self._asked = asked = [lane, *(each for each in asked if each != lane)] if again else asked
        looks: list[int] = []
        if self.looks:  # all in one claim, whosever turn it is: a look costs the claim more than what is looked at
            looks = [lane for lane in asked if lane in self.looks]
            self.looks = {lane for lane in self.looks.difference(looks) if lane in self.marks}
            spare = list(itertools.islice(self.looks, limit + SPARE))
            self.looks.difference_update(spare)
            looks, asked = looks + spare, asked + spare
        marks = [self.marks[lane] for lane in asked]
        where = {
            "lanes": _array(asked),
            "at": _array(mark[0] for mark in marks),
            "ids": _array(mark[1] for mark in marks),
            **again,
        }
        if self.known and len(looks) * 2 <= len(asked):
            return where | {"known": True, "keys": [self.keys.get(lane) for lane in asked]}
        return where | ({"look": _array(looks)} if looks else {})

    def _next(self, number: int) -> list[int]:
        """The next lanes, as many of each tenant: one with many lanes gets no more than one with few."""
        lanes, tenants = self.lanes, len(self._tenants)
        if tenants in (1, len(lanes)):
            first = bisect_right(lanes, self.at)
            return lanes[first : first + number] + lanes[: max(first + number - len(lanes), 0)]
        asked: list[int] = []
        tenant, each = self.at >> 32, -(-number // tenants)
        for _ in range(tenants):
            first = bisect_left(lanes, (tenant + 1) << 32) % len(lanes)
            tenant = lanes[first] >> 32
            mine = lanes[first : first + self._tenants[tenant]]
            turn = bisect_right(mine, self._turns.get(tenant, -1))
            asked += (mine[turn:] + mine[:turn])[:each]
            if len(asked) >= number:
                break
        return asked[:number]

    def moved(self, served: Iterable[int], enough: bool) -> None:
        """After a quick claim: the next one goes on after the last lane that was visited."""
        if self._asked:
            places = {lane: n for n, lane in enumerate(self._asked)}
            last = max((places.get(lane, -1) for lane in served), default=-1) if enough else len(self._asked) - 1
            self.at = self._asked[last] if last >= 0 else self.at
            for lane in self._asked[: last + 1]:
                if self._tenants[lane >> 32] > 1:
                    self._turns[lane >> 32] = lane


def _array(items: Iterable[object]) -> str:
    return "{" + ",".join(map(str, items)) + "}"

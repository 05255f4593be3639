"""What a worker remembers of lanes: where it last found work, and which must wait for a limit. A hint, never the truth.

A lane holds jobs of one tenant under the same limits; lane 0 holds all jobs that have neither. For each queue and
priority there is a ring of lanes. Claims come in two kinds:
- quick: visits the next lanes of the ring, each after the last job that was claimed there. This spares it the index
  entries of finished jobs that a long transaction elsewhere keeps alive.
- careful: walks the index from lane to lane and looks at each from its beginning. It finds new lanes, and jobs that
  landed behind the last one claimed (a transaction that committed late, a retry). A lap is made at once when the queue
  seems empty, else one to five times a second, and never for more than a small share of the worker's time.

A lane whose limit had no room is closed: it is not visited again before there may be some.
"""

from __future__ import annotations

import heapq
import math
import random
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence, Set
from typing import Any

import msgspec

from holdfast.model.job import Job
from holdfast.model.limit import ORDER
from holdfast.model.limit import lane as lane_of
from holdfast.store.calls import Rows
from holdfast.worker.ring import NO_CUT, NOWHERE, SPARE, Mark, Ring

LAP_EVERY, SOONEST_LAP = 1.0, 0.2
LAP_SHARE = 20  # the next careful claim may come after this many times the duration of the last
REST = 10  # the same for a worker's first lap, which tells it of everybody's lanes
CHEAP = 0.005  # what any claim may take, and more so on a busy machine: not a cost of where it started
FIRST_LOOK, LONGEST_LOOK = 0.5, 8.0  # seconds between looks at a key of which only others know when it has room
NARROWEST, WIDEST = 50, 100_000
LOOK_EVERY = 0.1  # seconds between looks at keys that wait, when there is enough else to do
AT_LEISURE = 1000  # keys looked at together when there is nothing else to do
# Seconds for which a lane is left to somebody who has its limit: after the first a few come back with each claim,
# after the second all do.
LEAVE_FOR, LONGEST_LEFT = 0.05, 0.5
CROWDED = 0.01  # of the limits that claims meet, those that somebody has at that moment
TOGETHER = 0.5  # and between looks at any of them: ten thousand keys shall not wake a worker a thousand times a second
LONGEST_PAUSE = 0.2


class Waiting:
    """Lanes that wait for one key. Tenants take turns, however many lanes they have."""

    def __init__(self) -> None:
        self._tenants: dict[int, dict[tuple[int, int], tuple[Ring, int, Mark]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._tenants.values()))

    def add(self, ring: Ring, lane: int) -> bool:
        """Takes a lane from its ring; answers whether it is new here."""
        lanes = self._tenants.setdefault(lane >> 32, {})
        if new := (id(ring), lane) not in lanes:
            lanes[id(ring), lane] = (ring, lane, ring.drop(lane))
        return new

    def pop(self) -> tuple[Ring, int, Mark]:
        """The lane that has waited longest of the tenant whose turn it is."""
        tenant = next(iter(self._tenants))
        lanes = self._tenants.pop(tenant)
        found = lanes.pop(next(iter(lanes)))
        if lanes:
            self._tenants[tenant] = lanes
        return found

    def prefer(self, wanted: Set[int]) -> int:
        """Moves these lanes to the front; answers how many there are."""
        chosen = [
            (place, found) for lanes in self._tenants.values() for place, found in lanes.items() if place[1] in wanted
        ]
        for place, found in reversed(chosen):
            lanes = self._tenants.pop(place[1] >> 32)
            del lanes[place]
            self._tenants = {place[1] >> 32: {place: found} | lanes} | self._tenants
        return len(chosen)


class Closed:
    """Lanes that wait for a limit, by the key they wait for."""

    def __init__(self) -> None:
        self._lanes: dict[str, Waiting] = {}
        self._looks: list[tuple[float, str]] = []
        self._look_at: dict[str, float] = {}
        self._patience: dict[str, float] = {}
        self._told: dict[str, float] = {}  # when its patience last grew
        self._phase = random.uniform(-TOGETHER / 2, TOGETHER / 2)  # workers shall not look all at once

    def __contains__(self, key: str) -> bool:
        return key in self._lanes

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def among(self, keys: Iterable[str]) -> list[str]:
        """Those of some keys that lanes wait for."""
        return [key for key in keys if key in self._lanes]

    def add(self, key: str, ring: Ring, lane: int, wait: float | None, now: float) -> None:
        """Closes a lane until its key may have room."""
        if self._lanes.setdefault(key, Waiting()).add(ring, lane) and lane and not _has(ring.closed, lane):
            insort(ring.closed, lane)
        if wait is not None:
            self._look(key, now + wait)
        elif self._told.get(key) != now:  # else this is another of its lanes, told of by the same claim
            self._told[key] = now
            wait = self._patience.get(key, FIRST_LOOK)
            self._patience[key] = min(wait * 2, LONGEST_LOOK)
            self._look(key, self._together(now + wait * random.uniform(0.75, 1.25)))

    def _look(self, key: str, at: float) -> None:
        self._look_at[key] = at
        heapq.heappush(self._looks, (at, key))

    def _together(self, at: float) -> float:
        return math.ceil((at - self._phase) / TOGETHER - 1e-6) * TOGETHER + self._phase

    def open(self, key: str, number: int = 1, *, look: bool = False) -> bool:
        """Lets claims visit so many lanes that wait for a key. To look is to expect that they must wait on."""
        lanes = self._lanes.get(key)
        if not lanes:
            return False
        for _ in range(min(number, len(lanes))):
            ring, lane, mark = lanes.pop()
            ring.add(lane, mark)
            ring.keys[lane] = key
            if look:
                ring.looks.add(lane)
            if _has(ring.closed, lane):
                ring.closed.pop(bisect_left(ring.closed, lane))
        if not lanes:  # nor is there anything to look for: a look whose time has passed would keep the worker awake
            del self._lanes[key]
            self._look_at.pop(key, None)
        self._patience.pop(key, None)
        self._told.pop(key, None)
        return True

    def open_lanes(self, lanes: Iterable[int]) -> bool:
        """Lets claims visit these lanes, and one that waits for a key of this number. Answers whether there was any."""
        wanted, opened = set(lanes), False
        for key, waiting in list(self._lanes.items()):
            if chosen := waiting.prefer(wanted):
                opened = self.open(key, chosen)
            elif number_of(key) in wanted:
                opened = self.open(key)
        return opened

    def open_all(self) -> None:
        """Lets claims visit everything: limits have changed."""
        for key in list(self._lanes):
            self.open(key, len(self._lanes[key]))

    def open_due(self, now: float, most: int) -> None:
        """Looks again at keys whose time has come, so many of them at most: one lane each, which tells of the rest."""
        while most and self._looks and self._looks[0][0] <= now:
            at, key = heapq.heappop(self._looks)
            if self._look_at.get(key) == at:
                most -= 1
                patience = self._patience.get(key)
                self._look_at.pop(key)
                if self.open(key, look=True) and patience is not None:
                    self._patience[key] = patience
                if key in self._lanes:  # the one lane may have nothing any more, and then it tells of no other
                    self._look(key, self._together(now + FIRST_LOOK))

    def next_look(self) -> float | None:
        """When the next key's time comes."""
        while self._looks and self._look_at.get(self._looks[0][1]) != self._looks[0][0]:
            heapq.heappop(self._looks)
        return self._looks[0][0] if self._looks else None


class Lanes:
    """The rings of all queues and priorities that a worker serves, and how it goes round them."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._rings = {f"{queue}/{priority}": Ring() for priority in range(4) for queue in queues}
        self.closed = Closed()
        self.throttled: Counter[tuple[str, str]] = Counter()  # how often a lane was closed, by key and tenant: untold
        self.times_throttled = 0  # in all
        self.contention = 0  # how often somebody else had a limit
        self.careful = True
        self._lap_at = 0.0
        self._affordable_at = 0.0
        self._near_end = True
        self._lap_claims = 0
        self._lap_found = 0
        self._lap_cost = 0.0
        self._first = True
        self._breath = 0.0  # until when the first lap rests: most of the time, while it only finds lanes that must wait
        self.width = WIDEST  # most jobs to claim at once
        self._look_at = 0.0
        self._filled = False  # whether the last claim found as much as it asked for
        self._served = False  # whether it found plenty
        self.again = False  # whether the last claim only made way for what may be claimed, or knew less than we do now
        self._met = 0.0  # of what quick claims met lately, the part whose limits somebody had
        self.held_up = 0  # claims in a row that found nothing, and somebody else at their limits
        # What has come free since the claim under way was sent: it may not have seen that yet, so its word that a lane
        # must wait is old.
        self._freed_keys: set[str] = set()
        self._freed_lanes: set[int] | None = set()  # None: all
        self._left: deque[tuple[float, Ring, int, str, Mark]] = deque()  # since when, and what to go on with

    def hint(self, now: float, limit: int, *, careful: bool = False) -> str:
        """Where the next claim shall look."""
        self._take_back(now)
        if self.closed and (now >= self._look_at or not self._filled):
            self._look_at = now + LOOK_EVERY
            self.closed.open_due(now, SPARE if self.more or self._served or self._first else AT_LEISURE)
        self._freed_keys, self._freed_lanes = set(), set()
        rings = self._rings
        due = self._affordable_at if self._near_end or self.lap_open else self._lap_at
        self.careful = careful or self._hurries(now) or now >= due or not any(ring.lanes for ring in rings.values())
        if self.careful and not self.lap_open:
            self._lap_claims = self._lap_found = 0
            self._lap_cost = 0.0
            for ring in rings.values():
                ring.walked, ring.lapped = -1, False
        looks = {
            place: ring.look() if self.careful and not ring.lapped else ring.hint(limit)
            for place, ring in rings.items()
        }
        return msgspec.json.encode({place: look for place, look in looks.items() if look is not None}).decode()

    @property
    def lap_open(self) -> bool:
        """Whether a careful lap is under way: some ring has been walked, and not all of them to their end."""
        walked = [ring.lapped or ring.walked >= 0 for ring in self._rings.values()]
        return any(walked) and not all(ring.lapped for ring in self._rings.values())

    def _hurries(self, now: float) -> bool:
        """Whether to go on with a lap whatever it costs: before the first one is over nobody is known to be served
        fairly, and a worker that has nothing else to do has the time."""
        if self._first:  # in turn with quick ones, so that what has been found is worked at meanwhile
            if self.careful:
                return not any(ring.lanes for ring in self._rings.values())
            return not (self._filled and now < self._breath)
        return self.lap_open and self._near_end and not self.more

    @property
    def looked_everywhere(self) -> bool:
        """Whether the last claim left nothing unseen. Of a lap of several claims that is certain when none found any:
        jobs may have come back to where the first of them had been."""
        return self.careful and not self.lap_open and (self._lap_claims == 1 or not self._lap_found)

    @property
    def crowded(self) -> bool:
        """Whether workers meet at the same limits again and again."""
        return self._met > CROWDED

    @property
    def pause(self) -> float:
        """How long to leave limits alone that somebody else has: as a rule it is for a moment, but a transaction that
        was left open has them for as long as it likes."""
        return min(0.001 * 2.0 ** min(self.held_up, 10), LONGEST_PAUSE) if self.held_up > 1 else 0.0

    @property
    def more(self) -> bool:
        """Whether lanes are known that may still have work."""
        return bool(self._left) or self._open

    @property
    def _open(self) -> bool:
        return any(len(ring.lanes) > (0 in ring.marks) for ring in self._rings.values())

    def learn(self, rows: Rows, info: str | None, enough: bool, began: float, now: float) -> None:
        """Takes what a claim found, and what it says of lanes that had nothing or must wait."""
        told: dict[str, dict[str, Any]] = msgspec.json.decode(info) if info else {}
        self._filled, self._served = enough, enough or len(rows) >= NARROWEST
        if rows:
            self._mark(rows, plain=not told)
        contention = sum(each.get("contention", 0) for each in told.values())
        held_up = contention > 0
        self.contention += contention
        if rows:  # workers that meet at the same limits do better with less at a time
            self.width = max(self.width // 2, NARROWEST) if contention * 4 > len(rows) else min(self.width * 2, WIDEST)
        self.held_up = self.held_up + 1 if held_up and not rows else 0
        self.again = any("again" in each for each in told.values()) or (held_up and bool(rows))
        for place, each in told.items():
            self._told(place, each, rows, now)
        if self.careful:
            self._learn_lap(rows, told, enough, now - began, now)
        else:
            self._learn_quick(rows, told, enough, contention)

    def _learn_quick(self, rows: Rows, told: dict[str, dict[str, Any]], enough: bool, contention: int) -> None:
        if rows:
            met = contention / (contention + len(rows))
            # A crowd that keeps out of each other's way is still one; where there are no limits it is over.
            self._met += (met - self._met) / (16 if told else 4)
        served = [row[12] for row in rows] if told else []
        for place, each in told.items():
            self._rings[place].moved(served, enough)
            self._rings[place].cut = tuple(each.get("cut", NO_CUT))

    def _learn_lap(self, rows: Rows, told: dict[str, dict[str, Any]], enough: bool, took: float, now: float) -> None:
        if enough:  # what it did not come to has to wait for less work of higher priority
            for place, ring in self._rings.items():
                ring.lapped = ring.lapped or (place not in told and ring.walked < 0)
        self._lap_claims += 1
        self._lap_cost += took
        self._lap_found += len(rows)
        self._affordable_at = now + max(took - CHEAP, 0.0) * LAP_SHARE
        self._breath = now if rows else now + took * REST
        if not rows and self._lap_claims == 1 and not self.lap_open and not self.again:
            # What else is known of has nothing, or it would have been met; visiting it would keep an idle worker busy.
            for place, each in told.items():
                self._rings[place].forget(each.get("more") or ())
        if not self.lap_open:
            self._first = False
            self._lap_at = max(now + self._every() * random.uniform(0.75, 1.25), self._affordable_at)

    def _every(self) -> float:
        """Seconds between laps. Where there are tenants a lap finds the new ones, so a cheap one comes sooner."""
        if all(ring.plain or not ring.lanes for ring in self._rings.values()):
            return LAP_EVERY
        return min(max(self._lap_cost * LAP_SHARE, SOONEST_LAP), LAP_EVERY)

    def _mark(self, rows: Rows, *, plain: bool) -> None:
        if plain and rows[0][6:8] == rows[-1][6:8]:
            rows = rows[-1:]
        at: tuple[str, int] | None = None
        for row in rows:
            if row[6:8] != at:
                at = row[6:8]
                ring = self._rings[f"{row[6]}/{row[7]}"]
            keys = row[13]
            # Of an order the first comes first, and a transaction that commits late may bring it.
            ordered = keys is not None and _ordered(keys)
            ring.add(row[12], NOWHERE if ordered else (row[9], row[0]))
            ring.known = keys is not None and len(keys) == 1 and not ordered
            if ring.known:
                ring.keys[row[12]] = keys[0]
        if self.closed:
            got = Counter(key for row in rows for key in row[13] or ())
            for queue, task, tenant in {(row[6], row[2], row[8]) for row in rows}:
                got.update(dict.fromkeys(keys_of(queue, task, tenant, None), 1))
            for key in self.closed.among(got):  # one got through: two more may
                self.closed.open(key, 2 * got[key])

    def _told(self, place: str, told: dict[str, Any], rows: Rows, now: float) -> None:
        ring, mine = self._rings[place], set[int]()
        if self.crowded:
            queue, _, priority = place.rpartition("/")
            mine = {row[12] for row in rows if row[6] == queue and row[7] == int(priority)}
            if len(rows) >= NARROWEST:
                self._leave(ring, told.get("held", ()), now)
        for lane in told.get("empty", ()):
            ring.drop(lane)
        for lane, key, tenant, wait in told.get("closed", ()):
            self.note_throttled(key, tenant)
            if wait is None and lane in mine:
                continue  # full of what was claimed just now; in a crowd the next claim comes when that has ended
            if (
                key in self._freed_keys
                or self._freed_lanes is None
                or (self._freed_lanes and not self._freed_lanes.isdisjoint((lane, number_of(key))))
            ):
                ring.add(lane, NOWHERE)
                self.again = True
            else:
                self.closed.add(key, ring, lane, wait, now)
        for lane in told.get("more") or ():
            if not _has(ring.closed, lane) and lane not in ring.left:
                ring.add(lane, NOWHERE)
        if "end" in told:
            ring.walked = -1 if told["end"] is None else told["end"]
            ring.lapped = told["end"] is None

    def _leave(self, ring: Ring, held: Iterable[int], now: float) -> None:
        """Leaves lanes to those who have their limits: whoever claims or ends jobs there goes on there."""
        for lane in held:
            if lane in ring.keys and lane not in ring.left:
                self._left.append((now, ring, lane, ring.keys[lane], ring.drop(lane)))
                ring.left.add(lane)

    def _take_back(self, now: float) -> None:
        """Visits lanes again that were left: a few at a time, so that each worker comes to have lanes of its own; and
        all of them when there is nothing else to visit, or after a while, as two may leave a lane to each other."""
        few, alone = SPARE, not self._open
        while self._left:
            since, ring, lane, key, mark = self._left[0]
            if not (alone or now >= since + LONGEST_LEFT or (few and now >= since + LEAVE_FOR)):
                return
            few = max(few - 1, 0)
            self._left.popleft()
            ring.left.discard(lane)
            ring.add(lane, mark)
            ring.keys[lane] = key

    def note_throttled(self, key: str, tenant: str | None) -> None:
        """Counts that a claim stepped over a lane because of a key."""
        self.throttled[key, tenant or ""] += 1
        self.times_throttled += 1

    def found(self, enough: bool, now: float) -> float:
        """Notes whether a claim found as much as it asked for; answers in how many seconds a careful one is
        affordable."""
        self._near_end = not enough
        return 0.0 if self._first or self._hurries(now) else max(self._affordable_at - now, 0.0)

    def freed(self, jobs: Sequence[Job]) -> bool:
        """Jobs have ended: their keys have room for as many others. Answers whether any lane was waiting for that."""
        keys = Counter(key for job in jobs for key in job.keys or ())
        for each, number in Counter((job.queue, job.task, job.tenant) for job in jobs).items():
            keys.update(dict.fromkeys(keys_of(*each, None), number))
        self._freed_keys.update(keys)
        waited = self.closed.among(keys)
        for key in waited:
            self.closed.open(key, keys[key])
        return bool(waited)

    def open(self, lanes: Iterable[int] | None) -> bool:
        """Somebody says that these lanes and keys have room, or that limits have changed: then it may be any. Answers
        whether something was waiting for that, as far as is known."""
        if lanes is None:
            self._freed_lanes = None
            self.closed.open_all()
            return True
        wanted = set(lanes)
        if self._freed_lanes is not None:
            self._freed_lanes |= wanted
        return self.closed.open_lanes(wanted)


def keys_of(queue: str, task: str, tenant: str | None, keys: Iterable[str] | None) -> Iterable[str]:
    """Every limit a job may be under."""
    yield from keys or ()
    yield f"queue:{queue}"
    yield f"task:{task}"
    if tenant is not None:
        yield f"tenant:{tenant}"


def _ordered(keys: Sequence[str]) -> bool:
    return keys[0].startswith(ORDER) if len(keys) == 1 else any(key.startswith(ORDER) for key in keys)


def number_of(key: str) -> int:
    """The number by which a notification names a key."""
    return lane_of(None, (key,))


def _has(lanes: Sequence[int], lane: int) -> bool:
    place = bisect_left(lanes, lane)
    return place < len(lanes) and lanes[place] == lane

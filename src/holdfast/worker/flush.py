"""Outcomes that are sent to the database together, and those that have to be sent again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from holdfast.model.outcome import Outcome, clean
from holdfast.worker.prefetch import Lease

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # backoff in seconds for outcomes of locked jobs


@dataclass(slots=True)
class Flush:
    """Outcomes to be sent together: plain successes as ids and tokens, all other outcomes in full."""

    ids: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    results: list[Outcome] = field(default_factory=list)  # of jobs that were finished in their own transaction
    batches: set[str] = field(default_factory=set)  # that may have ended once this is stored
    freed: bool = False  # whether limits may have room once this is stored
    part: bool = False  # another part may hold a job of the same claim: the database decides what to close

    def __bool__(self) -> bool:
        return bool(self.ids or self.outcomes or self.closed or self.results)

    def __len__(self) -> int:
        return len(self.ids) + len(self.outcomes)

    @property
    def plain(self) -> bool:
        """Return whether this is one success without a result, and nothing else."""
        return len(self.ids) == 1 and not self.outcomes

    def parts(self, error: Exception) -> list[Flush]:
        """Return what to send in place of this flush, which was refused: its halves, or a failure without data in place
        of a single outcome. Claims are closed with the last part."""
        if len(self) == 1:
            details = {"type": "UnstorableOutcome", "message": clean(str(error), 1000)}
            (outcome,) = self.outcomes
            if (outcome.error or {}).get("type") == details["type"]:
                return []  # the replacement was refused too: the lease expires, and reclaim decides
            failure = Outcome(outcome.id, outcome.token, "failed", error=details)
            return [Flush(outcomes=[failure], closed=self.closed, batches=self.batches, part=self.part)]
        return self.halves()

    def halves(self) -> list[Flush]:
        """Split this flush, which holds more than one outcome, in two."""
        plain, other, batches = (len(self.ids) + 1) // 2, (len(self.outcomes) + 1) // 2, self.batches
        first = Flush(self.ids[:plain], self.tokens[:plain], self.outcomes[:other], batches=batches, part=True)
        if len(first) == len(self):  # one of each
            first = Flush(self.ids, self.tokens, batches=batches, part=True)
            return [first, Flush(outcomes=self.outcomes, closed=self.closed, batches=batches, part=True)]
        rest = self.ids[plain:], self.tokens[plain:], self.outcomes[other:], self.closed
        return [first, Flush(*rest, batches=batches, part=True)]

    def only(self, ids: Set[str]) -> Flush:
        """Return the outcomes of these jobs."""
        plain = [(id_, token) for id_, token in zip(self.ids, self.tokens, strict=True) if id_ in ids]
        return Flush(
            [id_ for id_, _ in plain],
            [token for _, token in plain],
            [each for each in self.outcomes if each.id in ids],
            batches=set(self.batches),
        )

    def extend(self, other: Flush) -> None:
        """Add the outcomes of another flush."""
        self.ids += other.ids
        self.tokens += other.tokens
        self.outcomes += other.outcomes
        self.closed += other.closed
        self.batches |= other.batches

    @property
    def held(self) -> dict[str, int]:
        """Map each job to its token."""
        return dict(zip(self.ids, self.tokens, strict=True)) | {each.id: each.token for each in self.outcomes}


class Deferrals:
    """Outcomes of locked jobs, which are sent again, and claims that keep a job whose outcome cannot be stored."""

    def __init__(self, leases: dict[int, Lease]) -> None:
        self._leases = leases
        self._pauses: dict[tuple[str, int], float] = {}  # (job, token): seconds until it is sent again
        self._unstored: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._pauses)

    def closable(self, flush: Flush) -> list[int] | None:
        """Return the claims that end with this flush; None where the database must determine them.

        A claim with a deferred job that is not in this flush is closed with that job. A claim with a job that could not
        be stored stays until it expires: without it, only reclaim_orphans() would find the job.
        """
        if flush.part or not self._unstored.isdisjoint(flush.closed):
            return None
        if not self._pauses:
            return flush.closed
        elsewhere = {token for _, token in self._pauses.keys() - flush.held.items()}
        return [token for token in flush.closed if token not in elsewhere] if elsewhere else flush.closed

    def abandon(self, flush: Flush) -> None:
        """Keep the claims of a flush that cannot be stored until they expire."""
        self._unstored.update(flush.held.values())

    def forget(self, closed: Iterable[int]) -> None:
        """Stop renewing these claims, except those with a deferred job."""
        deferred_tokens = {token for _, token in self._pauses}
        for token in closed:
            if token not in deferred_tokens:
                self._leases.pop(token, None)
                self._unstored.discard(token)

    def add(self, held: Mapping[str, int], locked: Set[str]) -> float:
        """Defer the locked jobs of a flush, with backoff; return the seconds until they are sent again. All its other
        outcomes are stored, or their leases are lost."""
        pauses: dict[tuple[str, int], float] = {}
        for pair in held.items():
            before = self._pauses.pop(pair, None)
            if pair[0] in locked:
                pauses[pair] = FIRST_PAUSE if before is None else min(before * 2, LONGEST_PAUSE)
        self._pauses |= pauses
        return max(pauses.values(), default=0.0)

    def take(self, deferral: Flush) -> tuple[Flush, int]:
        """Return the outcomes to be sent again, and how many were dropped because their lease was lost meanwhile."""
        leases, held = self._leases, deferral.held
        lost = [pair for pair in held.items() if pair[1] not in leases]
        for pair in lost:
            self._pauses.pop(pair, None)
        again = deferral.only({id_ for id_, token in held.items() if token in leases})
        again.closed = [token for token in {*again.held.values()} if not leases[token].open]
        return again, len(lost)

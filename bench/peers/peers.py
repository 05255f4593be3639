"""The peers: the adapter of each, where its packages come from, and how many jobs it is given."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Peer:
    """A system to measure.

    store: what keeps its jobs. packages: the file in requirements/, or None for this checkout. bulk, drain, limited:
    how many jobs those workloads have; systems that need a minute for 50,000 get fewer. tenants: which limit each
    tenant has there, or "" if there is none for a key that only the job knows.
    """

    name: str
    adapter: str
    packages: str | None
    store: str = "PostgreSQL"
    bulk: int = 50_000
    drain: int = 50_000
    limited: int = 5_000
    tenants: str = ""

    @property
    def node(self) -> bool:
        """Whether it runs on Node.js."""
        return self.adapter.endswith(".mjs")

    @property
    def database(self) -> str | None:
        """Its database, if it is in PostgreSQL."""
        return f"peer_{self.adapter.partition('.')[0].removesuffix('_adapter')}" if self.store == "PostgreSQL" else None


ALL = (
    Peer("Holdfast", "holdfast_adapter.py", None, tenants="10 at once"),
    Peer("Graphile Worker", "graphile.mjs", "graphile.json", limited=1_000, tenants="1 at once (queues)"),
    Peer("pg-boss", "pgboss.mjs", "pgboss.json", tenants="10 at once (groups)"),
    Peer("PgQueuer", "pgqueuer_adapter.py", "pgqueuer.txt", drain=30_000, tenants="10 at once (entrypoints)"),
    Peer(
        "Procrastinate",
        "procrastinate_adapter.py",
        "procrastinate.txt",
        bulk=10_000,
        drain=2_000,
        limited=1_000,
        tenants="1 at once (locks)",
    ),
    Peer("DBOS", "dbos_adapter.py", "dbos.txt", bulk=2_000, drain=1_500),
    Peer("Celery", "celery_adapter.py", "celery.txt", "Redis", bulk=5_000, drain=5_000),
    Peer("Dramatiq", "dramatiq_adapter.py", "dramatiq.txt", "Redis", bulk=10_000, drain=10_000),
    Peer("taskiq", "taskiq_adapter.py", "taskiq.txt", "Redis", bulk=10_000, drain=10_000),
)


def chosen(names: str | None) -> list[Peer]:
    """Return the peers that a list of names, such as "holdfast,pg-boss", stands for."""
    if names is None:
        return list(ALL)
    known = {each.name.lower().replace(" ", "-"): each for each in ALL}
    wanted = [name.strip().lower().replace(" ", "-") for name in names.split(",")]
    if missing := [name for name in wanted if name not in known]:
        raise SystemExit(f"unknown peer {missing[0]!r}; there are: {', '.join(known)}")
    return [known[name] for name in wanted]

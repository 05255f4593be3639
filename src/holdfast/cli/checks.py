"""The doctor's checks. Each returns ok, warning or error, what it found and what to do.

A check is a function from Installation to Check. Those of ANY_DATABASE need only a connection, those of OUR_SCHEMA
also the schema. A check that fails becomes a warning, and the remaining checks still run.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast import __version__
from holdfast.cli.render import duration, number, plural
from holdfast.errors import HoldfastError, SchemaError
from holdfast.model.job import MOST_COUNTED
from holdfast.model.outbox import PREFIX as CHANNEL
from holdfast.model.webhook import QUEUE as WEBHOOKS
from holdfast.model.webhook import TASK as WEBHOOK
from holdfast.settings import Settings
from holdfast.store import doctor
from holdfast.store.call import Call
from holdfast.store.calls import Calls
from holdfast.store.doctor import DoctorCalls, Pooling
from holdfast.store.jobs import Filter
from holdfast.store.plan import Plan, make_plan
from holdfast.store.wire import connect
from holdfast.store.wire.session import ThreadSession
from holdfast.wakeups import rabbitmq

T = TypeVar("T")

OK, WARNING, ERROR = "ok", "warning", "error"
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")
SESSION = (
    "default_transaction_isolation",
    "default_transaction_read_only",
    "server_encoding",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
)
SHORT = 60.0  # seconds; handlers' transactions can take longer
STANDBY_LATE = 10.0
OLDEST_SERVER = 15
SKEW = 1.0
CROWDED = 0.8
MANY_DEAD_ROWS = 100_000
UNVACUUMED = 300.0
RECLAIM_WITHIN = 10.0
OVERDUE = 60.0
LEFT_OPEN = 3600.0
CONNECTIONS_OF_A_WORKER = 6
LIBRARIES = ("psycopg", "psycopg-pool", "msgspec", "typer", "rich", "uvloop")


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check."""

    name: str
    level: str
    found: str
    advice: str = ""


class Installation:
    """The database and settings that are checked."""

    def __init__(self, settings: Settings, max_age: float) -> None:
        self.settings = settings
        self.max_age = max_age
        self.calls = Calls(settings.schema)
        self.server_calls = DoctorCalls(settings.schema)
        self.server: dict[str, Any] = {}
        # Connects as if behind a pooler, without prepared statements and startup options, which always works.
        self.session = ThreadSession(settings.with_(pooler=True), "doctor")

    def ask(self, call: Call[T]) -> T:
        return self.session.run(call)

    def plan(self) -> Plan:
        return make_plan(lambda sql: self.ask(Call(sql, (), list)), self.settings.schema)


Look = Callable[[Installation], Check]


def examine(dsn: str | None, schema: str | None, max_age: float) -> Iterator[Check]:
    """Run the checks in order, without those whose requirements are not met."""
    yield check_versions()
    try:
        installation = Installation(Settings.load(dsn=dsn, schema=schema), max_age)
        yield check_database(installation)
    except HoldfastError as error:
        yield Check("database", ERROR, str(error))
        return
    try:
        for look in ANY_DATABASE:
            yield _try(look, installation)
        if installation.settings.amqp_enabled:
            yield _try(check_rabbitmq, installation)
        migrated = _try(check_schema, installation)
        yield migrated
        if migrated.level != ERROR:
            for look in OUR_SCHEMA:
                yield _try(look, installation)
    finally:
        installation.session.close()


def _try(look: Look, installation: Installation) -> Check:
    try:
        return look(installation)
    except HoldfastError as error:
        return Check(look.__name__.removeprefix("check_"), WARNING, f"cannot be checked: {error}")


def check_versions() -> Check:
    found = {name: _version(name) for name in LIBRARIES}
    libraries = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    text = f"holdfast {__version__}, Python {platform.python_version()} on {sys.platform}, {libraries}"
    advice = "" if found["uvloop"] else "workers are faster with uvloop: pip install 'holdfast-jobs[fast]'"
    return Check("versions", OK, text, advice)


def check_database(installation: Installation) -> Check:
    """Connect as clients do, and detect a pooler that rejects startup options."""
    plain = ThreadSession(installation.settings, "doctor")
    try:
        installation.server = plain.run(installation.server_calls.server())
    except HoldfastError as error:
        if "unsupported startup parameter" not in str(error):
            raise
        installation.server = installation.ask(installation.server_calls.server())
        return Check("database", ERROR, "a pooler rejects startup options", "set HOLDFAST_POOLER=1")
    finally:
        plain.close()
    found = installation.server
    text = f"reached {found['database']} as {found['user']}"
    return Check("database", OK, text)


def check_server(installation: Installation) -> Check:
    found = f"PostgreSQL {installation.server['version']}"
    if installation.server["number"] // 10000 < OLDEST_SERVER:
        return Check("server", ERROR, found, f"Holdfast needs {OLDEST_SERVER} or newer; upgrade the server")
    return Check("server", OK, found)


def check_servers(installation: Installation) -> Check:
    return judge_servers(doctor.probe_servers(installation.settings))


def judge_servers(servers: list[tuple[str, str]]) -> Check:
    """Check that every server of the DSN can be reached, and that one of them is the primary."""
    found = ", ".join(f"{address} {role}" for address, role in servers)
    roles = [role for _, role in servers]
    if len(servers) > 1 and not {"primary", "standby"}.issuperset(roles):
        return Check("servers", WARNING, found, "a failover to one that is unreachable is impossible; start it")
    if roles.count("primary") > 1:
        return Check("servers", ERROR, found, "two primaries do not share jobs; remove one from the DSN")
    return Check("servers", OK, found)


def check_clock(installation: Installation) -> Check:
    before = time.time()
    server = installation.ask(installation.server_calls.server())["epoch"]
    after = time.time()
    return judge_clock(server - (before + after) / 2, after - before)


def judge_clock(skew: float, round_trip: float) -> Check:
    """Compare the clocks. Only the database's is used, so a difference matters only to readers of logs."""
    found = f"this machine and the database differ by {abs(skew):.3f} s"
    if abs(skew) > SKEW + round_trip / 2:
        return Check("clock", WARNING, found, "only the database's clock is used, but log times will differ; check NTP")
    return Check("clock", OK, found)


def check_durability(installation: Installation) -> Check:
    settings = installation.ask(installation.server_calls.settings(DURABILITY))
    return judge_durability(settings)


def judge_durability(settings: Mapping[str, str]) -> Check:
    """Check that commits are durable: a job is accepted when its transaction commits."""
    found = ", ".join(f"{name} {settings[name]}" for name in DURABILITY)
    if settings["fsync"] == "off":
        return Check("durability", ERROR, found, "a crash can lose or corrupt accepted jobs; set fsync = on")
    if settings["full_page_writes"] == "off":
        advice = "a crash can corrupt pages unless the file system writes them whole; set full_page_writes = on"
        return Check("durability", WARNING, found, advice)
    if settings["synchronous_commit"] == "off":
        advice = "a crash can lose the last accepted jobs; set synchronous_commit = on"
        return Check("durability", WARNING, found, advice)
    return Check("durability", OK, found)


def check_settings(installation: Installation) -> Check:
    """Check settings that Holdfast's connections do not set themselves."""
    late = installation.ask(installation.server_calls.waiting_for_standby(STANDBY_LATE))
    if late:
        found = f"{plural(late, 'commit')} waited more than {duration(STANDBY_LATE)} for a synchronous standby"
        return Check("settings", ERROR, found, "start the standby, or take it out of synchronous_standby_names")
    settings = installation.ask(installation.server_calls.settings(SESSION))
    return judge_settings(settings)


def judge_settings(settings: Mapping[str, str]) -> Check:
    """Check defaults of the server. Isolation, date style and client encoding are set on each connection."""
    if settings["default_transaction_read_only"] == "on":
        advice = "nothing can be enqueued or run; set it to off for this database and role"
        return Check("settings", ERROR, "default_transaction_read_only is on", advice)
    if (encoding := settings["server_encoding"]) != "UTF8":
        advice = f"jobs with characters that {encoding} lacks are refused; use a database with encoding UTF8"
        return Check("settings", WARNING, f"the database's encoding is {encoding}", advice)
    for name in ("idle_in_transaction_session_timeout", "transaction_timeout"):
        if 0 < (seconds := int(settings.get(name, 0)) / 1000) < SHORT:
            advice = "it ends handlers' ctx.transaction() that take longer; raise it for the workers' role"
            return Check("settings", WARNING, f"{name} is {duration(seconds)}", advice)
    if seconds := int(settings["idle_session_timeout"]) / 1000:
        advice = "workers and pools lose idle connections and open them again; set it to 0 for Holdfast's roles"
        return Check("settings", WARNING, f"idle_session_timeout is {duration(seconds)}", advice)
    if (level := settings["default_transaction_isolation"]) != "read committed":
        found = f"transactions are {level} by default; Holdfast's own calls are read committed"
        return Check("settings", OK, found, "enqueue(conn=...) in such a transaction takes no id of your own")
    return Check("settings", OK, "nothing unusual")


def check_connections(installation: Installation) -> Check:
    row = installation.ask(installation.server_calls.connections())
    used, most = int(row["used"]), int(row["most"])
    found = f"{used} of {most} connections are in use"
    if used > most * CROWDED:
        takes = f"a worker process takes {CONNECTIONS_OF_A_WORKER}, and more for ctx.transaction()"
        advice = f"{takes}; raise max_connections or use a pooler"
        return Check("connections", WARNING, found, advice)
    return Check("connections", OK, found)


def check_pooler(installation: Installation) -> Check:
    return judge_pooler(doctor.probe_pooler(installation.settings), installation.settings.pooler)


def judge_pooler(found: Pooling, configured: bool) -> Check:
    """Check HOLDFAST_POOLER: a pooler in transaction mode breaks prepared statements, LISTEN and startup options."""
    if found.moves and not configured:
        return Check("pooler", WARNING, "a pooler in transaction mode", "set HOLDFAST_POOLER=1")
    if found.moves:
        return Check("pooler", OK, "a pooler in transaction mode, as HOLDFAST_POOLER says")
    if configured:
        advice = "workers poll instead of listening; unset HOLDFAST_POOLER unless you plan to add a pooler"
        return Check("pooler", OK, "HOLDFAST_POOLER is set, but no pooler in transaction mode was found", advice)
    return Check("pooler", OK, "a pooler in session mode" if found.present else "none")


def check_horizon(installation: Installation) -> Check:
    """Check for old transactions, which keep vacuum from removing dead rows and so slow every scan."""
    holders = installation.ask(installation.server_calls.horizon())
    held = [h for h in holders if h["seconds"] is None or h["seconds"] > installation.max_age]
    if not held:
        return Check("vacuum", OK, f"no transaction is older than {duration(installation.max_age)}")
    oldest = held[0]
    more = f", and {len(held) - 1} more" if len(held) > 1 else ""
    if oldest["kind"] == "transaction":
        age = duration(oldest["seconds"])
        found = f"pid {oldest['name']} ({oldest['state']}) has a transaction open for {age}: "
        advice = f"end it, or: SELECT pg_terminate_backend({oldest['name']})"
        return Check("vacuum", WARNING, f"{found}{oldest['detail']}{more}", advice)
    if oldest["kind"] == "prepared transaction":
        found = f"the prepared transaction {oldest['name']!r} has been open for {duration(oldest['seconds'])}{more}"
        return Check("vacuum", WARNING, found, f"COMMIT PREPARED or ROLLBACK PREPARED {oldest['name']!r}")
    found = f"{oldest['state']} replication slot {oldest['name']!r} is {oldest['detail']} transactions behind"
    return Check("vacuum", WARNING, found, "start its consumer, or drop the slot: pg_drop_replication_slot")


def check_rabbitmq(installation: Installation) -> Check:
    """Check that the broker can be reached. Jobs run without it too, so this is only a warning."""
    where = rabbitmq.address(installation.settings)
    if (why := rabbitmq.why_not(installation.settings)) is not None:
        advice = "workers poll meanwhile; start the broker, or correct HOLDFAST_AMQP_URL"
        return Check("rabbitmq", WARNING, f"{where} cannot be used: {why}", advice)
    return Check("rabbitmq", OK, f"connected to {where}; the exchange is {installation.settings.amqp_exchange!r}")


def check_schema(installation: Installation) -> Check:
    pending = installation.plan()
    name = installation.settings.schema
    version = pending.found.version
    try:
        connect.check_schema(pending.found, name)
    except SchemaError as error:
        found, _, advice = str(error).rpartition("; ")
        return Check("schema", ERROR, found, advice)
    if pending.migrations:
        found = f"{name!r} is at version {version} of {pending.expected}, with which this release works"
        return Check("schema", WARNING, found, "run: holdfast migrate")
    if pending.functions:
        found = f"{name!r} has {len(pending.functions)} functions or views of another release"
        return Check("schema", WARNING, found, "run: holdfast migrate")
    return Check("schema", OK, f"{name!r} is at version {version}, up to date")


def check_rights(installation: Installation) -> Check:
    may = installation.ask(installation.server_calls.rights(("enqueue", "claim")))
    schema, user = installation.settings.schema, installation.server["user"]
    lacking = [name for name in ("enqueue", "claim") if not may.get(name)]
    if lacking:
        level = ERROR if len(lacking) > 1 else WARNING
        role = f"{schema}_{'worker' if 'claim' in lacking else 'enqueue'}"
        return Check("rights", level, f"{user} may not {' or '.join(lacking)}", f"GRANT {role} TO {user}")
    roles = installation.ask(installation.server_calls.roles())
    missing = [each for each in ("enqueue", "worker", "reader", "service", "admin") if f"{schema}_{each}" not in roles]
    if missing:
        named = ", ".join(f"{schema}_{each}" for each in missing)
        found = f"{user} may enqueue and claim; these roles do not exist: {named}"
        return Check("rights", WARNING, found, "run `holdfast migrate` once as a user that may create roles")
    return Check("rights", OK, f"{user} may enqueue and claim; all roles exist")


def check_bloat(installation: Installation) -> Check:
    row = installation.ask(installation.server_calls.live_table())
    return judge_bloat(row, installation.settings.schema) if row else Check("bloat", OK, "no statistics yet")


def judge_bloat(row: Mapping[str, Any], schema: str) -> Check:
    found = f"{row['dead']:,} dead rows beside {row['live']:,} live ones, {row['bytes'] / 1e6:,.1f} MB"
    if row["autovacuum"] == "off":
        advice = "the live table needs it: ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()"
        return Check("bloat", WARNING, f"autovacuum is off; {found}", advice)
    if row["switched_off"]:
        advice = f"the live table needs it: ALTER TABLE {schema}.live RESET (autovacuum_enabled)"
        return Check("bloat", WARNING, f"autovacuum is off for {schema}.live; {found}", advice)
    stale = row["vacuumed_ago"] is None or row["vacuumed_ago"] > UNVACUUMED
    if row["dead"] > max(MANY_DEAD_ROWS, 2 * row["live"]) and stale:
        advice = "vacuum cannot keep up: see `vacuum` above for what holds it back"
        return Check("bloat", WARNING, found, advice)
    return Check("bloat", OK, found)


def check_history(installation: Installation) -> Check:
    row = installation.ask(installation.server_calls.history())
    if row["stray"]:
        found = f"{row['stray']} rows are in history_default, because their day had no partition"
        advice = "workers move up to 10,000 of a day when they create its partition; move more by hand"
        return Check("history", WARNING, found, advice)
    if row["days"] <= 1:
        found = "there is no partition for tomorrow" if row["days"] else "there is no partition for today"
        return Check("history", WARNING, found, "start a worker, or: SELECT make_partitions()")
    return Check("history", OK, f"partitions for today and {plural(row['days'] - 1, 'day')} ahead")


def check_workers(installation: Installation) -> Check:
    """Check for expired leases. Any live worker reclaims them, so leftover ones mean that none is alive."""
    alive = [w for w in installation.ask(installation.calls.workers.list()) if w["alive"]]
    expired = installation.ask(installation.calls.workers.expired_claims(RECLAIM_WITHIN))
    if expired["claims"]:
        ago = duration(expired["oldest"])
        found = f"{plural(expired['claims'], 'lease')} expired up to {ago} ago and were not reclaimed"
        level, advice = (WARNING, "see the workers' logs") if alive else (ERROR, "no worker is alive; start one")
        return Check("workers", level, found, advice)
    return Check("workers", OK, f"{plural(len(alive), 'worker')} alive, no lease left behind")


def check_queues(installation: Installation) -> Check:
    unknown = Counter[str]()
    for each in _unknown(installation):
        unknown[each["queue"]] += each["jobs"]
    # A worker would not help a queue that has only unknown tasks; the check `tasks` reports those.
    unserved = [q for q in installation.ask(installation.calls.queues.unserved()) if q["jobs"] > unknown[q["queue"]]]
    if unserved:
        found = ", ".join(f"{q['queue']} ({plural(q['jobs'], 'job', MOST_COUNTED)})" for q in unserved)
        names = ",".join(q["queue"] for q in unserved)
        extra = ", where holdfast-jobs[webhooks] is installed" if WEBHOOKS in names.split(",") else ""
        return Check(
            "queues", WARNING, f"no live worker serves {found}", f"holdfast worker ... --queues {names}{extra}"
        )
    return Check("queues", OK, "every queue with due jobs has a worker")


def check_tasks(installation: Installation) -> Check:
    unknown = _unknown(installation)
    if not unknown:
        return Check("tasks", OK, "a worker has registered every waiting task")
    found = ", ".join(f"{_called(each['task'])} ({plural(each['jobs'], 'job')})" for each in unknown[:5])
    advice = "check the spelling, or register it in the application and restart its workers"
    return Check("tasks", WARNING, f"no worker has ever registered {found}{', ...' if unknown[5:] else ''}", advice)


def _unknown(installation: Installation) -> list[dict[str, Any]]:
    """Return unknown tasks, without that of webhooks, which applications do not register."""
    return [each for each in installation.ask(installation.calls.queues.unknown_tasks()) if each["task"] != WEBHOOK]


def _called(task: str) -> str:
    return f"channel {task.removeprefix(CHANNEL)!r}" if task.startswith(CHANNEL) else f"task {task!r}"


def check_levels(installation: Installation) -> Check:
    """Check the levels of metrics. They are no fault of the installation, so a critical one is only a warning."""
    levels = [each for each in installation.ask(installation.calls.figures.levels()) if each.level is not None]
    if not levels:
        return Check("levels", OK, "nothing was run in the last 5 minutes")
    units = {"tick_duration": " s"}
    texts = [
        f"{each.metric.replace('_', ' ')} {number(each.value or 0)}{units.get(each.metric, '')} ({each.level})"
        for each in levels
    ]
    bad = any(each.level != "good" for each in levels)
    advice = "see docs/guides/observe.md; thresholds are in holdfast.settings" if bad else ""
    return Check("levels", WARNING if bad else OK, f"in the last 5 minutes: {', '.join(texts)}", advice)


def check_schedules(installation: Installation) -> Check:
    """Check for late schedules: a late one means that there is no leader, or that it cannot fire it."""
    schedules = [each for each in installation.ask(installation.calls.schedules.list()) if not each.paused]
    late = [each for each in schedules if each.problem or each.overdue > OVERDUE]
    if late:
        why = late[0].problem or f"due for {duration(late[0].overdue)}"
        found = f"{plural(len(late), 'schedule')} not fired, {late[0].name!r} the first: {why}"
        return Check("schedules", WARNING, found, "see: holdfast schedules; any running worker fires them")
    return Check("schedules", OK, f"{plural(len(schedules), 'schedule')} in time")


def check_batches(installation: Installation) -> Check:
    """Check for batches whose jobs have ended: never closed, or with a callback that cannot be enqueued."""
    batches = installation.ask(installation.calls.batches.lingering())
    held = [each for each in batches if not each["open"] and each["age"] > OVERDUE]
    if held:
        found = f"{plural(len(held), 'batch')} cannot end, {held[0]['name']!r} the first"
        advice = "its callback cannot be enqueued, or a transaction that adds to it is open; see the server's log"
        return Check("batches", WARNING, found, advice)
    left = [each for each in batches if each["open"] and each["age"] > LEFT_OPEN]
    if left:
        found = f"{plural(len(left), 'batch')} with nothing to do still open, {left[0]['name']!r} the first"
        return Check(
            "batches", WARNING, found, f"if no more jobs will be added: holdfast batches cancel {left[0]['id']}"
        )
    return Check("batches", OK, "none is left behind")


def check_limits(installation: Installation) -> Check:
    """Check the counts of limits. They change in the transaction of their job, so a wrong one means damage."""
    drift = installation.ask(installation.calls.limits.reconcile(repair=False))
    if drift:
        first = drift[0]
        found = f"{plural(len(drift), 'key')} with a wrong count, {first['key']!r} the first: "
        found += f"{first['counted']} counted, {first['actual']} running"
        return Check("limits", WARNING, found, "correct it with: holdfast limits reconcile --repair")
    return Check("limits", OK, "every key counts as many jobs as run under it")


def check_dead(installation: Installation) -> Check:
    number = installation.ask(installation.calls.dead.count(Filter(), most=MOST_COUNTED + 1))
    if number:
        wait = f"{plural(number, 'failed or dead job', MOST_COUNTED)} {'waits' if number == 1 else 'wait'} for a person"
        return Check("dead", WARNING, wait, "see: holdfast dead")
    return Check("dead", OK, "no failed or dead jobs")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


ANY_DATABASE: tuple[Look, ...] = (
    check_server,
    check_servers,
    check_clock,
    check_durability,
    check_settings,
    check_connections,
    check_pooler,
    check_horizon,
)
OUR_SCHEMA: tuple[Look, ...] = (
    check_rights,
    check_bloat,
    check_history,
    check_workers,
    check_queues,
    check_tasks,
    check_levels,
    check_schedules,
    check_batches,
    check_limits,
    check_dead,
)

"""No test, in tests/ or in an example, sees a developer's own settings. That is said here and not in examples/: of two
files of this name in folders side by side, `from conftest import` would find the one that was loaded last."""

import os
from collections import Counter
from typing import Any

LONG = 60.0  # seconds
FILES = 15
# `make test-fast` leaves these out: they kill processes, run for seconds, or start whole programs.
SLOW = (
    "examples/",
    "tests/cli/",
    "tests/faults/",
    "tests/journeys/",
    "tests/testing/",
    "tests/typing/",
    "tests/sql/test_flow_",
    "tests/sql/test_limits_race",
    "tests/sql/test_open_transactions",
    "tests/sql/test_orders",
    "tests/sql/test_plans",
    "tests/sql/test_ring",
    "tests/sql/test_soak",
    "tests/sql/test_state_machine",
    "tests/store/test_embedded",
    "tests/wakeups/test_broker",
    "tests/web/test_http_contract",
    "tests/effects/test_hostile_receivers",
    "tests/worker/test_flow_edges_worker",
    "tests/worker/test_health",
    "tests/worker/test_periodic",
    "tests/worker/test_process",
    "tests/worker/test_starvation",
    "tests/worker/test_worker_flow",
)
OTHER_SERVERS = ("[pg16", "[pg_local", "-pg16", "-pg_local")

for _name in [name for name in os.environ if name.startswith("HOLDFAST_") and "TEST" not in name]:
    del os.environ[_name]


def pytest_addoption(parser: Any) -> None:
    """Add --fast."""
    parser.addoption("--fast", action="store_true", help="only quick tests, on one server")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Deselect slow tests with --fast."""
    if config.getoption("--fast"):
        slow = [
            item for item in items if item.nodeid.startswith(SLOW) or any(name in item.nodeid for name in OTHER_SERVERS)
        ]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Show which files of a long run took longest: most of its time goes to many short tests."""
    spent: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                spent[report.nodeid.split("::")[0]] += report.duration
    if spent.total() > LONG:
        terminalreporter.section(f"slowest files, {spent.total():.0f} s in all")
        for file, seconds in spent.most_common(FILES):
            terminalreporter.write_line(f"{seconds:6.1f}s {file}")

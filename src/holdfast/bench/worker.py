"""A worker process of the bench: `python -m holdfast.bench.worker`."""

from __future__ import annotations

from holdfast.bench.app import hf
from holdfast.bench.bare import run_async
from holdfast.worker import Worker, keep_what_is_loaded


def main() -> None:
    """Run one worker until SIGTERM or SIGINT."""
    keep_what_is_loaded()
    run_async(Worker(hf).run(handle_signals=True))


if __name__ == "__main__":
    main()

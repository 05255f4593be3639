"""`python -m bench`: all workloads, at full size. Run it in the repository's root."""

from __future__ import annotations

import argparse
import sys

import holdfast.bench
from bench import effects, engine, limits, observed, serve
from holdfast.bench import workloads
from holdfast.errors import HoldfastError
from holdfast.settings import Settings

ALL = workloads.ALL | engine.ALL | limits.ALL | effects.ALL | serve.ALL | observed.ALL


def main() -> int:
    """Run the workloads that the command line names, by default all."""
    parser = argparse.ArgumentParser("python -m bench", description="Without -w all workloads run, for an hour.")
    parser.add_argument("--workload", "-w", metavar="NAME", action="append", help=", ".join(ALL))
    parser.add_argument("--scale", type=float, default=1.0, metavar="FACTOR", help="multiplies the number of jobs")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--dsn")
    parser.add_argument("--schema")
    given = parser.parse_args()
    settings = Settings.load(dsn=given.dsn, schema=given.schema)
    try:
        return holdfast.bench.run(settings, workloads=given.workload, scale=given.scale, json=given.json, known=ALL)
    except HoldfastError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())

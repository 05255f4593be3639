"""Measurements against bare SQL."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.cli.options import Dsn, Schema


def bench(
    workload: Annotated[
        list[str] | None, typer.Option("--workload", "-w", metavar="NAME", help="Only this workload; may be repeated.")
    ] = None,
    scale: Annotated[float, typer.Option(min=0.001, metavar="FACTOR", help="Multiplies the number of jobs.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    dsn: Dsn = None,
    schema: Schema = None,
) -> None:
    """Measure throughput and latency against the limit of bare SQL."""
    from holdfast import bench as benchmark
    from holdfast.settings import Settings

    settings = Settings.load(dsn=dsn, schema=schema)
    raise typer.Exit(benchmark.run(settings, workloads=workload or None, scale=scale, json=as_json))

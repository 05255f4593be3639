"""Data types: jobs, tasks, outcomes, retry policies, payloads. No I/O here."""

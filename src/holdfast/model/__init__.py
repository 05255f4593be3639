"""Pure words of the trade: jobs, tasks, outcomes, retry policies, payloads. No I/O here."""

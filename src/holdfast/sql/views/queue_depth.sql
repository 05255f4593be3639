-- How much waits and runs in each queue, and how long the oldest due job has waited. Reading it costs the same however many there are:
-- of large tables some numbers are estimates, and estimated names their columns (count_jobs).
create view queue_depth as
select queue, ready, running, later, dead, oldest_wait, estimated from count_jobs();

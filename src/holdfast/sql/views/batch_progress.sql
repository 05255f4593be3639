-- Batches with their counters and status. processed counts all jobs that have ended, whatever their status.
create or replace view batch_progress as
select b.id, b.name, b.tenant,
       case when b.finished_at is null then case when c.processed > 0 then 'running' else 'queued' end
            when b.canceled then 'canceled' when c.failed > 0 then 'failed' else 'succeeded' end as status,
       c.total, c.processed, c.succeeded, c.failed, c.canceled, b.open,
       b.created_at, c.started_at, b.finished_at, (b.on_done ->> 'id')::uuid as callback
from batches b cross join lateral (
    select coalesce(sum(added), 0)::bigint as total, coalesce(sum(succeeded + failed + canceled), 0)::bigint as processed,
           coalesce(sum(succeeded), 0)::bigint as succeeded, coalesce(sum(failed), 0)::bigint as failed,
           coalesce(sum(canceled), 0)::bigint as canceled, min(first_at) as started_at
    from batch_counts k where k.batch = b.id) c;

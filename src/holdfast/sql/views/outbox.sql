-- Every message of the outbox with its status. pending: waits for its first or next attempt; delivering: a worker has
-- it; delivered; failed: rejected permanently; dead: its attempts are used up; canceled. maybe_sent: an earlier
-- attempt, or any attempt if none is under way, may have sent it.
create or replace view outbox as
select j.id, j.tenant, m.channel, m.key, idempotency_key(m.channel, j.tenant, m.key) as idempotency_key,
       j.payload ->> 'order' as "order",
       case j.status when 'running' then 'delivering' when 'succeeded' then 'delivered'
            when 'queued' then 'pending' when 'retrying' then 'pending' else j.status::text end as status,
       j.attempts, j.max_attempts, j.payload -> 'body' as payload, j.last_error as error, j.queue, j.run_at, j.created_at,
       case when j.status = 'succeeded' then j.finished_at end as delivered_at, j.finished_at,
       j.attempts > case when j.status in ('running', 'succeeded') then 1 else 0 end
           or coalesce(j.payload ->> 'maybe_sent' = 'true', false) as maybe_sent,
       j.place
from jobs j cross join lateral (select substr(j.task, 9) as channel, j.payload ->> 'key' as key) m
where starts_with(j.task, 'channel:') and m.key is not null;

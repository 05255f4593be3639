-- Record that breakers have opened or closed, and remove what is more than the last 50 of their keys.
-- Locks: breaker_events rows, skipping locked ones.
create or replace function record_breakers(p_changes breaker_change[], p_by text default null,
    p_reason text default null) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off as $$
begin
    insert into breaker_events (key, at, event, failures, open_until, by, reason)
    select c.key, clock(), c.event, c.failures, c.open_until, left(p_by, 200), left(p_reason, 1000) from unnest(p_changes) c;
    delete from breaker_events where ctid = any (array(
        select o.place from (select distinct c.key from unnest(p_changes) c) k cross join lateral (
            select e.ctid as place from breaker_events e
            where e.key = k.key and e.id <= (
                select f.id from breaker_events f where f.key = k.key order by f.id desc offset 50 limit 1)
            for update skip locked) o));
end $$;

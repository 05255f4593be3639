-- Records that those of the given jobs that run are to be canceled, and notifies their workers. Returns their ids.
-- Locks: running live rows in id order, so that none can end before its request is recorded.
-- Wakes: the workers, by the notification "WORKER cancel". They then call wanted_cancels, which they also do periodically.
create or replace function cancel_running(p_ids uuid[]) returns setof uuid
language plpgsql
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
    return query
        with held as materialized (
            select l.id, l.token from live l where l.id = any (p_ids) and l.token is not null
            order by l.id for update),
        noted as (
            insert into cancels (id, token, requested_at) select h.id, h.token, clock() from held h
            on conflict (id) do update set token = excluded.token),
        requested as (
            select pg_notify(current_schema() || '_wake', c.worker || ' cancel')
            from claims c where c.token = any (array(select h.token from held h)))
        select h.id from held h where (select count(*) from requested) >= 0;
end $$;

-- Move waiting jobs to another queue, give them another priority, or another time to start. Return the ids of those
-- that it changed: not those that run, are so already, or whose deadline is before the time. A job keeps its place in
-- time (run_at), its limits and the order it keeps. The trigger on live announces its lane to the next claim.
-- Locks: later rows, then live rows, each in id order.
-- Wakes: sleepers of the jobs' queues.
create or replace function change_jobs(p_ids uuid[], p_queue text default null, p_priority integer default null,
    p_run_at timestamptz default null) returns setof uuid
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    if p_run_at is not null then
        return query select reschedule_jobs(p_ids, p_run_at);
        return;
    end if;
    -- In statements of their own: a row that changed while it was waited for has a place that their snapshots do not show.
    perform 1 from later l where l.id = any (p_ids) order by l.id for update;
    perform 1 from live l where l.id = any (p_ids) and l.token is null order by l.id for update;
    return query
        with put_off as (
            update later t set queue = coalesce(p_queue, t.queue), priority = coalesce(p_priority, t.priority)
            where t.ctid = any (array(
                select l.ctid from later l where l.id = any (p_ids)
                  and (l.queue <> coalesce(p_queue, l.queue) or l.priority <> coalesce(p_priority, l.priority))))
            returning t.id),
        due as (
            update live t set queue = coalesce(p_queue, t.queue), priority = coalesce(p_priority, t.priority), lane = t.lane
            where t.ctid = any (array(
                select l.ctid from live l where l.id = any (p_ids) and l.token is null
                  and (l.queue <> coalesce(p_queue, l.queue) or l.priority <> coalesce(p_priority, l.priority))))
            returning t.id, t.queue),
        woken as (select wake(d.queue, count(*)) from due d group by d.queue)
        select p.id from put_off p
        union all select d.id from due d where (select count(*) from woken) >= 0;
end $$;

-- Give waiting jobs another time to start, between live and later. Return the ids of those that it changed: not those
-- that are due already where the time has come, nor those whose deadline is not after the time, nor those that start
-- after other jobs (follows).
-- Locks: later rows, then live rows, each in id order.
-- Wakes: sleepers of the jobs' queues; they know when the next job becomes due.
create or replace function reschedule_jobs(p_ids uuid[], p_run_at timestamptz) returns setof uuid
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_now timestamptz := clock(); v_at timestamptz := greatest(p_run_at, v_now); v_later uuid[]; v_live uuid[];
begin
    v_later := array(
        select l.id from later l where l.id = any (p_ids) and l.run_at <> v_at and l.waits_for is distinct from 'after' and (l.deadline is null or l.deadline > v_at)
        order by l.id for update);
    if p_run_at > v_now then
        v_live := array(
            select l.id from live l where l.id = any (p_ids) and l.token is null and (l.deadline is null or l.deadline > v_at)
            order by l.id for update);
        with gone as (delete from live where ctid = any (array(select l.ctid from live l where l.id = any (v_live))) returning *)
        insert into later select * from gone;
    end if;
    v_later := v_later || v_live;
    update later set run_at = v_at where ctid = any (array(select l.ctid from later l where l.id = any (v_later)));
    if p_run_at <= v_now then
        with gone as (delete from later where ctid = any (array(select l.ctid from later l where l.id = any (v_later))) returning *)
        insert into live select * from gone;
    end if;
    perform wake(q.queue, count(*)) from (
        select l.queue from later l where l.id = any (v_later) union all select l.queue from live l where l.id = any (v_later)) q
    group by q.queue;
    return query select unnest(v_later);
end $$;

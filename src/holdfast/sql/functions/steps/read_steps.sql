-- Return the steps of running jobs, each with the place of its job, and end sleeps and waits whose time is over. A job
-- whose token has changed gets none: what it stores next is refused.
-- Locks: rows of steps that are due, skipping locked ones: they stay open for now.
create or replace function read_steps(p_ids uuid[], p_tokens bigint[]) returns table (place integer, name text,
    kind text, finished boolean, timed_out boolean, result text, ref uuid, detail text)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock(); v_due tid[];
begin
    v_due := array(
        select s.at from unnest(p_ids, p_tokens) as g(id, token) cross join lateral (
            select s.ctid as at from steps s
            where s.job = g.id and s.finished_at is null and s.due_at <= v_now
              and exists (select 1 from live l where l.id = g.id and l.token = g.token)
            for update skip locked) s);
    if v_due <> '{}' then
        -- A wait that is open again (reopen_waits) ends well if its signal has come by now.
        perform end_wait(s) from steps s where s.ctid = any (v_due) and s.kind = 'signal';
        update steps set finished_at = v_now, timed_out = (kind <> 'sleep') where ctid = any (v_due) and finished_at is null;
    end if;
    return query
        select g.place::integer, s.name, s.kind, s.finished_at is not null, coalesce(s.timed_out, false), s.result::text, s.ref, s.detail::text
        from unnest(p_ids, p_tokens) with ordinality as g(id, token, place) cross join lateral (
            select s.* from steps s where s.job = g.id and s.undo_job is null
              and exists (select 1 from live l where l.id = g.id and l.token = g.token) offset 0) s;
end $$;

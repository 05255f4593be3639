-- Open the waits of jobs that run again and that ended badly: for a child that did not succeed, for a batch of which
-- jobs did not, and for a signal that did not come in time. The jobs then read the present state of these, and wait for
-- children, and for jobs of the batch, that were retried.
-- Locks: as lock_predecessors, the children; the jobs' rows of steps; then batches.
create or replace function reopen_waits(p_jobs uuid[]) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_names text[]; v_of uuid[]; v_children uuid[]; v_batches uuid[];
begin
    select array_agg(s.job), array_agg(s.name), array_agg(s.ref) filter (where s.kind = 'call'), array_agg(s.ref) filter (where s.kind = 'batch')
    into v_of, v_names, v_children, v_batches
    from steps s where s.job = any (p_jobs) and s.undo_job is null and s.finished_at is not null and case s.kind
        when 'call' then s.result ->> 'status' <> 'succeeded'
        when 'batch' then (s.result ->> 'failed')::bigint > 0 or (s.result ->> 'canceled')::bigint > 0
        when 'signal' then s.timed_out end;
    if v_of is null then return; end if;
    perform lock_predecessors(array(
        select c from unnest(v_children) c
        where exists (select 1 from live l where l.id = c) or exists (select 1 from later t where t.id = c)));
    update steps s set finished_at = null, result = null, timed_out = null
    from unnest(v_of, v_names) as o(job, name) where s.job = o.job and s.name = o.name;
    -- Batches of ctx.batch() have no callback, so nothing is enqueued twice when they end again.
    update batches b set finished_at = null
    where b.id = any (v_batches) and b.finished_at is not null and b.on_done is null
      and (select sum(c.added) > sum(c.succeeded + c.failed + c.canceled) from batch_counts c where c.batch = b.id);
end $$;

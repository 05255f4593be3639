-- Cancels jobs that wait. Answers for each id: canceled, running (cannot be canceled here), finished (already at a
-- final status) or unknown.
-- Called by: clients and operators.
-- Locks: later rows, then live rows, each in id order; then dedupe keys.
-- Wakes: nobody.
create or replace function cancel(p_ids uuid[]) returns table (id uuid, outcome text)
language plpgsql security definer
set search_path from current set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    v_canceled uuid[] := '{}';
    v_rest     uuid[] := p_ids;
    v_now      uuid[];
begin
    -- A job may move between later and live while we look, so look again until those left are seen elsewhere.
    for v_try in 1..3 loop
        with held as (select l.id from later l where l.id = any (v_rest) order by l.id for update),
        gone as (delete from later l using held h where l.id = h.id returning l.*),
        kept as (
            insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at,
                                 queue, task, tenant, payload, dedupe_key, last_error)
            select g.id, 'canceled', priority, attempt, max_attempts, run_at, created_at, clock(),
                   queue, task, tenant, payload, dedupe_key, last_error
            from gone g returning id, dedupe_key),
        freed as (select free_dedupe_keys(array_agg(dedupe_key), array_agg(k.id), false) from kept k
                  where dedupe_key is not null)
        select array_agg(k.id) into v_now from kept k where (select count(*) from freed) >= 0;
        v_canceled := v_canceled || coalesce(v_now, '{}');
        with held as (
            select l.id from live l where l.id = any (v_rest) and l.token is null order by l.id for update),
        gone as (delete from live l using held h where l.id = h.id returning l.*),
        kept as (
            insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at,
                                 queue, task, tenant, payload, dedupe_key, last_error)
            select g.id, 'canceled', priority, attempt, max_attempts, run_at, created_at, clock(),
                   queue, task, tenant, payload, dedupe_key, last_error
            from gone g returning id, dedupe_key),
        freed as (select free_dedupe_keys(array_agg(dedupe_key), array_agg(k.id), false) from kept k
                  where dedupe_key is not null)
        select array_agg(k.id) into v_now from kept k where (select count(*) from freed) >= 0;
        v_canceled := v_canceled || coalesce(v_now, '{}');
        v_rest := array(select unnest(v_rest) except select unnest(v_canceled));
        exit when not exists (select 1 from later l where l.id = any (v_rest)
                              union all select 1 from live l where l.id = any (v_rest) and l.token is null);
    end loop;
    return query
        select i, case when i = any (v_canceled) then 'canceled'
                       when exists (select 1 from live l where l.id = i) then 'running'
                       when exists (select 1 from dead d where d.id = i) then 'finished'
                       when exists (select 1 from history h where h.id = i) then 'finished'
                       else 'unknown' end
        from unnest(p_ids) i;
end $$;

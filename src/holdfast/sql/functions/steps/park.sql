-- Decide, for settle, which of the jobs that are to wait may wait: an outcome "parked" has "wait": {"kind", "name",
-- "seconds" (null: without end)}. Change each such outcome: "waits_for" and "delay" for a job that waits; a delay of 0
-- for one whose wait is over already; an error for one that waits for a child or a batch without a step for it.
-- The place of a job becomes null if another transaction is about to end its wait: the job is then not moved, and its
-- worker sends it again. A call that ends waits therefore sees the check and the move as one step, and no wake-up is
-- lost.
-- Locks: for signals, the signal's advisory lock, shared with other jobs, without waiting; then the row of steps,
--   without waiting. The caller has locked the live rows.
create or replace function park(inout p_outcomes jsonb, inout p_places tid[])
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_all jsonb[] := array(select o from jsonb_array_elements(p_outcomes) o); v_now timestamptz := clock(); v_given jsonb;
    v_job record; v_kind text; v_name text; v_step steps; v_place tid;
begin
    for v_nth in 1..cardinality(v_all) loop
        v_given := v_all[v_nth];
        continue when p_places[v_nth] is null or (v_given ->> 'outcome' = 'parked') is not true;
        v_kind := v_given #>> '{wait,kind}';
        v_name := v_given #>> '{wait,name}';
        select l.id, coalesce(l.tenant, '') as tenant, l.durable, l.attempt into v_job from live l where l.ctid = p_places[v_nth];
        if v_kind = 'signal' and not pg_try_advisory_xact_lock_shared(1215259733, signal_key(v_job.tenant, v_name)) then
            p_places[v_nth] := null;
            continue;
        end if;
        if v_kind in ('sleep', 'signal') then
            insert into steps (job, name, kind, tenant, attempt, started_at, due_at, check_at)
            values (v_job.id, v_name, v_kind, case when v_kind = 'signal' then v_job.tenant end, v_job.attempt, v_now,
                    v_now + make_interval(secs => case when v_given #>> '{wait,seconds}' is not null then least(greatest((v_given #>> '{wait,seconds}')::double precision, 0), 315360000) end),
                    case when v_job.durable is not true then v_now + interval '1 day' end)
            on conflict do nothing;
            if v_job.durable is not true then
                update live set durable = true where ctid = p_places[v_nth] returning ctid into v_place;
                p_places[v_nth] := v_place;
            end if;
        end if;
        -- A statement of its own again: it sees what was committed before the locks were taken.
        select * into v_step from steps s where s.job = v_job.id and s.name = v_name for update skip locked;
        if not found and exists (select 1 from steps s where s.job = v_job.id and s.name = v_name) then
            p_places[v_nth] := null;
            continue;
        end if;
        v_all[v_nth] := v_given || case
            when v_step.job is null then jsonb_build_object('outcome', 'error', 'error', jsonb_build_object(
                'type', 'NoStep', 'code', 'NO_STEP', 'message', format(
                    'the job waits for %s, but has no step %L: it is stored before the wait, and its name may have changed',
                    case v_kind when 'call' then 'a child' when 'batch' then 'a batch' else format('%L', v_kind) end, v_name)))
            when v_step.finished_at is not null or end_wait(v_step) or v_step.due_at <= v_now then '{"delay": 0}'
            else jsonb_build_object('waits_for', v_kind || ' ' || v_name,
                                    'delay', coalesce(extract(epoch from v_step.due_at - v_now), 315360000)) end;
    end loop;
    p_outcomes := to_jsonb(v_all);
end $$;

-- Run a job that has ended again, with fresh attempts. With p_from, remove the results of that step and of all that
-- began after it, so the job runs them again; keep earlier ones, unless they were undone. Without it, open waits that
-- ended badly again (reopen_waits). p_keys: the limits of a job whose row in history no longer has them; null if the
-- caller does not know the task: the job is then refused if there are rules of limits. p_tenant, p_deliveries: as in
-- edit_job. Return its id, or null if a newer job holds its dedupe key or another call was first.
-- Locks: the job's row, its rows of steps; then as retry_dead.
-- Wakes: sleepers of the job's queue.
create or replace function rerun(p_id uuid, p_from text default null, p_keys text[] default null, p_by text default null,
    p_reason text default null, p_tenant text default null, p_deliveries boolean default true) returns uuid
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_job record; v_number bigint; v_keys text[] := case when p_keys <> '{}' then check_keys(p_keys) end; v_problem text;
begin
    select j.status::text as status, j.place, j.task into v_job from jobs j
    where j.id = p_id and may_see(p_tenant is null, p_tenant, j.tenant) and (p_deliveries or j.task <> 'holdfast.webhook');
    v_problem := case
        when v_job.place is null then 'there is none'
        when v_job.place not in ('dead', 'history') then 'it is ' || v_job.status
        when v_job.place = 'history' and (v_job.task like 'channel:%' or v_job.task like 'holdfast.%') then
            'it is a message or a delivery that has ended; redeliver a delivery, and emit a message with another key'
        when v_job.place = 'history' and p_keys is null and exists (select 1 from limit_rules) then
            format('its task %s may have limits, which are not known here; rerun it where the task is registered, or give p_keys', v_job.task)
        end;
    if v_problem is not null then
        raise exception 'job % cannot be rerun: %', p_id, v_problem using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif p_from is not null then
        v_number := (select s.number from steps s where s.job = p_id and s.name = p_from);
        if v_number is null then
            raise exception 'job % has no step %; it has %', p_id, quote_literal(left(p_from, 200)), coalesce(
                (select string_agg(quote_literal(s.name), ', ' order by s.number) from steps s where s.job = p_id), 'none')
                using errcode = 'invalid_parameter_value', constraint = 'action';
        end if;
    end if;
    if v_job.place = 'dead' then
        if not exists (select 1 from requeue_dead(array[p_id])) then return null; end if;
    else
        with gone as (delete from history h where h.id = p_id returning *)
        insert into live (id, queue, priority, lane, run_at, created_at, max_attempts, task, tenant, payload, keys, last_error, failures, followed)
        select id, queue, priority, lane_of(tenant, v_keys), clock(), created_at, max_attempts, task, tenant, payload, v_keys, last_error, failures,
               is_followed(id)
        from gone on conflict do nothing;
        if not found then return null; end if;  -- another call was first
        delete from cancels where id = p_id;  -- a request that came too late for the last run
        perform wake(l.queue) from live l where l.id = p_id;
    end if;
    delete from steps s where s.job = p_id and (s.undo_job is not null or s.number >= v_number);
    if p_from is null then perform reopen_waits(array[p_id]); end if;
    update steps s set check_at = clock() + interval '1 day' where ctid = (select f.ctid from steps f where f.job = p_id order by f.number limit 1);
    update live set durable = exists (select 1 from steps s where s.job = p_id) where ctid = (select l.ctid from live l where l.id = p_id);
    perform record_action('jobs.rerun', p_id::text, p_by, p_reason, p_after => jsonb_strip_nulls(jsonb_build_object('from_step', p_from)),
                          p_tenant => p_tenant);
    return p_id;
end $$;

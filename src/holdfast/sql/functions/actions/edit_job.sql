-- Give a job other arguments: a waiting job where it is; a failed or dead one is then retried, as retry_dead
-- does. The row in actions keeps the old arguments. p_expected: refused if the arguments are others by now.
-- p_keys: the limits of the new arguments; null: as before. Refuse a job that has done steps: it would keep their
-- results. Return edited or retried.
-- Locks: the job's row; then as retry_dead.
-- Wakes: sleepers of the job's queue.
create or replace function edit_job(p_id uuid, p_args jsonb, p_expected jsonb default null, p_keys text[] default null,
    p_by text default null, p_reason text default null, p_tenant text default null, p_deliveries boolean default true) returns text
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_found record; v_keys text[]; v_lane bigint; v_status text;
begin
    select j.place, j.task, j.tenant, j.queue, j.payload, j.keys, j.held into v_found from (
        select 'later' as place, t.task, t.tenant, t.queue, t.payload, t.keys, t.held
        from (select * from later t where t.id = p_id for update) t
        union all select 'live', l.task, l.tenant, l.queue, l.payload, l.keys, l.held
        from (select * from live l where l.id = p_id and l.token is null for update) l
        union all select 'dead', d.task, d.tenant, d.queue, d.payload, d.keys, null
        from (select * from dead d where d.id = p_id for update) d) j
    where may_see(p_tenant is null, p_tenant, j.tenant) and (p_deliveries or j.task <> 'holdfast.webhook');
    if not found then
        v_status := (select j.status from jobs j where j.id = p_id and may_see(p_tenant is null, p_tenant, j.tenant));
        raise exception 'job % cannot be edited: %', p_id, case when v_status is null then 'there is none' else 'it is ' || v_status end
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif v_found.task like 'channel:%' or v_found.task like 'holdfast.%' then
        raise exception 'job % is a message or a delivery, whose content cannot be edited', p_id
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif jsonb_typeof(p_args) is distinct from 'object' then
        raise exception 'the arguments of a job must be a JSON object, got %', coalesce(jsonb_typeof(p_args), 'null')
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif exists (select 1 from steps s where s.job = p_id and s.finished_at is not null and s.undo_job is null and s.kind <> 'sleep') then
        raise exception 'job % has done steps with its arguments, and would keep their results; enqueue a new job with other arguments', p_id
            using errcode = 'invalid_parameter_value', constraint = 'action', hint = 'rerun runs steps again, with the arguments that the job has';
    elsif v_found.payload::jsonb <> p_expected then
        raise exception 'the arguments of job % have changed meanwhile; read it again', p_id
            using errcode = 'invalid_parameter_value', constraint = 'action';
    end if;
    -- A waiting job keeps its order.
    v_keys := case when p_keys is null then v_found.keys else nullif(free_keys(check_keys(p_keys), v_found.held), '{}') end;
    v_lane := case when v_found.tenant is null and v_keys is null then 0 else lane_of(v_found.tenant, v_keys) end;
    if v_found.place = 'later' then
        update later t set payload = p_args::json, keys = v_keys, lane = v_lane where t.id = p_id;
    elsif v_found.place = 'live' then
        update live l set payload = p_args::json, keys = v_keys, lane = v_lane where l.id = p_id;
        perform wake(v_found.queue);
    else
        update dead d set payload = p_args::json, keys = v_keys, lane = v_lane where d.id = p_id;
        if not exists (select 1 from retry_dead(array[p_id])) then
            raise exception 'job % was not retried: a newer job holds its dedupe key', p_id
                using errcode = 'invalid_parameter_value', constraint = 'action';
        end if;
    end if;
    perform record_action('edit', p_id::text, p_by, p_reason, jsonb_build_object('args', v_found.payload::jsonb),
                          jsonb_build_object('args', p_args), p_tenant);
    return case v_found.place when 'dead' then 'retried' else 'edited' end;
end $$;

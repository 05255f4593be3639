-- Handle an enqueue whose dedupe key another job holds. Return existing or replaced, or raise an error; null if the
-- job has moved or released the key meanwhile, and the caller has to try again. Only a job of the same task and tenant
-- is replaced. It gets the new payload and limits, in the lane of its own tenant; a waiting job keeps its order. A job
-- that has stored steps keeps its payload, as a running one does: the results of its steps belong to it.
-- Locks: the holder's row, to replace its payload. It waits up to a second for a claim or another replace of the same
--   key: skipping the row would lose this payload, or keep the older of two. The key itself is not locked, so no end of
--   a job waits for this.
-- Wakes: sleepers of a due holder's queue: it may have waited for a limit that it is no longer under.
create or replace function resolve_duplicate(p_key text, p_holder uuid, p_task text, p_tenant text, p_payload jsonb,
    p_on_conflict text, p_keys text[] default null) returns text
language plpgsql set search_path from current set jit = off set enable_seqscan = off set lock_timeout = '1s' as $$
declare
    v_queue text; v_every text[]; v_found boolean;
begin
    if p_on_conflict = 'raise' then
        raise exception 'job % already holds dedupe key %', p_holder, left(p_key, 200)
            using errcode = 'unique_violation', constraint = 'dedupe_key';
    elsif p_on_conflict = 'replace' then
        -- A caller that guesses a key must not write the arguments of another task or tenant.
        if exists (select 1 from live l where l.id = p_holder and (l.task <> p_task or l.tenant is distinct from p_tenant))
           or exists (select 1 from later l where l.id = p_holder and (l.task <> p_task or l.tenant is distinct from p_tenant)) then
            raise exception 'a job of another task or tenant already holds dedupe key %', left(p_key, 200)
                using errcode = 'unique_violation', constraint = 'dedupe_key';
        end if;
        begin
            update live set payload = p_payload::json, keys = nullif(free_keys(p_keys, held), '{}'),
                lane = case when tenant is null and p_keys is null then 0 else lane_of(tenant, free_keys(p_keys, held)) end
            where id = p_holder and token is null and durable is not true returning queue, keys || held into v_queue, v_every;
            v_found := found;
            if not v_found then
                update later set payload = p_payload::json, keys = nullif(free_keys(p_keys, held), '{}'),
                    lane = case when tenant is null and p_keys is null then 0 else lane_of(tenant, free_keys(p_keys, held)) end
                where id = p_holder and durable is not true returning keys || held into v_every;
                v_found := found;
            end if;
        exception when lock_not_available then
            raise exception 'job % is being changed by a transaction that is still open; repeat the call: it holds dedupe key %',
                p_holder, left(p_key, 200) using errcode = 'lock_not_available';
        end;
        if not v_found then  -- it runs or has done steps, or it has moved to the other table or released the key meanwhile
            return (select 'existing' from dedupe d where d.key = p_key and d.id = p_holder
                    and not exists (select 1 from live l where l.id = p_holder and l.token is null and l.durable is not true)
                    and not exists (select 1 from later l where l.id = p_holder and l.durable is not true));
        elsif cardinality(v_every) > 20 then  -- more than a claim can return
            raise exception 'a job can have at most 20 limits, including the order that job % keeps; got %', p_holder, cardinality(p_keys)
                using errcode = 'invalid_parameter_value';
        elsif v_queue is not null then
            perform wake(v_queue);
        end if;
        return 'replaced';
    elsif p_on_conflict = 'existing' then
        return 'existing';
    end if;
    raise exception 'on_conflict must be existing, replace or raise, got %', p_on_conflict
        using errcode = 'invalid_parameter_value';
end $$;

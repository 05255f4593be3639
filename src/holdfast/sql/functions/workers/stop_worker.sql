-- Ask a worker to stop: to claim nothing more, finish what runs and end, or with p_now to release its jobs at once. It
-- reads the request in its next round of upkeep. p_worker: its id, or the beginning of the id of one worker alone.
-- Return the id, or null if there is no such worker. A request to drain does not replace one to stop now. A worker that
-- is started later has another id.
-- Locks: the worker's worker_stops row.
create or replace function stop_worker(p_worker text, p_now boolean default false, p_by text default null,
    p_reason text default null) returns text
language plpgsql security definer set search_path from current as $$
declare
    v_ids text[] := array(select w.id from workers w where w.id = p_worker);
begin
    if v_ids = '{}' and p_worker <> '' then
        v_ids := array(select w.id from workers w where starts_with(w.id, p_worker) and is_alive(w.id, w.heartbeat_at)
                       order by w.started_at, w.id limit 10);
    end if;
    if cardinality(v_ids) > 1 then
        raise exception 'several workers have an id that begins with %: %; give more of it',
            quote_literal(left(p_worker, 60)), array_to_string(v_ids, ', ')
            using errcode = 'invalid_parameter_value', constraint = 'worker';
    elsif v_ids = '{}' then
        return null;
    end if;
    insert into worker_stops as s (worker, now, requested_at, by, reason)
    values (v_ids[1], p_now, clock(), left(coalesce(p_by, session_user), 200), left(p_reason, 1000))
    on conflict (worker) do update
        set now = true, requested_at = excluded.requested_at, by = excluded.by, reason = excluded.reason
        where excluded.now and not s.now;
    if found then
        perform record_action(case when p_now then 'workers.stop' else 'workers.drain' end, v_ids[1], p_by, p_reason);
    end if;
    return v_ids[1];
end $$;

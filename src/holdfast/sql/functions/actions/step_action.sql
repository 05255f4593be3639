-- Return an action as it is after a step: jobs that were locked, then the next ones in the order of their ids, 500 at a
-- time, until p_until. The caller holds the action's row and stores the result in the same transaction, so that each
-- job is changed once.
-- Locks: as apply_action.
create or replace function step_action(p_action actions, p_until timestamptz) returns actions
language plpgsql set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v actions := p_action; v_ids uuid[]; v_scan record; v_ended boolean := false; v_locked uuid[] := v.locked;
    v_where job_filter := check_action(v.kind, v.filter, v.params, v.view_tenant);
    v_most integer := case when v_where.args is null then 500 else 100 end;
begin
    if v_locked <> '{}' then
        v.locked := '{}';
        v.matched := v.matched - cardinality(v_locked);
        if v.filter is not null then  -- it may not match any more
            v_ids := matching_jobs(v_where, v.started_at, v_locked, v.view_tenant, v.deliveries);
        end if;
        v := change_matching(v, coalesce(v_ids, v_locked), p_until);
    end if;
    while not v_ended and cardinality(v.locked) < 1000 loop
        if v.ids is not null then
            v_ids := v.ids[v.scanned + 1 : v.scanned + v_most];
            v_ended := cardinality(v_ids) < v_most;
            v.scanned := v.scanned + cardinality(v_ids);
            v_ids := seen_jobs(v.view_tenant is null, v.view_tenant, v.deliveries, v_ids);
        else
            v_scan := scan_jobs(v_where, v.started_at, coalesce(v.place_id, '00000000-0000-0000-0000-000000000000'), v.place_id,
                                v.last_id, v_most, v.view_tenant, v.deliveries);
            v_ids := v_scan.ids;
            v_ended := v_scan.scanned < v_most;
            v.scanned := v.scanned + v_scan.scanned;
            v.place_id := coalesce(v_scan.last_id, v.place_id);
        end if;
        v := change_matching(v, v_ids, p_until);
        exit when clock_timestamp() > p_until;
    end loop;
    if v_ended and v.locked = '{}' then v.state := 'done'; end if;
    return v;
end $$;

-- Change jobs that match an action and return it with its counts. After an error the jobs are changed one by one.
-- Locks: as apply_action.
create or replace function change_matching(p_action actions, p_ids uuid[], p_until timestamptz) returns actions
language plpgsql set search_path from current as $$
declare
    v actions := p_action; v_done record;
begin
    if p_ids = '{}' then return v; end if;
    begin
        select d.changed, d.locked, null::text as problem into v_done from apply_action(v.kind, v.params, p_ids) d;
    exception
        when insufficient_resources or operator_intervention then raise;
        when others then
            v_done := apply_singly(v.kind, v.params, p_ids, greatest(p_until, clock_timestamp() + interval '50 ms'));
    end;
    v.matched := v.matched + cardinality(p_ids);
    v.changed := v.changed + cardinality(v_done.changed);
    v.locked := v.locked || v_done.locked;
    v.skipped := v.matched - v.changed - cardinality(v.locked);
    v.error := coalesce(v_done.problem, v.error);
    return v;
end $$;

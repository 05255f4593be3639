-- Return an override with a change merged into it: null removes a field, and a new rate or breaker gets defaults for
-- the fields it requires. p_beneath is what is in force where the override sets nothing. "by" and "at" record who
-- changed it, and when.
create or replace function change_override(p_override jsonb, p_beneath jsonb, p_change jsonb, p_by text) returns jsonb
language sql stable set search_path from current as $$
    with merged as (select jsonb_strip_nulls((p_override - 'by' - 'at') || p_change) as override),
    needed as (select m.override, jsonb_strip_nulls(coalesce(p_beneath, '{}') || m.override) as whole from merged m)
    select case when n.override = '{}' then '{}' else
        -- the defaults of Limit and Breaker in Python
        case when n.whole ? 'rate' then jsonb_build_object('per', 60, 'burst', greatest(
            1, (n.whole ->> 'rate')::double precision / coalesce((n.whole ->> 'per')::double precision, 60))) else '{}' end
        - array(select jsonb_object_keys(n.whole))
        || case when n.whole ? 'breaker_after' then '{"breaker_pause": 300, "breaker_cap": 3600}'::jsonb else '{}' end
        - array(select jsonb_object_keys(n.whole)) || n.override || jsonb_build_object('by', p_by, 'at', clock()) end
    from needed n
$$;

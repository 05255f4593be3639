-- Reject an invalid change of a limit: an unknown field, or a number out of range.
create or replace function check_limit(p_key text, p_change jsonb) returns void
language plpgsql immutable set search_path from current as $$
declare
    v_known text[] := '{concurrency,rate,per,burst,breaker_after,breaker_pause,breaker_cap,weight}'; v_problem text;
begin
    if jsonb_typeof(p_change) is distinct from 'object' or p_change = '{}' then
        v_problem := 'a change of a limit must be an object such as {"concurrency": 4}, got ' || coalesce(p_change::text, 'null');
    else
        select case
            when f.name <> all (v_known) then
                format('unknown limit field %s; the fields are %s', f.name, array_to_string(v_known, ', '))
            when f.name = 'weight' and p_key not like 'tenant:%' then
                format('only a tenant has a weight (tenant:NAME), not %s', p_key)
            when f.value = 'null' then null  -- back to the value in the code
            when jsonb_typeof(f.value) <> 'number' then
                format('%s must be a number, or null for the value in the code; got %s', f.name, f.value)
            when f.value::numeric not between l.least and 1000000000 then format('%s must be %s 1,000,000,000 at most, got %s',
                f.name, case when l.least >= 0.001 or f.name = 'concurrency' then l.least || ' or more,' else 'above 0,' end, f.value)
            when f.name in ('concurrency', 'breaker_after') and f.value::numeric % 1 <> 0 then
                format('%s must be a whole number, got %s', f.name, f.value) end
        into v_problem from jsonb_each(p_change) with ordinality as f(name, value, n) cross join lateral (
            -- A burst below one would never allow a start; a concurrency of 0 is the way to request that.
            select case f.name when 'concurrency' then 0 when 'burst' then 1 when 'breaker_after' then 1 else 0.000001 end as least) l
        order by 1, f.n limit 1;  -- problems before nulls
        if v_problem is null and (p_change ->> 'breaker_cap')::numeric < (p_change ->> 'breaker_pause')::numeric then
            v_problem := format('breaker_cap must not be below breaker_pause, got %s and %s',
                                p_change ->> 'breaker_cap', p_change ->> 'breaker_pause');
        end if;
    end if;
    if v_problem is not null then
        raise exception '%', v_problem using errcode = 'invalid_parameter_value', constraint = 'limit';
    end if;
end $$;

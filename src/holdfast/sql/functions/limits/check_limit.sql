-- Rejects an invalid change of a limit: an unknown field, or a number out of range.
create or replace function check_limit(p_key text, p_change jsonb) returns void
language plpgsql immutable set search_path from current as $$
declare
    v_name text; v_value jsonb;
    v_known text[] := '{concurrency,rate,per,burst,breaker_after,breaker_pause,breaker_cap,weight}'; v_least numeric;
begin
    if jsonb_typeof(p_change) is distinct from 'object' or p_change = '{}' then
        raise exception 'a change of a limit is an object such as {"concurrency": 4}, got %', coalesce(p_change::text, 'null')
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    end if;
    for v_name, v_value in select * from jsonb_each(p_change) loop
        if v_name <> all (v_known) then
            raise exception 'unknown limit field %; the fields are %', v_name, array_to_string(v_known, ', ')
                using errcode = 'invalid_parameter_value', constraint = 'limit';
        elsif v_name = 'weight' and p_key not like 'tenant:%' then
            raise exception 'only a tenant has a weight (tenant:NAME), not %', p_key
                using errcode = 'invalid_parameter_value', constraint = 'limit';
        end if;
        continue when v_value = 'null';  -- back to the value in the code
        if jsonb_typeof(v_value) <> 'number' then
            raise exception '% is a number, or null for the value in the code; got %', v_name, v_value
                using errcode = 'invalid_parameter_value', constraint = 'limit';
        end if;
        -- A burst below one would never allow a start; a concurrency of 0 is the way to request that.
        v_least := case v_name when 'concurrency' then 0 when 'burst' then 1 when 'breaker_after' then 1 else 0.000001 end;
        if not (v_value::numeric between v_least and 1000000000) then
            raise exception '% is % 1,000,000,000 at most, got %', v_name,
                case when v_least >= 0.001 or v_name = 'concurrency' then format('%s or more,', v_least) else 'above 0,' end, v_value
                using errcode = 'invalid_parameter_value', constraint = 'limit';
        elsif v_name in ('concurrency', 'breaker_after') and v_value::numeric % 1 <> 0 then
            raise exception '% is a whole number, got %', v_name, v_value
                using errcode = 'invalid_parameter_value', constraint = 'limit';
        end if;
    end loop;
    if (p_change ->> 'breaker_cap')::numeric < (p_change ->> 'breaker_pause')::numeric then
        raise exception 'breaker_cap must not be below breaker_pause, got % and %',
            p_change ->> 'breaker_cap', p_change ->> 'breaker_pause'
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    end if;
end $$;

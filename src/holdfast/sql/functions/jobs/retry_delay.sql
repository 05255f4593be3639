-- Return how long a job waits after its p_attempt-th attempt failed, by a policy such as {"kind": "exponential",
-- "base": 1, "factor": 2, "cap": 60, "jitter": 0}; see holdfast.model.retry for the fields. It must never raise: a
-- failure that cannot be stored would be a lost job.
create or replace function retry_delay(p_policy jsonb, p_attempt integer) returns interval
language plpgsql volatile as $$
declare
    v_step double precision := greatest(p_attempt, 1) - 1; v_delays jsonb := p_policy -> 'delays';
    v_seconds double precision; v_jitter double precision;
begin
    v_seconds := case p_policy ->> 'kind'
        when 'fixed' then (p_policy ->> 'delay')::double precision
        when 'exponential' then (p_policy ->> 'base')::double precision
                                * power((p_policy ->> 'factor')::double precision, least(v_step, 60))
        when 'table' then (v_delays ->> least(v_step, jsonb_array_length(v_delays) - 1)::integer)::double precision
        else 0 end;
    -- At most ten years: PostgreSQL and Python cannot represent every later time.
    v_seconds := least(v_seconds, (p_policy ->> 'cap')::double precision, 315360000);
    v_jitter := coalesce((p_policy ->> 'jitter')::double precision, 0);
    if v_seconds > 1e-6 and v_jitter > 1e-6 then  -- smaller values are negligible, and their product would underflow
        v_seconds := v_seconds * (1 - v_jitter * random());
    end if;
    return make_interval(secs => coalesce(greatest(v_seconds, 0), 0));
exception when others then
    return interval '1 minute';
end $$;

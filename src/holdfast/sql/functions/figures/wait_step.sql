-- Return the step of a wait in attempt_counts: step n holds waits of up to 2 ^ (n / 2) milliseconds.
create or replace function wait_step(p_seconds double precision) returns smallint
language sql immutable parallel safe as $$
    select least(ceil(2.885390081777927 * ln(greatest(p_seconds * 1000, 1))), 60)::smallint  -- 2 / ln(2)
$$;

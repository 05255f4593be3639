-- End one claimed job with an error, for clients that work job by job; workers use finish. The job is retried by its
-- policy, or after p_delay, while attempts are left, else it is dead. p_outcome 'failed' or 'dead' makes it final at
-- once. Return whether the token was still the job's.
-- Locks: as finish.
-- Wakes: as finish.
create or replace function fail(p_id uuid, p_token bigint, p_error jsonb default '{}', p_delay interval default null,
    p_outcome text default 'error') returns boolean
language sql security definer set search_path from current as $$
    select not exists (select 1 from finish('{}', '{}', jsonb_build_array(jsonb_build_object(
        'id', p_id, 'token', p_token, 'outcome', p_outcome, 'error', p_error, 'delay', extract(epoch from p_delay)))))
$$;

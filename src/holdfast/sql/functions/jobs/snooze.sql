-- Put one claimed job back to run after p_delay, with its attempt refunded; for clients that work job by job (workers
-- use finish). Return whether the token was still the job's.
-- Locks: as finish. Wakes: as finish.
create or replace function snooze(p_id uuid, p_token bigint, p_delay interval) returns boolean
language sql security definer set search_path from current as $$
    select not exists (select 1 from finish('{}', '{}', jsonb_build_array(jsonb_build_object(
        'id', p_id, 'token', p_token, 'outcome', 'snoozed', 'delay', extract(epoch from p_delay)))))
$$;

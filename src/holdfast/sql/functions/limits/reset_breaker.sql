-- Closes a key's breaker and clears its failures, as a successful probe would. Returns whether it was open or half
-- open.
-- Wakes: all workers, if there was something to clear.
create or replace function reset_breaker(p_key text, p_by text default null, p_reason text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_until timestamptz;
begin
    select m.open_until into v_until from limit_use m where m.key = p_key and (m.open_until is not null or m.failure_streak > 0);
    if found then
        perform touch_limit(p_key, 2);  -- the next claim clears them
        perform record_action('limits.reset_breaker', p_key, p_by, p_reason, jsonb_build_object('open_until', v_until));
    end if;
    return v_until is not null;
end $$;

-- Close a key's breaker and clear its failures, as a successful probe would. Return whether it was open or half
-- open.
-- Locks: as record_breakers. Wakes: all workers, if there was something to clear.
create or replace function reset_breaker(p_key text, p_by text default null, p_reason text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_until timestamptz; v_failures integer;
begin
    select m.open_until, m.failure_streak into v_until, v_failures from limit_use m where m.key = p_key and (m.open_until is not null or m.failure_streak > 0);
    if found then
        perform touch_limit(p_key, 2);  -- the next claim clears them
        perform record_action('limits.reset_breaker', p_key, p_by, p_reason, jsonb_build_object('open_until', v_until));
    end if;
    if v_until is not null then
        perform record_breakers(array[(p_key, 'reset', v_failures, null)::breaker_change], coalesce(p_by, session_user), p_reason);
    end if;
    return v_until is not null;
end $$;

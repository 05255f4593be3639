-- Resume a paused key. Its breaker stays as it is (reset_breaker). Return whether it was paused.
-- Locks: the key's limit_settings row.
-- Wakes: all workers, if it was paused.
create or replace function resume(p_key text, p_by text default null, p_reason text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_before boolean;
begin
    select m.paused_until is null or m.paused_until > clock() into v_before
    from limit_settings m where m.key = p_key and m.paused for update;
    if not found then return false; end if;
    update limit_settings m
    set paused = false, paused_until = null, paused_at = null, paused_by = null, paused_reason = null
    where m.key = p_key;
    perform touch_limit(p_key);
    perform record_action('resume', p_key, p_by, p_reason, jsonb_build_object('paused', v_before), '{"paused": false}');
    return v_before;
end $$;

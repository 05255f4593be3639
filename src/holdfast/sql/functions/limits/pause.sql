-- Start no more jobs under a key until it is resumed, or for p_for: a limit's key, queue:NAME, task:NAME or
-- tenant:NAME. Waiting jobs stay where they are and use no attempts; running jobs continue. Pausing again replaces who,
-- why and until when. Return whether the key was not paused before.
-- Locks: the key's limit_settings row.
-- Wakes: all workers.
create or replace function pause(p_key text, p_by text default null, p_reason text default null,
    p_for interval default null) returns boolean
language plpgsql security definer set search_path from current set jit = off as $$
declare
    v_before boolean; v_now timestamptz;
begin
    perform check_limit_key(p_key);
    if exists (select 1 from limit_rules r where r.template = p_key and strpos(p_key, '{') > 0) then
        raise exception '% is a rule, not a key: pause its keys, or set its concurrency to 0', p_key
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    elsif p_for <= interval '0' then
        raise exception 'a pause must be longer than 0, got %', p_for
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    elsif p_for > interval '100 years' then
        raise exception 'a pause must last 100 years at most, or have no duration and last until it is resumed; got %', p_for
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    end if;
    insert into limit_settings (key, kind) values (p_key, kind_of(p_key)) on conflict do nothing;
    select s.paused and (s.paused_until is null or s.paused_until > clock()) into v_before
    from limit_settings s where s.key = p_key for update;
    v_now := clock();  -- read after waiting for the row
    update limit_settings s
    set paused = true, paused_until = v_now + p_for, paused_at = v_now, paused_by = coalesce(p_by, session_user),
        paused_reason = p_reason
    where s.key = p_key;
    perform touch_limit(p_key);
    perform record_action('pause', p_key, p_by, p_reason, jsonb_build_object('paused', v_before),
                          jsonb_build_object('paused', true, 'until', v_now + p_for));
    return not v_before;
end $$;

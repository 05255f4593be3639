-- Closes a key's breaker by hand and forgets its failures, as a probe that succeeded would. Answers whether it was open or
-- half open.
-- Called by: operators, who know that the other side works again.
-- Locks: the key's limits row.
-- Wakes: all workers, if something was to be forgotten.
create or replace function reset_breaker(p_key text) returns boolean
language plpgsql security definer
set search_path from current
as $$
declare
    v_until timestamptz;
begin
    select m.open_until into v_until from limits m
    where m.key = p_key and (m.open_until is not null or m.failure_streak > 0) for update;
    if not found then
        return false;
    end if;
    update limits m set open_until = null, opens = 0, failure_streak = 0, probe = null where m.key = p_key;
    perform tell_workers('limits');
    return v_until is not null;
end $$;

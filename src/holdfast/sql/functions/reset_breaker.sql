-- Closes a key's breaker by hand and forgets its failures, as a probe that succeeded would. Answers whether it was open or
-- half open.
-- Called by: operators, who know that the other side works again.
-- Locks: none.
-- Wakes: all workers, if something was to be forgotten.
create or replace function reset_breaker(p_key text) returns boolean
language plpgsql security definer
set search_path from current
as $$
declare
    v_until timestamptz;
begin
    select m.open_until into v_until from limit_use m where m.key = p_key and (m.open_until is not null or m.failure_streak > 0);
    if not found then
        return false;
    end if;
    insert into releases (ended) values (array[(p_key, 0, 0, 0, 2)::released]);  -- the next claim forgets them
    perform tell_workers('limits');
    return v_until is not null;
end $$;

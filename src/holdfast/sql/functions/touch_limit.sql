-- Tells the ring that a key's limits have changed: lanes that wait for it are looked at again by the next claim. Null: those of all keys.
-- Called by: what changes limits and pauses.
-- Locks: none.
-- Wakes: all workers.
create or replace function touch_limit(p_key text) returns void
language plpgsql
set search_path from current
as $$
begin
    if p_key is null then
        insert into reopenings values ('');
    else
        insert into releases (ended) values (array[(p_key, 0, 0, 0, null)::released]);
    end if;
    perform tell_workers('limits');
end $$;

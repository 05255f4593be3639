-- Records that a key's limits have changed, so that the next claim checks the lanes that wait for it. Null: the lanes of all
-- keys.
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

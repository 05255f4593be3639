-- Record that a key's limits have changed, so that the next claim checks the lanes that wait for it; null: those of
-- all keys. p_probe 2 resets its breaker. Remove the key's settings if operators have set nothing any more.
-- Locks: the key's limit_settings row. Wakes: all workers.
create or replace function touch_limit(p_key text, p_probe integer default null) returns void
language plpgsql set search_path from current as $$
begin
    delete from limit_settings s where s.key = p_key and s.override = '{}' and not s.paused;
    if p_key is null then
        insert into reopenings values ('');
    else
        insert into releases (ended) values (array[(p_key, 0, 0, 0, p_probe)::released]);
    end if;
    perform pg_notify(current_schema() || '_wake', w.id || ' limits') from workers w;
end $$;

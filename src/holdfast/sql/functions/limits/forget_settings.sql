-- Removes the settings of a key for which operators have set nothing any more.
-- Locks: the row.
create or replace function forget_settings(p_key text) returns void
language plpgsql
set search_path from current
as $$
begin
    delete from limit_settings s where s.key = p_key and s.override = '{}' and not s.paused;
end $$;

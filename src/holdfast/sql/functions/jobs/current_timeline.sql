-- Return the number of the server's timeline, which each promotion increases: the first eight digits of the name of
-- every WAL file. Null where the server does not report it, as some managed services with their own storage.
create or replace function current_timeline() returns integer language plpgsql stable set search_path from current as $$
begin
    return ('x' || left(pg_walfile_name('0/1'), 8))::bit(32)::integer;
exception when feature_not_supported or undefined_function or insufficient_privilege then
    return null;
end $$;

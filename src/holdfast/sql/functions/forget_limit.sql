-- Removes the row of a key of which nobody has said anything, under which nothing runs, and which was made for that alone: of a
-- queue, a task or a tenant. Rows of those concern every claim.
-- Called by: resume, clear_limit.
-- Locks: the row.
-- Wakes: nobody.
create or replace function forget_limit(p_key text) returns void
language plpgsql
set search_path from current set jit = off
as $$
begin
    perform 1 from limits m where m.key = p_key for update;
    delete from limits m
    where m.key = p_key and m.kind <> 'key' and m.template is null and m.override = '{}' and not m.paused and m.running = 0
      and not exists (select 1 from limit_owed o where o.key = p_key);
end $$;

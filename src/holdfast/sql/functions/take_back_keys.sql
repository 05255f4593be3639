-- Gives dedupe keys of scope "queued" back to jobs that were claimed and not run: their claim gave them up as if they had started.
-- A key that a newer job has by now stays with it.
-- Called by: settle, for jobs that were released.
-- Locks: inserts the keys' rows, in key order. It does not wait for an open transaction that takes the same key: that one gets it.
-- Wakes: nobody.
create or replace function take_back_keys(p_keys text[], p_ids uuid[]) returns void
language plpgsql
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off set lock_timeout = '1ms'
as $$
declare
    v_each record;
begin
    for v_each in
        select g.key, g.id from unnest(p_keys, p_ids) as g(key, id)
        where not exists (select 1 from dedupe d where d.key = g.key) order by g.key
    loop
        begin
            insert into dedupe (key, id, scope) values (v_each.key, v_each.id, 'queued') on conflict do nothing;
        exception when lock_not_available then
            null;
        end;
    end loop;
end $$;

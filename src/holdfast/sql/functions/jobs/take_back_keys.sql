-- Restore dedupe keys of scope "queued" to released jobs: the claim had released them as if the jobs had started. A
-- key that a newer job holds by now stays with it.
-- Locks: inserts the keys' rows, or takes those that have expired, in key order. It does not wait for an open
--   transaction that takes the same key: that one gets it.
create or replace function take_back_keys(p_keys text[], p_ids uuid[]) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set lock_timeout = '1ms' as $$
declare
    v_each record; v_now timestamptz := clock();
begin
    for v_each in select g.key, g.id from unnest(p_keys, p_ids) as g(key, id)
        where not exists (select 1 from dedupe d where d.key = g.key and (d.expires_at is null or d.expires_at > v_now))
        order by g.key
    loop
        begin
            insert into dedupe as d (key, id, scope) values (v_each.key, v_each.id, 'queued')
            on conflict (key) do update set id = excluded.id, scope = excluded.scope, keep = null, expires_at = null
                where d.expires_at <= v_now;
        exception when lock_not_available then
            null;
        end;
    end loop;
end $$;

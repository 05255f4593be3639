-- Release the dedupe keys of jobs that ended; after a success, a key of scope "success" is kept for its period.
-- Locks: dedupe rows in key order, after the jobs' rows.
create or replace function free_dedupe_keys(p_keys text[], p_ids uuid[], p_succeeded boolean) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    if p_succeeded then
        update dedupe d set expires_at = clock() + d.keep
        where d.key = any (p_keys) and d.id = any (p_ids) and d.scope = 'success' and d.keep is not null;
    end if;
    delete from dedupe d
    where d.key = any (p_keys) and d.id = any (p_ids) and not (p_succeeded and d.scope = 'success');
end $$;

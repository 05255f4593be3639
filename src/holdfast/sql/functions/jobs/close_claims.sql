-- Remove claims that hold no jobs any more.
-- Locks: claims, skipping locked ones: finish holds live rows here, and reclaim locks claims before live rows. A
--   skipped claim is removed by reclaim once it has expired.
create or replace function close_claims(p_tokens bigint[]) returns void
language sql set search_path from current set jit = off set enable_seqscan = off as $$
    delete from claims where token in (
        select c.token from claims c
        where c.token = any (p_tokens)
          and not exists (select 1 from live l where l.id = any (c.ids) and l.token = c.token)
        for update skip locked)
$$;

-- Removes claims none of whose jobs are held any more.
-- Called by: finish, reclaim, after they have moved jobs.
-- Locks: claims, skipping locked ones: finish holds live rows here, and reclaim takes the two in the other order. What is skipped
--   is closed by reclaim when it has expired.
-- Wakes: nobody.
create or replace function close_claims(p_tokens bigint[]) returns void
language sql
set search_path from current set jit = off set enable_seqscan = off
as $$
    delete from claims where token in (
        select c.token from claims c
        where c.token = any (p_tokens)
          and not exists (select 1 from live l where l.id = any (c.ids) and l.token = c.token)
        for update skip locked)
$$;

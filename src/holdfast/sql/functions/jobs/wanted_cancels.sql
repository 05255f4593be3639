-- Return the jobs of these claims that have a cancel request. Workers call it every few seconds, because the
-- notification that cancel sends may be lost.
create or replace function wanted_cancels(p_tokens bigint[]) returns setof uuid
language sql security definer set search_path from current set jit = off set enable_seqscan = off as $$
    select id from cancels where token = any (p_tokens)
$$;

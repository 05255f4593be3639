-- Which jobs of these claims somebody wants canceled.
-- Called by: workers, every few seconds: the notification that cancel sends may be lost.
-- Locks: none.
-- Wakes: nobody.
create or replace function wanted_cancels(p_tokens bigint[]) returns setof uuid
language sql security definer
set search_path from current set jit = off set enable_seqscan = off
as $$
    select id from cancels where token = any (p_tokens)
$$;

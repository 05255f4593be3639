-- Remove the steps of jobs that no longer exist in any table; those of others are looked at again after a day. Return
-- the number of jobs it looked at.
-- Locks: rows of steps, skipping locked ones.
create or replace function prune_steps(p_limit integer) returns integer
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_due uuid[]; v_gone uuid[];
begin
    v_due := array(select s.job from steps s where s.check_at <= clock() order by s.check_at limit p_limit for update skip locked);
    if v_due = '{}' then return 0; end if;
    v_gone := array(select d from unnest(v_due) d where times_accepted(d) = 0);
    delete from steps where job = any (v_gone);
    delete from follows where follower = any (v_gone);
    update steps set check_at = clock() + interval '1 day' where job = any (v_due) and check_at is not null;
    return cardinality(v_due);
end $$;

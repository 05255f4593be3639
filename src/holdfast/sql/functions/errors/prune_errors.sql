-- Remove the hourly counts of groups after 48 hours, and groups without a failure since p_oldest and without a dead
-- job; a group "other" has no jobs of its own fingerprint, so its count of dead jobs decides. Return how many rows
-- it removed.
-- Locks: the lock of error groups, without which it does nothing.
create or replace function prune_errors(p_limit integer, p_oldest timestamptz) returns integer
language plpgsql set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_counts integer; v_groups integer;
begin
    if not lock_errors() then return 0; end if;
    perform fold_errors();
    delete from error_counts where ctid = any (array(
        select c.ctid from error_counts c where c.hour < clock() - interval '48 hours' order by c.hour limit p_limit));
    get diagnostics v_counts = row_count;
    delete from error_groups where ctid = any (array(
        select g.ctid from error_groups g where g.last_at < p_oldest and (g.dead = 0 or g.fingerprint <> other_errors(g.task))
            and not exists (select 1 from dead d where d.fingerprint = g.fingerprint) limit p_limit));
    get diagnostics v_groups = row_count;
    return v_counts + v_groups;
end $$;

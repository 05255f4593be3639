-- Takes jobs that have ended out of their limits and moves the limits' breakers on. Of what ended together, successes count
-- before failures: a streak is never shorter than it was.
-- Called by: release_limits, take_owed, which hold the rows.
-- Locks: none of its own.
-- Wakes: nobody.
create or replace function count_ended(p_ended limit_owed[]) returns void
language plpgsql
set search_path from current set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
    update limits m set
        running = m.running - cardinality(e.ids),
        last_success_at = case when e.well <> '{}' then clock() else m.last_success_at end,
        last_failure_at = case when e.ill <> '{}' then clock() else m.last_failure_at end,
        failure_streak = cardinality(e.ill)
            + case when e.well <> '{}' and (m.open_until is null or m.probe = any (e.well)) then 0 else m.failure_streak end,
        -- While the breaker is open only its probe can close it, or open it for longer.
        open_until = case
            when m.open_until is null then
                case when cardinality(e.ill) + case when e.well <> '{}' then 0 else m.failure_streak end >= m.breaker_after
                     then clock() + make_interval(secs => m.breaker_pause) end
            when m.probe = any (e.well) then null
            when m.probe = any (e.ill) then clock() + make_interval(secs => least(
                m.breaker_pause * 2 ^ least(m.opens, 30), greatest(m.breaker_cap, m.breaker_pause)))
            else m.open_until end,
        opens = case
            when m.open_until is null then
                case when cardinality(e.ill) + case when e.well <> '{}' then 0 else m.failure_streak end >= m.breaker_after
                     then 1 else m.opens end
            when m.probe = any (e.well) then 0
            when m.probe = any (e.ill) then m.opens + 1
            else m.opens end,
        probe = case when m.probe = any (e.ids) then null else m.probe end
    from unnest(p_ended) e where m.key = e.key;
end $$;

-- Removes what limits leave behind: rows of keys that nobody has used for a day (orders: an hour), and counts of work stepped over
-- that are older than p_oldest. A row goes only when a new one would say the same: nothing is counted, paused or set by an operator,
-- the rate's bucket is full again, and the breaker is closed without a failure (after a week of silence: however it stands). What
-- ended jobs still owe is taken into account first. Answers how many rows it removed.
-- Called by: prune.
-- Locks: limits and throttled rows, skipping locked ones: it waits for nobody. A claim that meets a row which it is removing takes
--   it for held and comes back; one that finds none makes it again (decision 029).
-- Wakes: nobody.
create or replace function prune_limits(p_limit integer, p_oldest timestamptz) returns integer
language plpgsql
set search_path from current set jit = off
as $$
declare
    -- A part of the pages, if there are many: those of a million keys are not to be read every minute.
    v_keys  real := least(100, 100 * 500.0 / greatest(pg_relation_size('limits') / 8192, 1));
    v_steps real := least(100, 100 * 500.0 / greatest(pg_relation_size('throttled') / 8192, 1));
    v_now   timestamptz := clock();
    v_gone  integer;
    v_rows  integer;
begin
    if exists (select 1 from limit_owed) then
        perform take_owed(array(
            select m.key from limits m where m.key = any (array(select distinct o.key from limit_owed o limit p_limit))
            for update skip locked));
    end if;
    delete from limits where ctid = any (array(
        select m.ctid from limits m tablesample system (v_keys)
        where m.running = 0 and m.override = '{}' and m.weight is null and (not m.paused or m.paused_until < v_now - interval '1 day')
          and greatest(m.created_at, m.last_success_at, m.last_failure_at,
                       case when m.rate is not null then m.tokens_at end)
              < v_now - case when m.key like 'order:%' then interval '1 hour' else interval '1 day' end
          and (m.rate is null or m.tokens + extract(epoch from v_now - m.tokens_at) * m.rate / m.per >= m.burst)
          and (m.breaker_after is null or m.failure_streak = 0 and m.open_until is null
               or greatest(m.last_failure_at, m.open_until) < v_now - interval '7 days')
          and not exists (select 1 from limit_owed o where o.key = m.key)
        limit p_limit for update of m skip locked));
    get diagnostics v_gone = row_count;
    delete from throttled where ctid = any (array(
        select t.ctid from throttled t tablesample system (v_steps)
        where t.last_at < p_oldest limit p_limit for update skip locked));
    get diagnostics v_rows = row_count;
    return v_gone + v_rows;
end $$;

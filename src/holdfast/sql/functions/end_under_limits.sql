-- Takes jobs that have ended out of their limits' counts and moves the limits' breakers on. Of what ended together, successes count before
-- failures: a streak is never shorter than it was. What ended before counts before.
-- Called by: fold_releases, which holds the ring's lock.
-- Locks: none of its own.
-- Wakes: nobody.
create or replace function end_under_limits(p_ended releases[]) returns void
language plpgsql
set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    v_round releases[];
    v_now   timestamptz := clock();
begin
    if not exists (select 1 from limit_rules r where r.breaker_after is not null) and not exists (select 1 from limit_settings s where s.breaker_after is not null)
       and not exists (select 1 from unnest(p_ended) e where e.probe is not null) then  -- no key has a breaker, and the order does not count
        update limits m set
            running = m.running - e.jobs,
            last_success_at = case when e.good > 0 then v_now else m.last_success_at end,
            last_failure_at = case when e.bad > 0 then v_now else m.last_failure_at end,
            failure_streak = e.bad + case when e.good > 0 then 0 else m.failure_streak end, open_until = null, probe = null
        from (select e.key, sum(e.jobs) as jobs, sum(e.good) as good, sum(e.bad) as bad from unnest(p_ended) e where e.jobs <> 0 group by e.key) e
        where m.key = e.key;
        return;
    end if;
    for v_round in  -- one row of a key at a time where the order counts, else all at once
        select array_agg(r.ended) from (
            select e as ended, case when s.breaker_after is null then 0 else row_number() over (partition by e.key order by e.id) end as turn
            from unnest(p_ended) e left join lateral (
                select s.breaker_after from limit_state s where s.key = e.key offset 0) s on true
            where e.jobs <> 0 or e.probe = 2) r
        group by r.turn order by r.turn
    loop
        update limits m set
            running = m.running - e.jobs,
            last_success_at = case when e.good > 0 then v_now else m.last_success_at end,
            last_failure_at = case when e.bad > 0 then v_now else m.last_failure_at end,
            failure_streak = case when e.resets then 0 else b.streak end,
            -- While the breaker is open only its probe can close it, or open it for longer.
            open_until = case
                when e.resets or b.breaker_after is null then null
                when m.open_until is null then case when b.streak >= b.breaker_after then v_now + make_interval(secs => b.breaker_pause) end
                when e.probe = 1 then null
                when e.probe = -1 then v_now + make_interval(secs => least(
                    b.breaker_pause * 2 ^ least(m.opens, 30), greatest(b.breaker_cap, b.breaker_pause)))
                else m.open_until end,
            opens = case
                when e.resets then 0
                when m.open_until is null then case when b.streak >= b.breaker_after then 1 else m.opens end
                when e.probe = 1 then 0
                when e.probe = -1 then m.opens + 1
                else m.opens end,
            probe = case when e.probe is not null or b.breaker_after is null then null else m.probe end
        from (select e.key, sum(e.jobs) as jobs, sum(e.good) as good, sum(e.bad) as bad, min(e.probe) as probe,
                     coalesce(bool_or(e.probe = 2), false) as resets
              from unnest(v_round) e group by e.key) e
        cross join lateral (
            select s.breaker_after, s.breaker_pause, s.breaker_cap,
                   e.bad + case when e.good > 0 and (s.open_until is null or e.probe = 1) then 0 else s.failure_streak end as streak
            from limit_state s where s.key = e.key offset 0) b
        where m.key = e.key;
    end loop;
end $$;

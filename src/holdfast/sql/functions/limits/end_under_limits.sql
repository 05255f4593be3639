-- Subtract ended jobs from the counts of their limits and advance breakers. Within one release successes count before
-- failures, so a streak is never too short. Releases count in order. Record the breakers that open or close. The caller
-- holds the ring's lock.
create or replace function end_under_limits(p_ended released[]) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    v_now timestamptz := clock();
    v_rules text[] := array(select r.template from limit_rules r where r.breaker_after is not null);
    v_keys text[] := array(select s.key from limit_settings s where s.breaker_after is not null); v_done text[];
    v_round released[]; v_changes breaker_change[];
begin
    with done as (  -- keys without a breaker, where the order does not count
        update limits m set running = m.running - e.jobs,
            last_success_at = case when e.good > 0 then v_now else m.last_success_at end,
            last_failure_at = case when e.bad > 0 then v_now else m.last_failure_at end,
            failure_streak = e.bad + case when e.good > 0 then 0 else m.failure_streak end, open_until = null, probe = null
        from (select e.key, sum(e.jobs) as jobs, sum(e.good) as good, sum(e.bad) as bad, count(e.probe) as probes from unnest(p_ended) e group by e.key) e
        where m.key = e.key and e.jobs <> 0 and e.probes = 0 and m.version = (select coalesce(max(r.version), 0) from limit_rules r)
          and (m.template is null or m.template <> all (v_rules)) and m.key <> all (v_keys)
        returning m.key)
    select array_agg(d.key) into v_done from done d;
    for v_round in  -- one row of a key at a time where the order counts, else all at once
        select array_agg(r.ended) from (
            select (e.key, e.jobs, e.good, e.bad, e.probe)::released as ended,
                   case when s.breaker_after is null then 0 else row_number() over (partition by e.key order by e.nth) end as turn
            from (select e.* from unnest(p_ended) with ordinality as e(key, jobs, good, bad, probe, nth)
                  where (e.jobs <> 0 or e.probe = 2) and e.key not in (select unnest(v_done))) e
            left join lateral (select s.breaker_after from limit_state s where s.key = e.key offset 0) s on true) r
        group by r.turn order by r.turn
    loop
        with changed as (
        update limits m set running = m.running - e.jobs,
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
                   e.bad + case when e.good > 0 and (s.open_until is null or e.probe = 1) then 0 else s.failure_streak end as streak,
                   s.open_until as was_until, s.failure_streak as was_streak
            from limit_state s where s.key = e.key offset 0) b
        where m.key = e.key
        returning m.key, m.open_until, m.failure_streak, b.was_until, b.was_streak, e.resets)
        select array_agg((c.key, case when c.was_until is null then 'opened' when c.open_until is null then 'closed' else 'reopened' end,
                          case when c.open_until is null then c.was_streak else c.failure_streak end, c.open_until)::breaker_change)
        into v_changes from changed c
        where c.open_until is distinct from c.was_until and not c.resets;  -- reset_breaker has recorded its own
        if v_changes is not null then perform record_breakers(v_changes); end if;
    end loop;
end $$;

-- Decides which of the found jobs their limits let start now, and counts them in. p_free is the most jobs
-- under a rate or a breaker that may be taken: those that can start at once. Answers with those taken, how many they are, on how many keys somebody else was working,
-- and the lanes that must wait: [lane, key, tenant, seconds until it is worth another look; null when only the end of a job or a
-- person can tell]. Jobs refused because of their task are set aside: others of their lane may be of another task, so they are to
-- move to a lane of their own, once, and not be met again by every claim. So are those of a tenant that wait in a lane without one.
-- Called by: claim, which holds the jobs' rows.
-- Locks: limits rows, skipping locked ones: a claim never waits here. Rows of new keys are made in key order.
-- Wakes: nobody.
create or replace function admit(
    p_found candidate[], p_queue text, p_free integer,
    out taken candidate[], out limited integer, out contention integer, out aside candidate[], out closed jsonb)
language plpgsql
set search_path from current set enable_hashjoin = on
as $$
declare
    v_implicit text[];
    v_jobs     bigint[];
    v_keys     text[];
    v_need     text[];
    v_new      text[];
    v_locked   text[];
    v_ordered  boolean;
    v_late     bigint[] := '{}';
begin
    if exists (select 1 from limits m where m.kind <> 'key') then
        v_implicit := array(
            select m.key from limits m where m.key = any (array(
                select distinct k from unnest(p_found) f, unnest(implicit_keys(p_queue, f.task, f.tenant)) k))
              -- one that has a weight alone limits nothing, and need not be counted
              and (m.concurrency is not null or m.rate is not null or m.breaker_after is not null or m.paused));
    end if;
    if v_implicit <> '{}' then
        select array_agg(p.n), array_agg(p.key), array_agg(distinct p.key), bool_or(p.key like 'order:%')
        into v_jobs, v_keys, v_need, v_ordered from (
            select f.ordinality as n, k as key from unnest(p_found) with ordinality f, unnest(f.keys) k
            union
            select f.ordinality, k
            from unnest(p_found) with ordinality f, unnest(implicit_keys(p_queue, f.task, f.tenant)) k
            where k = any (v_implicit)) p;
    else
        select array_agg(f.ordinality), array_agg(k), array_agg(distinct k), bool_or(k like 'order:%')
        into v_jobs, v_keys, v_need, v_ordered
        from unnest(p_found) with ordinality f, unnest(f.keys) k;
    end if;
    contention := 0;
    limited := 0;
    if v_keys is null then
        taken := p_found;
        return;
    end if;
    v_locked := array(select m.key from limits m where m.key = any (v_need) for update skip locked);
    if cardinality(v_locked) < cardinality(v_need) then
        -- Rows that another claim is making at this moment are not waited for: it may be waiting for ours. One of a few locks
        -- stands for each key, so that a claim of many new ones takes few.
        v_new := array(
            select n.key from (select unnest(v_need) as key except select m.key from limits m where m.key = any (v_need)) n
            where pg_try_advisory_xact_lock(hashtext('limits of ' || current_schema()), hashtext(n.key) & 63));
        v_new := array(select unnest(v_new) except select m.key from limits m where m.key = any (v_need));
        if v_new <> '{}' then
            perform apply_limits(v_new);
            v_locked := array(select m.key from limits m where m.key = any (v_need) for update skip locked);
        end if;
    end if;
    if exists (select 1 from limit_owed) then
        perform take_owed(v_locked);
    end if;
    if v_ordered then
        -- Only the first of an order. Whoever is about to claim it may have it locked, so that we did not find it; while we
        -- have the limit, it cannot be counted in.
        v_late := array(
            select f.ordinality from unnest(p_found) with ordinality f
            cross join lateral orders_of(f.keys) o
            where o <> '{}' and exists (
                select 1 from live l
                where l.queue = p_queue and l.priority = any ('{0,1,2,3}') and l.lane = f.lane and (l.run_at, l.id) < (f.run_at, f.id)
                  and l.token is null and l.keys && o and (l.deadline is null or l.deadline > clock())));
    end if;
    with pairs as materialized (select * from unnest(v_jobs, v_keys) as p(n, key)),
    state as materialized (
        select s.key, s.room, s.wait, s.free_tokens, s.rate, s.per, s.concurrency - s.running as places, s.open_until,
               s.rate is not null or s.breaker_after is not null as strict
        from limit_state s where s.key = any (v_locked)),
    hopeful as materialized (
        select h.n, h.strict from (
            select h.*, count(*) filter (where h.strict) over (order by h.n) as ahead from (
                select p.n, bool_or(s.strict) as strict from pairs p left join state s on s.key = p.key
                group by p.n having bool_and(coalesce(s.room, 0) > 0) and p.n <> all (v_late)) h) h
        where not h.strict or h.ahead <= p_free),
    ok as materialized (
        select r.n from (
            select p.n, s.room >= row_number() over (partition by p.key order by p.n) as fits
            from pairs p join hopeful h on h.n = p.n join state s on s.key = p.key) r
        group by r.n having bool_and(r.fits)),
    used as materialized (
        select s.key, u.jobs, s.rate, s.free_tokens,
               -- as limit_state tells it, once these have been counted
               case when u.jobs < coalesce(s.places, u.jobs + 1) and s.open_until is null
                    then greatest(0, (1 - s.free_tokens + u.jobs) * s.per / s.rate) end as wait, case when s.open_until is not null then (p_found[u.first]).id end as probe
        from (select p.key, count(*) as jobs, min(p.n) as first from pairs p join ok on ok.n = p.n group by p.key) u
        join state s on s.key = u.key),
    counted as (
        update limits m set
            running = m.running + u.jobs,
            tokens = case when u.rate is null then m.tokens else u.free_tokens - u.jobs end,
            -- never back: a claim that began earlier may count later, and would earn the same time twice
            tokens_at = case when u.rate is null then m.tokens_at else greatest(m.tokens_at, clock()) end,
            probe = coalesce(u.probe, m.probe)
        from used u where m.key = u.key),
    job as materialized (
        select f.*, p.n is not null as keyed, ok.n is not null as admitted
        from unnest(p_found) with ordinality f
        left join (select distinct n from pairs) p on p.n = f.ordinality
        left join ok on ok.n = f.ordinality),
    -- Why a job that was not taken must wait: the key that has no room left, the longest wait first.
    refused as materialized (
        select distinct on (j.ordinality) j.*, p.key, w.wait, case
                   when p.key = 'task:' || j.task and p.key <> all (coalesce(j.keys, '{}'))
                   then lane_of(j.tenant, coalesce(j.keys, '{}') || p.key)
                   -- from a client that knows of no lanes
                   when p.key = 'tenant:' || j.tenant and j.lane >> 32 = 0 then lane_of(j.tenant, j.keys)
                   else j.lane end as own
        from job j join pairs p on p.n = j.ordinality join state s on s.key = p.key left join used u on u.key = p.key
        cross join lateral (select case when u.key is null then s.wait else u.wait end as wait) w
        where not j.admitted and s.room - coalesce(u.jobs, 0) <= 0
        order by j.ordinality, w.wait desc nulls first)
    select (select array_agg((j.place, j.id, j.lane, j.run_at, j.tenant, j.task, j.keys, j.dedupe_key,
                              case when v_implicit <> '{}' then nullif(j.held || array(
                                  select k from unnest(implicit_keys(p_queue, j.task, j.tenant)) k
                                  where k = any (v_implicit) and k <> all (coalesce(j.keys, '{}'))), '{}')
                                  else j.held end)::candidate
                             order by j.ordinality)
            from job j where j.admitted or not j.keyed),
           (select count(*) from ok join hopeful h on h.n = ok.n where h.strict),
           (select array_agg((r.place, r.id, r.own, r.run_at, r.tenant, r.task, r.keys, r.dedupe_key, null)::candidate)
            from refused r where r.own <> r.lane),
           (select jsonb_agg(jsonb_build_array(r.own, r.key, r.tenant, r.wait)) from (
                select distinct on (r.own) r.* from refused r order by r.own, r.wait desc nulls first) r)
    into taken, limited, aside, closed;
    contention := cardinality(v_need) - cardinality(v_locked) + least(cardinality(v_late), 1);
end $$;

-- Claim up to p_limit due jobs of the given queues under one new token. Order: priority; tenants in turn; run_at and id
-- within a tenant. Jobs whose limits have no room are skipped. docs/how-claiming-works.md explains the algorithm.
-- Parameters: p_after is the caller's cursor: for each "queue/priority" the [run_at as epoch, id] of the last plain job
--   it claimed. A scan that starts there avoids dead index entries, which a long transaction elsewhere keeps alive.
--   Jobs that commit behind the cursor are found by a claim without one. p_free limits jobs under a rate or breaker,
--   which start when they are claimed, to the free slots. p_direct claims only such jobs, for slots reserved for them.
--   p_per_tenant caps the jobs of one tenant, including those that p_served counts.
-- Returns: the jobs. With p_free, the first row carries `info`: rings in which jobs under a rate or breaker wait for a
--   slot ("waiting"), the ids of those claimed ("started"), lanes that were closed ("closed"), whether a whole queue
--   has a limit ("limited"), whether another claim held the ring ("busy"), whether another claim would find more
--   ("more"). Where there are only plain jobs, and fewer than p_limit, "due" has the seconds until the next delayed
--   job, as sleep() returns them. An empty claim returns one row with info only.
-- Locks: the ring, if jobs have tenants or limits; live rows in fetch order with SKIP LOCKED; a new claims row; dedupe
--   keys of scope "queued".
-- Wakes: other sleepers, if this worker slept (p_asleep) and the claim is full.
create or replace function claim(p_worker text, p_queues text[] default '{default}', p_limit integer default 1,
    p_ttl interval default '60 seconds', p_after jsonb default null, p_asleep boolean default false,
    p_free integer default null, p_per_tenant integer default null, p_served jsonb default null,
    p_direct boolean default false) returns table (id uuid, token bigint, task task_name, payload json,
    attempt smallint, max_attempts attempt_limit, queue queue_name, priority priority_level, tenant tenant_name,
    run_at timestamptz, created_at timestamptz, dedupe_key text, batch uuid, headers json, lane bigint, keys limit_keys,
    info json)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set plan_cache_mode = force_generic_plan as $$
declare
    v_now timestamptz := clock(); v_info json;
    v_next timestamptz;  -- when the next delayed job is due, or has just become due
    v_token bigint; v_places tid[]; v_ids uuid[]; v_held text[] := '{}'; v_deduped integer;
begin
    if p_limit is null or p_limit < 1 or p_ttl is null or p_ttl <= interval '0' then
        raise exception 'claim needs a limit and a lease above zero, got % and %', p_limit, p_ttl
            using errcode = 'invalid_parameter_value';
    end if;
    if p_queues is null or array_position(p_queues, null) is not null then
        raise exception 'claim needs the names of queues, got %', p_queues using errcode = 'invalid_parameter_value';
    end if;
    v_next := (select t.run_at from later t where t.run_at >= v_now - interval '10 seconds' order by t.run_at limit 1);
    -- Most queues have plain jobs only. One statement finds them: each further one would cost a single job 5 to 20 us.
    if p_direct or p_per_tenant is not null or v_next <= v_now or (
           exists (select 1 from rings r where r.queue = any (p_queues))
           or exists (select 1 from arrivals a where a.queue = any (p_queues))
           or exists (select 1 from limit_settings s where s.kind in ('queue', 'task'))
           or exists (select 1 from limits m where m.kind in ('queue', 'task'))) then
        select (c.p_claim).token, (c.p_claim).places, (c.p_claim).ids, (c.p_claim).held, (c.p_claim).deduped, c.p_info
        into v_token, v_places, v_ids, v_held, v_deduped, v_info
        from claim_rings(p_queues, p_limit, p_after, p_free, p_per_tenant, p_served, p_direct,
                         not p_direct and coalesce(v_next <= v_now, false)) c;
    else
        select coalesce(array_agg(d.place), '{}'), coalesce(array_agg(d.id), '{}'), count(d.dedupe_key)
        into v_places, v_ids, v_deduped from (
            select f.* from (
                select q.queue, p.priority,
                       coalesce(to_timestamp((p_after #>> array[q.queue || '/' || p.priority, '0'])::double precision), '-infinity') as mark_at,
                       coalesce((p_after #>> array[q.queue || '/' || p.priority, '1'])::uuid, '00000000-0000-0000-0000-000000000000') as mark_id
                from (select n.queue, min(n.place) as place from unnest(p_queues) with ordinality as n(queue, place) group by n.queue) q
                cross join generate_series(0, 3) as p(priority)
                order by p.priority, q.place offset 0) v
            cross join lateral (
                select j.ctid as place, j.id, j.dedupe_key from live j
                where j.queue = v.queue and j.priority = v.priority and j.lane = 0 and (j.run_at, j.id) > (v.mark_at, v.mark_id)
                  and j.token is null and (j.deadline is null or j.deadline > v_now)
                order by j.queue, j.priority, j.lane, j.run_at, j.id limit p_limit for update skip locked) f
            limit p_limit) d;
        if p_free is not null then
            v_info := '{"waiting": 0, "started": [], "closed": 0, "limited": false, "busy": false, "more": false'
                || case when cardinality(v_ids) = p_limit then '' when v_next is null then ', "due": null'
                   else ', "due": ' || date_part('epoch', least(v_next, v_now + interval '10 years') - v_now) end || '}';
        end if;
    end if;
    if v_ids = '{}' then
        if p_free is not null then
            info := v_info;
            return next;
        end if;
        return;
    end if;
    v_token := coalesce(v_token, next_token());
    insert into claims (token, worker, claimed_at, heartbeat_at, expires_at, ids)
    values (v_token, p_worker, v_now, v_now, v_now + p_ttl, v_ids);
    if p_asleep then
        delete from sleepers s where s.worker = p_worker;
        if cardinality(v_ids) >= p_limit then perform wake(q) from unnest(p_queues) q; end if;
    end if;
    if v_deduped > 0 then
        -- A key of scope "queued" is held only until the first start.
        delete from dedupe d where d.scope = 'queued' and d.id = any (v_ids) and d.key = any (array(
            select l.dedupe_key from live l where l.ctid = any (v_places) and l.dedupe_key is not null));
    end if;
    -- The rows are locked, so their ctid is valid: no index lookups, and the order in which they were found.
    return query
        update live l set token = v_token, claimed_at = v_now, attempt = l.attempt + 1, held = l.held || found.held::text[]
        from unnest(v_places, v_held) as found(place, held) where l.ctid = found.place
        returning l.id, l.token, l.task, l.payload::json, l.attempt, l.max_attempts, l.queue, l.priority, l.tenant, l.run_at,
                  l.created_at, l.dedupe_key, l.batch, l.headers, l.lane,
                  case when l.held is null then l.keys else nullif(l.keys || orders_of(l.held), '{}')::limit_keys end,
                  case when l.id = v_ids[1] then v_info end;
end $$;

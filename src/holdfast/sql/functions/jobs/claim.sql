-- Claim up to p_limit due jobs of the given queues under one new token. Order: priority; tenants in turn; run_at and id
-- within a tenant. Jobs whose limits have no room are skipped. docs/how-claiming-works.md explains the algorithm.
-- Locks: the ring, if jobs have tenants or limits; live rows in fetch order with SKIP LOCKED; a new claims row; dedupe
--   keys of scope "queued".
-- Wakes: other sleepers, if this worker slept (p_asleep) and the claim is full.
--
-- p_after is the caller's cursor: for each "queue/priority" the [run_at as epoch, id] of the last plain job it claimed.
-- A scan that starts there avoids dead index entries, which a long transaction elsewhere keeps alive. Jobs that commit
-- behind the cursor are found by a claim without one. p_free limits jobs under a rate or breaker, which start when they
-- are claimed, to the free slots. With it, the first row carries `info`: rings in which such jobs wait for a slot
-- ("waiting"), the ids of those claimed ("started"), lanes that were closed ("closed"), whether a whole queue has a
-- limit ("limited"), whether another claim held the ring ("busy"), whether another claim would find more ("more"). An
-- empty claim returns one row with info only. p_direct claims only jobs under a rate or breaker, for slots reserved for
-- them. p_per_tenant caps the jobs of one tenant, including those that p_served counts.
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
    v_now timestamptz := clock(); v_claim claim_state;
    v_special boolean;  -- whether queues, tasks or tenants have settings
    v_limited text[] := '{}';   -- keys of queues that have a limit
    v_ring boolean;  -- whether this claim is the ring's writer
    v_busy boolean := false;
    v_more boolean := false;  -- whether arrivals are left to fold
    v_promoted uuid[]; v_queue text; v_priority integer;
    v_lanes boolean;  -- whether this queue and priority has lanes
    v_part record; v_info json;
begin
    if p_limit is null or p_limit < 1 or p_ttl is null or p_ttl <= interval '0' then
        raise exception 'claim needs a limit and a lease above zero, got % and %', p_limit, p_ttl
            using errcode = 'invalid_parameter_value';
    end if;
    if p_queues is null or array_position(p_queues, null) is not null then
        raise exception 'claim needs the names of queues, got %', p_queues using errcode = 'invalid_parameter_value';
    end if;
    if not p_direct and exists (select 1 from later t where t.run_at <= v_now and t.run_at >= v_now - interval '10 seconds') then
        -- Promote jobs that have just become due: delayed jobs start on time.
        v_promoted := promote(greatest(p_limit, 100), interval '10 seconds');
    end if;
    v_special := exists (select 1 from limit_settings s where s.kind in ('queue', 'task'))
        or exists (select 1 from limits m where m.kind in ('queue', 'task', 'tenant')) or exists (select 1 from limit_settings s where s.weight is not null);
    if v_special then
        v_limited := array(
            (select s.key from limit_settings s where s.kind = 'queue' union select m.key from limits m where m.kind = 'queue')
            intersect select 'queue:' || q from unnest(p_queues) q);
    end if;
    v_ring := v_limited <> '{}' or ring_has_work(p_queues);
    if v_ring then
        v_ring := lock_ring();
        v_busy := not v_ring;
    end if;
    if v_ring then
        v_claim.token := next_token();  -- under the lock: later claims have higher tags
        perform fold_releases(v_claim.token);
        for v_fold in 1..case when p_per_tenant is null then 1 else 50 end loop  -- with a cap all tenants advance, however many arrivals there are
            v_more := (select coalesce(bool_or(fold_arrivals(q, v_claim.token)), false) from unnest(p_queues) q);
            exit when not v_more;
        end loop;
    end if;
    v_claim := (v_claim.token, p_limit, coalesce(p_free, p_limit), p_free is not null, p_direct, p_per_tenant, p_after, false, false, null, 0, null,
                case when p_per_tenant is not null then p_served end, '{}', '{}', '{}', 0, '{}', 0, false, v_more, false)::claim_state;
    if v_special or v_ring then  -- fold_releases may have made rows of tenants
        v_claim.tenants := exists (select 1 from limits m where m.kind = 'tenant');
        v_claim.weights := exists (select 1 from limit_settings s where s.weight is not null);
        v_claim.tasks := limited_tasks();
        v_claim.version := (select coalesce(max(r.version), 0) from limit_rules r);
    end if;
    -- Most queues and priorities are empty: one query finds those to visit.
    for v_queue, v_priority, v_lanes in select q.queue, p.priority, r.lanes
        from (select q.queue, min(q.place) as place from unnest(p_queues) with ordinality as q(queue, place) group by q.queue) q
        cross join generate_series(0, 3) as p(priority)
        cross join lateral (select v_ring and exists (select 1 from rings r where r.queue = q.queue and r.priority = p.priority) as lanes offset 0) r
        where r.lanes or (
            select true from live j
            where j.queue = q.queue and j.priority = p.priority and j.lane = 0 and (j.run_at, j.id) > (
                coalesce(to_timestamp((p_after #>> array[q.queue || '/' || p.priority, '0'])::double precision), '-infinity'),
                coalesce((p_after #>> array[q.queue || '/' || p.priority, '1'])::uuid, '00000000-0000-0000-0000-000000000000')) limit 1)
        order by p.priority, q.place
    loop
        exit when cardinality(v_claim.ids) >= p_limit or v_claim.cut;  -- lower priorities wait for the next claim
        v_claim.queue_key := (select k from unnest(v_limited) k where k = 'queue:' || v_queue);
        if v_lanes or v_ring and v_claim.queue_key is not null then
            v_claim := claim_ring(v_claim, v_queue, v_priority);
        elsif v_claim.queue_key is null and not p_direct then
            v_claim := claim_plain(v_claim, v_queue, v_priority);
        end if;
    end loop;
    if cardinality(v_claim.ids) < p_limit and v_promoted <> '{}' and v_limited = '{}' then  -- plain jobs may stand behind the caller's cursor
        select array_agg(j.place) as places, array_agg(j.id) as ids, count(j.dedupe_key) as deduped into v_part from (
            select l.ctid as place, l.id, l.dedupe_key from live l
            where l.id = any (v_promoted) and l.lane = 0 and l.queue = any (p_queues) and l.token is null and l.id <> all (v_claim.ids)
              and (v_claim.tasks is null or l.task <> all (v_claim.tasks)) and (l.deadline is null or l.deadline > clock())
            order by l.priority, l.run_at, l.id limit p_limit - cardinality(v_claim.ids) for update skip locked) j;
        v_claim := claim_found(v_claim, v_part.places, v_part.ids, null, v_part.deduped::integer, false);
    end if;
    if cardinality(v_claim.ids) < p_limit and v_claim.served is not null then
        v_claim.closed := v_claim.closed + note_capped(p_queues, p_served, v_claim);
    end if;
    if p_free is not null then
        v_info := json_build_object('waiting', case when v_ring then (  -- up to the priority of the last job claimed
            select count(*) from rings r cross join lateral (
                select 1 from flows s
                where s.queue = r.queue and s.priority = r.priority and s.direct and s.open and s.tag >= r.front and s.flow <> 0 limit 1) s
            where r.queue = any (p_queues) and r.priority <= v_priority and r.direct) + (
            select count(*) from unnest(v_limited) k cross join generate_series(0, v_priority) p
            where exists (select 1 from limit_state s where s.key = k and s.direct) and has_plain(v_claim, substr(k, 7), p) and not exists (
                select 1 from lanes l where l.queue = substr(k, 7) and l.priority = p and l.lane = 0 and l.closed_by is not null)) else 0 end,
            'started', v_claim.direct, 'closed', v_claim.closed, 'limited', v_limited <> '{}', 'busy', v_busy, 'more', v_claim.more);
        if v_claim.ids = '{}' then
            info := v_info;
            return next;
        end if;
    end if;
    if v_claim.ids = '{}' then return; end if;
    v_claim.token := coalesce(v_claim.token, next_token());
    insert into claims (token, worker, claimed_at, heartbeat_at, expires_at, ids)
    values (v_claim.token, p_worker, v_now, v_now, v_now + p_ttl, v_claim.ids);
    if p_asleep then
        delete from sleepers s where s.worker = p_worker;
        if cardinality(v_claim.ids) >= p_limit then perform wake(q) from unnest(p_queues) q; end if;
    end if;
    if v_claim.deduped > 0 then
        -- A key of scope "queued" is held only until the first start.
        delete from dedupe d where d.scope = 'queued' and d.id = any (v_claim.ids) and d.key = any (array(
            select l.dedupe_key from live l where l.ctid = any (v_claim.places) and l.dedupe_key is not null));
    end if;
    -- The rows are locked, so their ctid is valid: no index look-ups, and the order in which they were found.
    return query
        update live l set token = v_claim.token, claimed_at = v_now, attempt = l.attempt + 1, held = l.held || found.held::text[]
        from unnest(v_claim.places, v_claim.held) as found(place, held) where l.ctid = found.place
        returning l.id, l.token, l.task, l.payload::json, l.attempt, l.max_attempts, l.queue, l.priority, l.tenant, l.run_at,
                  l.created_at, l.dedupe_key, l.batch, l.headers, l.lane,
                  case when l.held is null then l.keys else nullif(l.keys || orders_of(l.held), '{}')::limit_keys end,
                  case when l.id = v_claim.ids[1] then v_info end;
end $$;

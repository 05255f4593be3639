-- Claims up to p_limit due jobs of the given queues under one new token: by priority; within one, tenants in turn; within a tenant's jobs in the order
-- run_at, id. Jobs whose limits have no room are stepped over. docs/how-claiming-works.md explains it.
-- Called by: workers, and any client in any language, as a statement of its own.
-- Locks: the ring's lock, where jobs have tenants or limits; live rows in fetch order, skipping locked ones; then a new claims row; then dedupe keys of
--   scope "queued".
-- Wakes: other sleepers, when this worker slept (p_asleep) and there was at least as much as it asked for.
--
-- p_after is the caller's cursor, a hint: for "queue/priority" [run_at as epoch, id] of the last plain job it claimed there. Starting after it spares
-- the scan the dead index entries of jobs already done, which a long transaction elsewhere keeps from being removed. Jobs that land behind the cursor
-- are found by the caller's next claim without one.
-- p_free is the most jobs under a rate or a breaker to take: those that can start at once. With it the first row has `info`: how many more such jobs
-- wait for slots ("waiting"), which of the jobs are such ("started"), how many lanes limits have closed ("closed"), whether another claim had the ring ("busy"), whether there may be more at once
-- ("more"); a claim without jobs is then one row that has nothing else.
-- p_direct takes only jobs under a rate or a breaker, for slots that were kept for them.
-- p_per_tenant is the most jobs of one tenant, counting what p_served says it had before.
create or replace function claim(
    p_worker text,
    p_queues text[] default '{default}',
    p_limit  integer default 1,
    p_ttl    interval default '60 seconds',
    p_after  jsonb default null,
    p_asleep boolean default false,
    p_free   integer default null,
    p_per_tenant integer default null,
    p_served jsonb default null,
    p_direct boolean default false
) returns table (
    id uuid, token bigint, task task_name, payload json, attempt smallint, max_attempts attempt_limit,
    queue queue_name, priority priority_level, tenant tenant_name, run_at timestamptz, created_at timestamptz,
    dedupe_key text, batch uuid, headers json, lane bigint, keys limit_keys, info json)
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
declare
    v_token    bigint;
    v_now      timestamptz := clock();
    v_room     integer := p_limit;
    v_free     integer := coalesce(p_free, p_limit);
    v_special  boolean;  -- whether anything is said of queues, tasks or tenants
    v_limited  text[] := '{}';   -- keys of queues that have a limit
    v_terms    claim_terms;
    v_ring     boolean;  -- whether this claim is the ring's writer
    v_busy     boolean := false;
    v_more     boolean := false;  -- whether there is more to fold
    v_waiting  integer;
    v_started  uuid[] := '{}';
    v_promoted uuid[];
    v_queue    text;
    v_priority integer;
    v_rings    boolean[];
    v_direct   boolean;
    v_part     found_jobs := ('{}', '{}', 0, '{}', 0, false, false);
    v_all      found_jobs := ('{}', '{}', 0, '{}', 0, false, false);
    v_got      integer;
    v_info     json;
begin
    if p_limit is null or p_limit < 1 or p_ttl is null or p_ttl <= interval '0' then
        raise exception 'claim needs a limit and a lease above zero, got % and %', p_limit, p_ttl
            using errcode = 'invalid_parameter_value';
    end if;
    if p_queues is null or array_position(p_queues, null) is not null then
        raise exception 'claim needs the names of queues, got %', p_queues using errcode = 'invalid_parameter_value';
    end if;
    if not p_direct and exists (select 1 from later t where t.run_at <= v_now and t.run_at >= v_now - interval '10 seconds') then
        -- What has just become due is taken here, not left for the leader: delayed jobs start on time.
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
        v_token := next_token();  -- under the lock: flows served later have higher tags
        perform fold_releases(v_token);
        for v_lap in 1..case when p_per_tenant is null then 1 else 50 end loop  -- in a pass all tenants are to advance, however much is new
            v_more := (select coalesce(bool_or(fold_arrivals(q, v_token)), false) from unnest(p_queues) q);
            exit when not v_more;
        end loop;
    end if;
    v_terms := (v_token, null, false, false, null, p_after, p_per_tenant, case when p_per_tenant is not null then p_served end, 0, '{}', v_free)::claim_terms;
    if v_special or v_ring then  -- fold_releases may have made rows of tenants
        v_terms.tenants := exists (select 1 from limits m where m.kind = 'tenant');
        v_terms.weights := exists (select 1 from limit_settings s where s.weight is not null);
        v_terms.tasks := limited_tasks();
        v_terms.version := (select coalesce(max(r.version), 0) from limit_rules r);
    end if;
    -- Most places are empty, and a worker looks at all of them: one query finds those to visit.
    for v_queue, v_priority in
        select q.queue, p.priority
        from (select q.queue, min(q.place) as place from unnest(p_queues) with ordinality as q(queue, place) group by q.queue) q, generate_series(0, 3) as p(priority)
        where v_ring or (
            select true from live j
            where j.queue = q.queue and j.priority = p.priority and j.lane = 0 and (j.run_at, j.id) > (
                coalesce(to_timestamp((p_after #>> array[q.queue || '/' || p.priority, '0'])::double precision), '-infinity'),
                coalesce((p_after #>> array[q.queue || '/' || p.priority, '1'])::uuid, '00000000-0000-0000-0000-000000000000')) limit 1)
        order by p.priority, q.place
    loop
        exit when v_room <= 0;
        v_terms.queue_key := case when v_limited <> '{}' then (select k from unnest(v_limited) k where k = 'queue:' || v_queue) end;
        continue when v_terms.queue_key is not null and not v_ring;
        -- What starts when it is claimed goes first: it can use free slots only. It goes again where lanes have moved there.
        v_rings := case when v_ring then open_rings(v_queue, v_priority) else '{}' end;
        v_rings := v_rings || case when false = any (v_rings) then '{}'::boolean[] else '{null}' end;
        if p_direct then
            v_rings := array(select r from unnest(v_rings) r where r or r is null and (
                select s.direct from limit_state s where s.key = v_terms.queue_key));
        end if;
        while v_rings <> '{}' and v_room > 0 loop
            v_direct := v_rings[1];
            v_rings := v_rings[2:];
            v_terms.found := v_all.ids;
            v_terms.free := v_free;
            if v_direct and v_free <= 0 then
                continue;
            elsif v_direct is null then
                v_part := claim_plain(v_queue, v_priority, least(v_room, case when v_terms.queue_key is not null then v_free end), v_terms);
            else
                v_part := claim_ring(v_queue, v_priority, v_direct, least(v_room, case when v_direct then v_free end), v_terms);
            end if;
            v_got := cardinality(v_part.ids);
            v_room := v_room - v_got;
            if v_direct or v_terms.queue_key is not null then
                v_free := v_free - v_got;
                v_started := v_started || v_part.ids;
            end if;
            if v_got > 0 and p_per_tenant is not null then
                v_terms.served := coalesce(v_terms.served, '{}') || (
                    select coalesce(jsonb_object_agg(t.tenant, coalesce((v_terms.served ->> t.tenant)::integer, 0) + t.jobs), '{}') from (
                        select l.tenant, count(*) as jobs from live l where l.ctid = any (v_part.places) and l.tenant is not null group by l.tenant) t);
            end if;
            if v_part.moved and not p_direct then
                v_rings := array[not v_direct];
            end if;
            v_all := add_found(v_all, v_part);
        end loop;
    end loop;
    v_part := ('{}', '{}', 0, '{}', 0, false, false);
    if v_room > 0 and v_promoted <> '{}' and v_limited = '{}' then  -- plain ones may stand behind the caller's cursor
        select coalesce(array_agg(j.place), '{}'), coalesce(array_agg(j.id), '{}'), count(j.dedupe_key)
        into v_part.places, v_part.ids, v_part.deduped from (
            select l.ctid as place, l.id, l.dedupe_key from live l
            where l.id = any (v_promoted) and l.lane = 0 and l.queue = any (p_queues) and l.token is null and l.id <> all (v_all.ids)
              and (v_terms.tasks is null or l.task <> all (v_terms.tasks)) and (l.deadline is null or l.deadline > clock())
            order by l.priority, l.run_at, l.id limit v_room for update skip locked) j;
        v_all := add_found(v_all, v_part);
    end if;
    v_terms.found := v_all.ids;
    if p_per_tenant is not null and v_room > 0 and v_terms.served is not null then
        v_all.closed := v_all.closed + note_capped(p_queues, p_served, v_terms);
    end if;
    if p_free is not null then
        v_waiting := case when v_ring then (  -- not of lower priority than what was taken
            select count(*) from unnest(p_queues) q cross join generate_series(0, v_priority) p
            where true = any (open_rings(q, p)) or 'queue:' || q = any (v_limited) and has_plain(q, p, v_terms) and not exists (
                select 1 from lanes l where l.queue = q and l.priority = p and l.lane = 0 and l.closed_by is not null)) else 0 end;
        v_info := json_build_object('waiting', v_waiting, 'started', v_started, 'closed', v_all.closed, 'busy', v_busy, 'more', v_all.more or v_more);
        if v_all.ids = '{}' then
            info := v_info;
            return next;
        end if;
    end if;
    if v_all.ids = '{}' then
        return;
    end if;
    v_token := coalesce(v_token, next_token());
    insert into claims (token, worker, claimed_at, heartbeat_at, expires_at, ids)
    values (v_token, p_worker, v_now, v_now, v_now + p_ttl, v_all.ids);
    if p_asleep then
        delete from sleepers s where s.worker = p_worker;
        if v_room <= 0 then
            perform wake(q) from unnest(p_queues) q;
        end if;
    end if;
    if v_all.deduped > 0 then
        -- A key of scope "queued" is held only until the first start.
        delete from dedupe d where d.scope = 'queued' and d.id = any (v_all.ids) and d.key = any (array(
            select l.dedupe_key from live l where l.ctid = any (v_all.places) and l.dedupe_key is not null));
    end if;
    -- Locked above, so they cannot have moved: by ctid, each is spared an index look-up, and they come back in the order in which they were found.
    return query
        update live l set token = v_token, claimed_at = v_now, attempt = l.attempt + 1, held = l.held || found.held::text[]
        from unnest(v_all.places, v_all.held) as found(place, held) where l.ctid = found.place
        returning l.id, l.token, l.task, l.payload::json, l.attempt, l.max_attempts, l.queue, l.priority, l.tenant, l.run_at,
                  l.created_at, l.dedupe_key, l.batch, l.headers, l.lane,
                  case when l.held is null then l.keys else nullif(l.keys || orders_of(l.held), '{}')::limit_keys end,
                  case when l.id = v_all.ids[1] then v_info end;
end $$;

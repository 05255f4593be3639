-- Claims up to p_limit due jobs of the given queues under one new token: by priority; within one, tenants in turn; within a
-- tenant's jobs in the order run_at, id. Jobs whose limits have no room are stepped over.
-- Called by: workers, and any client in any language (p_after may be null: it is a hint, never the truth).
-- Locks: live rows in fetch order and limits rows, skipping locked ones; then a new claims row; then dedupe keys of scope "queued".
-- Wakes: other sleepers, when this worker slept (p_asleep) and there was at least as much as it asked for.
--
-- p_free is the most jobs under a rate or a breaker to take: those that can start at once. p_per_tenant is the most jobs of one tenant,
-- counting what p_served says it had before; with it, the last row answered has no id, and a payload that says which
-- lanes were stepped over, and on how many keys somebody else was working.
--
-- p_after is the cursor, by "queue/priority". [run_at as epoch, id] is the last job this worker claimed there, where all jobs
-- are in lane 0: starting after it spares the scan the dead index entries of jobs already done, which a long transaction elsewhere
-- keeps from being removed. Jobs that land behind the cursor are found by the caller's next scan without one. An object
-- is for claim_lanes; with one, the last row answered may have no id, and a payload that says what to remember.
create or replace function claim(
    p_worker text,
    p_queues text[] default '{default}',
    p_limit  integer default 1,
    p_ttl    interval default '60 seconds',
    p_after  jsonb default null,
    p_asleep boolean default false,
    p_free   integer default null,
    p_per_tenant integer default null,
    p_served jsonb default null
) returns table (
    id uuid, token bigint, task task_name, payload json, attempt smallint, max_attempts attempt_limit,
    queue queue_name, priority priority_level, tenant tenant_name, run_at timestamptz, created_at timestamptz,
    dedupe_key text, batch uuid, headers json,
    lane bigint, keys limit_keys)
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
declare
    v_token bigint;
    v_ids   uuid[] := '{}';
    v_rows  tid[] := '{}';
    v_more  uuid[];
    v_tids  tid[];
    v_keys  bigint := 0;
    v_keyed bigint;
    v_owned bigint;
    v_ring  boolean;
    v_told  boolean;
    v_place jsonb;
    v_room  integer := p_limit;
    v_free  integer := coalesce(p_free, p_limit);
    v_queue text;
    v_priority integer;
    v_name  text;
    v_names text[];
    v_taken candidate[] := '{}';
    v_lanes record;
    v_info  jsonb;
    v_now   timestamptz := clock();
    -- Limits of queues and tasks concern plain jobs too.
    v_plain boolean := p_per_tenant is null and not exists (select 1 from limits m where m.kind in ('queue', 'task'));
begin
    if p_limit is null or p_limit < 1 or p_ttl is null or p_ttl <= interval '0' then
        raise exception 'claim needs a limit and a lease above zero, got % and %', p_limit, p_ttl
            using errcode = 'invalid_parameter_value';
    end if;
    if p_queues is null or array_position(p_queues, null) is not null then
        raise exception 'claim needs the names of queues, got %', p_queues using errcode = 'invalid_parameter_value';
    end if;
    if cardinality(p_queues) > 2 or p_queues[1] = p_queues[2] then  -- a queue named twice would be found twice
        p_queues := array(select q from unnest(p_queues) with ordinality as u(q, n) group by q order by min(n));
    end if;
    if p_per_tenant is not null then
        p_served := coalesce(p_served, '{}');
    end if;
    -- Most places are empty, and a worker looks at all of them: one query finds those to visit. Where the hint is a cursor, nothing
    -- before it is looked at here either, nor other lanes where it says none: a long transaction may keep dead ones there. (Not
    -- "exists": for that the planner may read the whole table into a hash.)
    select array_agg(w.name) filter (where w.visit),
           coalesce(jsonb_object_agg(w.name, '{"end": null}'::jsonb) filter (where not w.visit and p_after ? w.name), '{}')
    into v_names, v_info from (
        select q.name || '/' || p as name,
               case when p_after is not null and not p_after ? (q.name || '/' || p)
                    then (select true from live l where l.queue = q.name and l.priority = p and l.lane = 0 limit 1) is true
                    when v_plain and (p_after is null or p_after -> (q.name || '/' || p) ->> 'from' = '-1')
                    then (select true from live l where l.queue = q.name and l.priority = p limit 1) is true
                    else true end as visit
        from unnest(p_queues) with ordinality as q(name, place), generate_series(0, 3) p
        order by p, q.place) w;
    foreach v_name in array coalesce(v_names, '{}') loop
        v_queue := left(v_name, -2);
        v_priority := right(v_name, 1);
        v_place := p_after -> v_name;
        -- A scan from the beginning needs no ring when there is nothing but lane 0. Nothing here is null: `null and ...` would
        -- look for other lanes even where a hint says them, past all that a long transaction keeps from being removed.
        if v_plain and (v_place is null or coalesce(v_place ->> 'from', '') = '-1') and (p_after is not null and v_place is null
            or not exists (select 1 from live l where l.queue = v_queue and l.priority = v_priority and l.lane > 0)) then
            if v_place is not null then
                v_info := v_info || jsonb_build_object(v_name, '{"end": null}'::jsonb);
            end if;
            v_place := '[]';
        end if;
        if not v_plain and p_after is not null then
            v_place := coalesce(v_place, '[]');
        end if;
        v_ring := not v_plain or v_place is null or jsonb_typeof(v_place) = 'object';
        if not v_ring then
            select array_agg(c.id), array_agg(c.ctid), count(c.dedupe_key), count(c.tenant)
            into v_more, v_tids, v_keyed, v_owned from (
                select l.id, l.ctid, l.dedupe_key, l.tenant from live l
                where l.queue = v_queue and l.priority = v_priority and l.lane = 0
                  and (l.run_at, l.id) > (coalesce(to_timestamp((v_place ->> 0)::double precision), '-infinity'),
                                          coalesce((v_place ->> 1)::uuid, '00000000-0000-0000-0000-000000000000'))
                  and l.token is null and (l.deadline is null or l.deadline > clock())
                order by l.queue, l.priority, l.lane, l.run_at, l.id
                limit v_room for update skip locked) c;
            if v_owned > 0 then  -- tenants' jobs have lanes of their own, unless a client that knows of none put them here
                v_ring := exists (select 1 from limits m where m.kind = 'tenant');
            end if;
        end if;
        if v_ring and p_per_tenant is null and v_place ? 'known' then
            v_lanes := claim_known(v_queue, v_priority, v_place, v_room);
            if v_lanes.fits then
                v_ring := false;
                v_more := v_lanes.ids;
                v_tids := v_lanes.places;
                v_keyed := v_lanes.deduped;
                v_info := v_info || jsonb_build_object(v_name, v_lanes.info);
            end if;
        end if;
        if v_ring then
            v_lanes := claim_ring(v_queue, v_priority, v_place, v_room, v_free, p_per_tenant, p_served);
            v_taken := v_taken || v_lanes.taken;
            v_room := v_room - cardinality(v_lanes.taken);
            v_free := v_free - v_lanes.limited;
            if p_per_tenant is not null then
                p_served := add_served(p_served, v_lanes.taken);
            end if;
            v_info := v_info || jsonb_build_object(v_name,
                coalesce(v_info -> v_name, '{}') || v_lanes.info);
        elsif v_more is not null then
            v_ids := v_ids || v_more;
            v_rows := v_rows || v_tids;
            v_keys := v_keys + v_keyed;
            v_room := v_room - cardinality(v_more);
        end if;
        exit when v_room <= 0;
    end loop;
    if v_room > 0 and exists (
        select 1 from later t where t.run_at <= v_now and t.run_at >= v_now - interval '10 seconds') then
        -- What has just become due is taken here, not left for the leader: delayed jobs start on time.
        v_more := promote(greatest(v_room, 100), interval '10 seconds');
        if v_more <> '{}' then
            v_lanes := claim_promoted(v_more, p_queues, v_room, v_free, p_per_tenant, p_served);
            v_room := v_room - cardinality(v_lanes.taken);
            v_taken := v_taken || array(select t from unnest(v_lanes.taken) t where t.lane > 0 or t.held is not null);
            v_more := array(select t.id from unnest(v_lanes.taken) t where t.lane = 0 and t.held is null);
            if v_more <> '{}' then
                select array_agg(l.id order by l.priority, l.run_at, l.id),
                       array_agg(l.ctid order by l.priority, l.run_at, l.id), count(l.dedupe_key)
                into v_ids, v_rows, v_keys from live l where l.id = any (v_ids || v_more);
            end if;
        end if;
    end if;
    -- Only whoever can read it: workers from before there were lanes send places alone.
    v_told := v_info <> '{}' and (
        p_per_tenant is not null or p_after is not null and (p_free is not null or p_after @? '$.* ? (@.type() == "object")'));
    if v_taken = '{}' and v_ids = '{}' then
        if v_told then
            payload := v_info;
            return next;
        end if;
        return;
    end if;
    if v_taken <> '{}' then
        v_ids := v_ids || array(select t.id from unnest(v_taken) t);
        v_keys := v_keys + (select count(t.dedupe_key) from unnest(v_taken) t);
    end if;
    v_token := next_token();
    insert into claims (token, worker, claimed_at, heartbeat_at, expires_at, ids)
    values (v_token, p_worker, v_now, v_now, v_now + p_ttl, v_ids);
    if p_asleep then
        delete from sleepers s where s.worker = p_worker;
        if v_room <= 0 then
            perform wake(q) from unnest(p_queues) q;
        end if;
    end if;
    if v_keys > 0 then
        -- A key of scope "queued" is held only until the first start.
        delete from dedupe d where d.scope = 'queued' and d.id = any (v_ids) and d.key = any (array(
            select l.dedupe_key from live l
            where l.ctid = any (v_rows || array(select t.place from unnest(v_taken) t)) and l.dedupe_key is not null));
    end if;
    -- Locked above, so they cannot have moved: by ctid, each is spared an index look-up, and they come back in the order
    -- in which they were found.
    if v_rows <> '{}' then
        return query
            update live l set token = v_token, claimed_at = v_now, attempt = l.attempt + 1
            from unnest(v_rows) as found(place) where l.ctid = found.place
            returning l.id, l.token, l.task, l.payload::json, l.attempt, l.max_attempts, l.queue, l.priority, l.tenant, l.run_at,
                      l.created_at, l.dedupe_key, l.batch, l.headers, l.lane,
                      case when l.held is null then l.keys else nullif(l.keys || orders_of(l.held), '{}')::limit_keys end;
    end if;
    if v_taken <> '{}' then
        return query
            update live l set token = v_token, claimed_at = v_now, attempt = l.attempt + 1, held = found.held
            from unnest(v_taken) as found where l.ctid = found.place
            returning l.id, l.token, l.task, l.payload::json, l.attempt, l.max_attempts, l.queue, l.priority, l.tenant, l.run_at,
                      l.created_at, l.dedupe_key, l.batch, l.headers, l.lane,
                      case when l.held is null then l.keys else nullif(l.keys || orders_of(l.held), '{}')::limit_keys end;
    end if;
    if v_told then
        token := v_token;
        payload := v_info;
        return next;
    end if;
end $$;

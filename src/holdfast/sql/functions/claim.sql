-- Claims up to p_limit due jobs of the given queues under one new token, in the order priority, run_at, id.
-- Called by: workers, and any client in any language (p_after may be null: it is a hint, never the truth).
-- Locks: live rows in fetch order, skipping locked ones; then a new claims row; then dedupe keys of scope "queued".
-- Wakes: other sleepers, when this worker slept (p_asleep) and there was at least as much as it asked for.
--
-- p_after is the cursor: for "queue/priority" the [run_at as epoch, id] of the last job this worker claimed there. Starting
-- after it spares the scan the dead index entries of jobs already done, which a long transaction elsewhere keeps
-- from being removed. Jobs that land behind the cursor are found by the caller's next scan without one.
create or replace function claim(
    p_worker text,
    p_queues text[] default '{default}',
    p_limit  integer default 1,
    p_ttl    interval default '60 seconds',
    p_after  jsonb default null,
    p_asleep boolean default false
) returns table (
    id uuid, token bigint, task task_name, payload json, attempt smallint, max_attempts attempt_limit,
    queue queue_name, priority priority_level, tenant tenant_name, run_at timestamptz, created_at timestamptz,
    dedupe_key text, batch uuid, headers json)
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
    v_place jsonb;
    v_room  integer := p_limit;
    v_queue text;
begin
    if p_limit is null or p_limit < 1 or p_ttl is null or p_ttl <= interval '0' then
        raise exception 'claim needs a limit and a lease above zero, got % and %', p_limit, p_ttl
            using errcode = 'invalid_parameter_value';
    end if;
    if cardinality(p_queues) > 1 then  -- a queue named twice would be found twice
        p_queues := array(select q from unnest(p_queues) with ordinality as u(q, n) group by q order by min(n));
    end if;
    for v_priority in 0..3 loop
        foreach v_queue in array p_queues loop
            v_place := p_after -> (v_queue || '/' || v_priority);
            select array_agg(c.id), array_agg(c.ctid), count(c.dedupe_key) into v_more, v_tids, v_keyed from (
                select l.id, l.ctid, l.dedupe_key from live l
                where l.queue = v_queue and l.priority = v_priority and l.lane = 0
                  and (l.run_at, l.id) > (coalesce(to_timestamp((v_place ->> 0)::double precision), '-infinity'),
                                          coalesce((v_place ->> 1)::uuid, '00000000-0000-0000-0000-000000000000'))
                  and l.token is null and (l.deadline is null or l.deadline > clock())
                order by l.queue, l.priority, l.lane, l.run_at, l.id
                limit v_room for update skip locked) c;
            if v_more is not null then
                v_ids := v_ids || v_more;
                v_rows := v_rows || v_tids;
                v_keys := v_keys + v_keyed;
                v_room := v_room - cardinality(v_more);
                exit when v_room <= 0;
            end if;
        end loop;
        exit when v_room <= 0;
    end loop;
    if v_room > 0 and exists (
        select 1 from later t where t.run_at <= clock() and t.run_at >= clock() - interval '10 seconds') then
        -- What has just become due is taken here, not left for the leader: delayed jobs start on time.
        v_more := promote(greatest(v_room, 100), interval '10 seconds');
        if v_more <> '{}' then
            v_more := array(
                select l.id from live l where l.id = any (v_more) and l.queue = any (p_queues)
                  and (l.deadline is null or l.deadline > clock())
                order by l.priority, l.run_at, l.id limit v_room for update skip locked);
            select array_agg(l.id order by l.priority, l.run_at, l.id),
                   array_agg(l.ctid order by l.priority, l.run_at, l.id), count(l.dedupe_key)
            into v_ids, v_rows, v_keys from live l where l.id = any (v_ids || v_more);
        end if;
    end if;
    if v_ids = '{}' or v_ids is null then
        return;
    end if;
    v_token := nextval('claim_token');
    insert into claims (token, worker, claimed_at, heartbeat_at, expires_at, ids)
    values (v_token, p_worker, clock(), clock(), clock() + p_ttl, v_ids);
    if p_asleep then
        delete from sleepers s where s.worker = p_worker;
        if v_room <= 0 then
            perform wake(q) from unnest(p_queues) q;
        end if;
    end if;
    if v_keys > 0 then
        -- A key of scope "queued" is held only until the first start.
        delete from dedupe d where d.scope = 'queued' and d.id = any (v_ids) and d.key = any (array(
            select l.dedupe_key from live l where l.ctid = any (v_rows) and l.dedupe_key is not null));
    end if;
    -- Locked above, so they cannot have moved: by ctid, each is spared an index look-up, and they come back in the order
    -- in which they were found.
    return query
        update live l set token = v_token, claimed_at = clock(), attempt = l.attempt + 1
        from unnest(v_rows) as found(place) where l.ctid = found.place
        returning l.id, l.token, l.task, l.payload, l.attempt, l.max_attempts, l.queue, l.priority, l.tenant, l.run_at,
                  l.created_at, l.dedupe_key, l.batch, l.headers;
end $$;

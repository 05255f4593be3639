-- Find jobs where more than plain jobs may be due: tenants and limits, operators' settings, or delayed jobs that have
-- just become due (p_due). Parameters as in claim. p_info: what a claim reports besides its jobs.
-- Locks: the ring, if jobs have tenants or limits; later rows that are due; live rows in fetch order with SKIP LOCKED.
create or replace function claim_rings(p_queues text[], p_limit integer, p_after jsonb, p_free integer,
    p_per_tenant integer, p_served jsonb, p_direct boolean, p_due boolean, out p_claim claim_state, out p_info json)
language plpgsql as $$
declare
    v_special boolean;  -- whether queues, tasks or tenants have settings
    v_limited text[] := '{}';   -- keys of queues that have a limit
    v_ring boolean;  -- whether this claim is the ring's writer
    v_busy boolean := false;
    v_more boolean := false;  -- whether arrivals are left to fold
    v_promoted uuid[]; v_queue text; v_priority integer;
    v_lanes boolean;  -- whether this queue and priority has lanes
    v_part record;
begin
    if p_due then
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
        p_claim.token := next_token();  -- under the lock: later claims have higher tags
        perform fold_releases(p_claim.token);
        for v_fold in 1..case when p_per_tenant is null then 1 else 50 end loop  -- with a cap all tenants advance, however many arrivals there are
            v_more := (select coalesce(bool_or(fold_arrivals(q, p_claim.token)), false) from unnest(p_queues) q);
            exit when not v_more;
        end loop;
    end if;
    p_claim := (p_claim.token, p_limit, coalesce(p_free, p_limit), p_free is not null, p_direct, p_per_tenant, p_after, false, false, null, 0, null,
                case when p_per_tenant is not null then p_served end, '{}', '{}', '{}', 0, '{}', 0, false, v_more, false)::claim_state;
    if v_special or v_ring then  -- fold_releases may have made rows of tenants
        p_claim.tenants := exists (select 1 from limits m where m.kind = 'tenant');
        p_claim.weights := exists (select 1 from limit_settings s where s.weight is not null);
        p_claim.tasks := limited_tasks();
        p_claim.version := (select coalesce(max(r.version), 0) from limit_rules r);
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
        exit when cardinality(p_claim.ids) >= p_limit or p_claim.cut;  -- lower priorities wait for the next claim
        p_claim.queue_key := (select k from unnest(v_limited) k where k = 'queue:' || v_queue);
        if v_lanes or v_ring and p_claim.queue_key is not null then
            p_claim := claim_ring(p_claim, v_queue, v_priority);
        elsif p_claim.queue_key is null and not p_direct then
            p_claim := claim_plain(p_claim, v_queue, v_priority);
        end if;
    end loop;
    if cardinality(p_claim.ids) < p_limit and v_promoted <> '{}' and v_limited = '{}' then  -- plain jobs may stand behind the caller's cursor
        select array_agg(j.place) as places, array_agg(j.id) as ids, count(j.dedupe_key) as deduped into v_part from (
            select l.ctid as place, l.id, l.dedupe_key from live l
            where l.id = any (v_promoted) and l.lane = 0 and l.queue = any (p_queues) and l.token is null and l.id <> all (p_claim.ids)
              and (p_claim.tasks is null or l.task <> all (p_claim.tasks)) and (l.deadline is null or l.deadline > clock())
            order by l.priority, l.run_at, l.id limit p_limit - cardinality(p_claim.ids) for update skip locked) j;
        p_claim := claim_found(p_claim, v_part.places, v_part.ids, null, v_part.deduped::integer, false);
    end if;
    if cardinality(p_claim.ids) < p_limit and p_claim.served is not null then
        p_claim.closed := p_claim.closed + note_capped(p_queues, p_served, p_claim);
    end if;
    if p_free is not null then
        p_info := json_build_object('waiting', case when v_ring then (  -- up to the priority of the last job claimed
            select count(*) from rings r cross join lateral (
                select 1 from flows s
                where s.queue = r.queue and s.priority = r.priority and s.direct and s.open and s.tag >= r.front and s.flow <> 0 limit 1) s
            where r.queue = any (p_queues) and r.priority <= v_priority and r.direct) + (
            select count(*) from unnest(v_limited) k cross join generate_series(0, v_priority) p
            where exists (select 1 from limit_state s where s.key = k and s.direct) and has_plain(p_claim, substr(k, 7), p) and not exists (
                select 1 from lanes l where l.queue = substr(k, 7) and l.priority = p and l.lane = 0 and l.closed_by is not null)) else 0 end,
            'started', p_claim.direct, 'closed', p_claim.closed, 'limited', v_limited <> '{}', 'busy', v_busy, 'more', p_claim.more);
    end if;
end $$;

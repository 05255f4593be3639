-- Run one round of a ring: pick flows, the least recently served first, and open lanes of each; share the room of their
-- limits in that order; find jobs; update lanes, limits and flows. It is one statement in which each step adds columns
-- to the rows of the step before. Tables are only looked up by key, never joined, because plans are made while they are
-- empty (decision 011). Run under the ring's lock and the settings of claim_ring.
-- Parameters: p_rest: whether a lane had more jobs that may start than it was asked for, in this round or an earlier one.
-- Returns: settled: this claim has many jobs, and every lane has what its limits allow.
-- Locks: live rows in lane order with SKIP LOCKED.
create or replace function claim_round(inout p_claim claim_state, p_queue text, p_priority integer, p_direct boolean,
    p_room integer, p_plain boolean, p_least integer, inout p_front bigint, p_tag bigint, inout p_rest boolean default false,
    out flows integer, out got integer, out changed boolean, out plain_ends boolean, out settled boolean)
language plpgsql as $$
declare
    -- The least jobs of a turn. A turn costs a visit, so workers take several; with a cap, as many tenants as possible advance.
    v_quantum integer := case when p_claim.per_tenant is null then 8 else 1 end;
    -- From so many jobs on, a claim may leave lanes open that have no room. To close and open each of them for every claim
    -- would take a third of the time. Null: not in this round.
    v_many integer := case when p_claim.repeats and p_claim.per_tenant is null and not p_direct and not p_rest then 100 end;
    v_at timestamptz := coalesce(
        to_timestamp((p_claim.cursors #>> array[p_queue || '/' || p_priority, '0'])::double precision), '-infinity');
    v_id uuid := coalesce(
        (p_claim.cursors #>> array[p_queue || '/' || p_priority, '1'])::uuid, '00000000-0000-0000-0000-000000000000');
    v_first bigint; v_places tid[]; v_ids uuid[]; v_held text[]; v_strays tid[];
    v_moved jsonb;   -- flows of the other ring that lanes have moved to
    v_spared text[];  -- keys with room that the visited lanes did not use
    v_unknown text[];  -- keys without a row: prune_limits has removed them
    v_closed integer; v_deduped integer; v_served jsonb;
begin
    with
    -- flow_turns: flows, least recently served first; turn: an equal share by weight, or the rest of a turn; want: what fits the room
    flow_turns as materialized (
        select f.*, least(f.turn, p_room - f.ahead)::integer as want from (
            select f.*, sum(f.turn) over (order by f.tag, f.flow) - f.turn as ahead from (
                select f.*, greatest(least(f.cap, case
                    when f.credit > 0 then f.credit
                    when f.waits then v_quantum
                    when p_claim.per_tenant is null then ceil(f.weight * p_room / sum(f.weight) filter (where not f.waits) over ())
                    -- the next round shares the rest
                    else greatest(floor(f.weight * p_room / sum(f.weight) filter (where not f.waits) over ()), 1) end), 0)::integer as turn
                from (
                    -- A flow whose last lanes had no room would leave a full share unused.
                    select f.*, f.barren and not bool_and(f.barren) over () as waits from (
                    select s.ctid as place, s.flow, s.tag, s.credit, s.lane as after, s.barren,
                           case when p_claim.weights then
                               coalesce((select w.weight from limit_settings w where w.key = 'tenant:' || s.tenant), 1)
                               else 1 end as weight,
                           case when s.tenant is not null then p_claim.per_tenant
                               - coalesce((p_claim.served ->> s.tenant)::integer, 0) end as cap
                    from flows s
                    where s.queue = p_queue and s.priority = p_priority and s.direct = p_direct and s.open and s.tag >= p_front
                      and (p_plain or s.flow <> 0)
                      and (p_claim.served is null or coalesce((p_claim.served ->> s.tenant)::integer, 0) < p_claim.per_tenant)
                    order by s.tag, s.flow limit least(p_room, greatest(p_room / v_quantum, 16))) f) f) f) f
        where f.turn > 0 and f.ahead < p_room order by f.tag, f.flow),
    -- open_lanes: open lanes of each flow, after the last lane served; few if the last ones had no room; ask: jobs wanted of each
    open_lanes as materialized (
        select v.*, v.most > count(v.place) over (partition by v.flow) as complete,
               case when v.ordered then 1
                    else greatest(ceil(v.want::double precision / count(*) over (partition by v.flow)), least(v_quantum, v.want)) end as ask
        from (
            select row_number() over () as n, f.place as flow_place, f.flow, f.tag, f.turn, f.want, f.most, l.*,
                   case when l.ordered then (  -- limits of an order's jobs may differ; those of the first job count
                       select j.keys::text[] from live j
                       where j.queue = p_queue and j.priority = p_priority and j.lane = l.lane and j.token is null
                         and (j.run_at, j.id) >= (l.mark_at, l.mark_id) and (j.deadline is null or j.deadline > clock())
                       order by j.queue, j.priority, j.lane, j.run_at, j.id limit 1) else l.keys end as own
            from (select p.*, greatest(case when p.waits then 4 else p.want / 2.0 end, p_least) as most from flow_turns p) f
            left join lateral (
                (select l.ctid as place, l.lane, l.tenant, l.keys, l.ordered, l.mark_at, l.mark_id from lanes l
                 where l.queue = p_queue and l.priority = p_priority and l.direct = p_direct and l.flow = f.flow and l.open
                   and l.lane > f.after
                 order by l.queue, l.priority, l.direct, l.flow, l.lane limit f.most)
                union all
                (select l.ctid, l.lane, l.tenant, l.keys, l.ordered, l.mark_at, l.mark_id from lanes l
                 where l.queue = p_queue and l.priority = p_priority and l.direct = p_direct and l.flow = f.flow and l.open
                   and l.lane <= f.after
                 order by l.queue, l.priority, l.direct, l.flow, l.lane limit f.most)
                limit f.most) l on true) v),
    -- lane_keys: a row for each lane and key; spare: the key's room that the lanes before this one leave
    lane_keys as (
        select v.*, k.key, k.carried, s.room, s.wait, s.direct as starts,
               s.room - sum(v.ask) over (partition by k.key order by v.n) + v.ask as spare,
               count(*) over (partition by k.key) > 1 as shared
        from open_lanes v left join lateral (
            select k.key, true as carried from unnest(v.own) as k(key)
            union all
            select k.key, false from unnest(array[p_claim.queue_key, case when p_claim.tenants then 'tenant:' || v.tenant end]) as k(key)
            where k.key <> all (coalesce(v.own, '{}')) and k.key is not null) k on true
        left join lateral (
            select s.room, s.wait, s.direct from limit_state s where s.key = k.key and (k.carried or s.says) offset 0) s on true),
    -- lane_room: a row for each lane; may: its jobs that may start; shut_by: the key without room that takes longest, and its wait
    lane_room as (
        select a.n, a.flow_place, a.flow, a.tag, a.turn, a.want, a.complete, a.place, a.lane, a.tenant, a.own, a.ordered,
               case when a.lane = 0 then v_at else a.mark_at end as mark_at, case when a.lane = 0 then v_id else a.mark_id end as mark_id,
               array_agg(a.key) filter (where a.room is not null) as keys,
               array_agg(a.key) filter (where a.room is null and a.carried) as unknown,
               (array_agg(a.key) filter (where a.room is not null and not a.carried))::text as held,
               coalesce(bool_or(a.starts), false) as starts, min(a.spare) filter (where not a.shared) as own_room,
               case when a.place is null or coalesce(bool_or(a.starts), false) <> p_direct or bool_or(a.room is null and a.carried) then 0
                    else greatest(least(min(a.ask), min(a.spare)), 0) end as may,
               (array_agg(a.key order by a.wait desc nulls first, a.key) filter (where a.room <= 0))[1] as shut_by,
               (array_agg(a.wait order by a.wait desc nulls first, a.key) filter (where a.room <= 0))[1] as wait
        from lane_keys a
        group by a.n, a.flow_place, a.flow, a.tag, a.turn, a.want, a.complete, a.place, a.lane, a.tenant, a.own, a.ordered,
                 a.mark_at, a.mark_id),
    -- lane_grants: take, the jobs that each lane gets of what its flow wants
    lane_grants as (
        select j.*, greatest(least(j.may, j.want - sum(j.may) over (partition by j.flow order by j.n) + j.may), 0) as take
        from lane_room j),
    -- lane_jobs: the locked jobs that each lane starts, and strays, which belong to another lane
    lane_jobs as materialized (
        select g.*, f.*, coalesce(cardinality(f.ids), 0) as got from lane_grants g left join lateral (
            select array_agg(j.place) filter (where j.fits) as places, array_agg(j.id) filter (where j.fits) as ids,
                   count(j.dedupe_key) filter (where j.fits) as deduped, array_agg(j.place) filter (where not j.fits) as strays
            from (
                select j.ctid as place, j.id, j.dedupe_key, j.tenant is not distinct from g.tenant
                       and (g.ordered or j.keys::text[] is not distinct from g.own
                            or coalesce(j.keys <@ g.own and j.keys @> g.own, false))
                       and (p_claim.tasks is null or j.task <> all (p_claim.tasks)
                            or coalesce('task:' || j.task = any (j.keys), false)) as fits, j.run_at
                from live j
                where j.queue = p_queue and j.priority = p_priority and j.lane = g.lane and j.token is null and j.id <> all (p_claim.ids)
                  and (j.run_at, j.id) >= (g.mark_at, g.mark_id) and (j.deadline is null or j.deadline > clock())
                order by j.queue, j.priority, j.lane, j.run_at, j.id limit g.take for update skip locked) j
            -- of an order only the first job, whatever its priority; a locked one keeps its place
            where not g.ordered or first_of_order(p_queue, g.lane, j.run_at, j.id)) f on g.take > 0
        order by g.n),
    -- lane_rests: rests, whether a lane was visited that may have more jobs for this claim
    lane_rests as materialized (
        select j.*, bool_or(
                   not j.complete or j.ordered or j.may > 0 and j.got = j.take and j.take is distinct from j.own_room
                   -- lanes before it asked for more of a shared key than they took
                   or j.may = 0 and j.place is not null and j.shut_by is null) over () as rests,
               cardinality(p_claim.ids) + sum(j.got) over () as jobs
        from lane_jobs j),
    -- lane_changes: whether a lane closes without room, empties without jobs, or moves to the other ring because its limits have
    -- changed. settles: no lane closes, because the next claim, which comes at once, may find it with room again
    lane_changes as materialized (
        select f.*, m.*, m.moves or m.closes or m.empties as leaves
        from (select r.*, case when v_many is not null and r.jobs >= v_many and not r.rests then not exists (  -- a flow not visited yet
                  select 1 from flows s
                  where s.queue = p_queue and s.priority = p_priority and s.direct = p_direct and s.open and (p_plain or s.flow <> 0)
                    and (s.tag, s.flow) > (select t.tag, t.flow from flow_turns t order by t.tag desc, t.flow desc limit 1)
                    and s.tag <= greatest(p_claim.token, p_front)) else false end as settles
              from lane_rests r) f
        cross join lateral (
            select f.starts <> p_direct and f.place is not null as moves, f.starts = p_direct and f.shut_by is not null and not f.settles as closes,
                   f.got < f.take and f.lane <> 0 and (
                       select true from live j  -- locked jobs count as waiting
                       where j.queue = p_queue and j.priority = p_priority and j.lane = f.lane and j.token is null
                         and j.id <> all (p_claim.ids) and (f.ids is null or j.id <> all (f.ids))
                         and (j.run_at, j.id) >= (f.mark_at, f.mark_id) and (j.deadline is null or j.deadline > clock())
                       limit 1) is null as empties offset 0) m),
    -- count_running: count the jobs under their keys, spend tokens, set probes
    count_running as (
        update limits m set running = m.running + u.jobs,
            template = case when m.version = p_claim.version then m.template else rule_of(m.key) end, version = p_claim.version,
            tokens = s.free_tokens - u.jobs,
            tokens_at = case when s.free_tokens is not null then greatest(m.tokens_at, clock()) end,  -- never back: tokens accrue once
            probe = case when s.open_until is not null then u.first else m.probe end
        from (select k.key, sum(f.got)::integer as jobs, (array_agg(f.ids[1] order by f.n))[1] as first
              from lane_changes f cross join unnest(f.keys) as k(key) where f.got > 0 group by k.key) u
        left join lateral (select s.free_tokens, s.open_until from limit_state s where p_direct and s.key = u.key offset 0) s on true
        where m.key = u.key),
    -- schedule_opening: note when the keys that close lanes will have room, where that is known
    schedule_opening as (
        update limits m set opens_at = least(m.opens_at, clock() + make_interval(secs => f.wait))
        from (select f.shut_by, min(f.wait) as wait from lane_changes f
              -- A key may get room between the looks of two lanes. It is counted then, not timed: one statement updates a row once.
              where f.closes and f.wait is not null and f.shut_by not in (select unnest(c.keys) from lane_changes c where c.got > 0)
              group by f.shut_by) f
        where m.key = f.shut_by),
    -- count_throttled: count the closed lanes by key and tenant
    count_throttled as (
        insert into throttled as t (key, tenant, count, last_at)
        select f.shut_by, coalesce(f.tenant, ''), count(*), clock() from lane_changes f where f.closes group by 1, 2 order by 1, 2
        on conflict (key, tenant) do update set count = t.count + excluded.count, last_at = excluded.last_at),
    -- update_lanes: lanes that leave the ring, and marks: a write costs as much as a walk past 25 dead entries, so once in 25 jobs
    update_lanes as (
        update lanes l set direct = f.starts, open = not (f.closes or f.empties), closed_by = case when f.closes then f.shut_by end,
            closed_at = case when f.closes or f.empties then p_claim.token + f.n end,
            mark_at = coalesce(h.run_at, l.mark_at), mark_id = coalesce(h.id, l.mark_id)
        from lane_changes f left join lateral (
            select j.run_at, j.id from live j
            where j.queue = p_queue and j.priority = p_priority and j.lane = f.lane and j.token is null
              and j.id <> all (p_claim.ids) and (f.ids is null or j.id <> all (f.ids))
              and (j.run_at, j.id) >= (f.mark_at, f.mark_id)
            order by j.queue, j.priority, j.lane, j.run_at, j.id limit 1) h on f.got > 0 and f.lane <> 0
        where l.ctid = f.place and (f.leaves or f.lane <> 0 and random() * 25 < f.got)),
    -- update_flows: move served flows to the end, keep a flow whose turn was cut short, close a flow without open lanes
    update_flows as (
        update flows s set lane = coalesce(v.lane, s.lane), credit = case when v.got = v.want then v.turn - v.want else 0 end,
            tag = case when v.got = v.want and v.want < v.turn then v.tag else p_tag + v.n end,
            open = not v.leaves, barren = v.got = 0 and not v.leaves and not v.settles
        from (
            select f.flow_place, min(f.n) as n, min(f.tag) as tag, min(f.turn) as turn, min(f.want) as want, sum(f.got) as got,
                   bool_and(f.complete and (f.leaves or f.place is null)) as leaves, bool_or(f.settles) as settles,
                   (array_agg(f.lane order by f.n desc) filter (where f.take > 0 or f.leaves))[1] as lane
            from lane_changes f group by f.flow_place) v
        where s.ctid = v.flow_place)
    select p.flows, p.first, j.places, j.ids, j.held, f.strays, f.spared, f.unknown, f.closed, f.deduped, f.moved, f.changed, f.plain_ends,
           f.settled, p_rest or f.rests, t.served
    into flows, v_first, v_places, v_ids, v_held, v_strays, v_spared, v_unknown, v_closed, v_deduped, v_moved, changed, plain_ends, settled, p_rest, v_served
    from (select count(*) as flows, min(p.tag) as first from flow_turns p) p
    cross join (
        select array_agg(j.place) as places, array_agg(j.id) as ids, array_agg(f.held) as held
        from lane_changes f cross join unnest(f.places, f.ids) as j(place, id)) j
    cross join (
        select (select array_agg(s) from lane_changes f cross join unnest(f.strays) s) as strays,
               (select array_agg(distinct k) from lane_changes f cross join unnest(f.keys) k
                where f.leaves and k is distinct from f.shut_by) as spared,
               (select array_agg(k) from lane_changes f cross join unnest(f.unknown) k) as unknown,
               count(*) filter (where f.closes) as closed, coalesce(sum(f.deduped), 0) as deduped,
               coalesce(bool_or(f.leaves), false) as changed, coalesce(bool_or(f.settles), false) as settled,
               coalesce(bool_or(f.rests), false) as rests,
               coalesce(bool_or(f.lane = 0 and f.strays is null and f.got < f.take), false) as plain_ends,
               jsonb_agg(jsonb_build_object('queue', p_queue, 'priority', p_priority, 'direct', not p_direct, 'flow', f.flow,
                                            'tenant', f.tenant))
                   filter (where f.moves) as moved
        from lane_changes f) f
    cross join (
        select jsonb_object_agg(t.tenant, coalesce((p_claim.served ->> t.tenant)::integer, 0) + t.got) as served
        from (select f.tenant, sum(f.got) as got from lane_changes f
              where p_claim.per_tenant is not null and f.tenant is not null group by f.tenant) t) t;
    got := coalesce(cardinality(v_ids), 0);
    p_claim := claim_found(p_claim, v_places, v_ids, v_held, v_deduped, p_direct);
    p_claim.closed := p_claim.closed + v_closed;
    p_claim.more := p_claim.more or settled;
    p_claim.served := case when v_served is null then p_claim.served else coalesce(p_claim.served, '{}') || v_served end;
    -- 0.2 s in token units; before new flows are placed relative to it
    if v_first - p_front > 200000::bigint << 10 and p_claim.served is null then
        p_front := v_first;
        update rings r set front = p_front where r.queue = p_queue and r.priority = p_priority and r.direct = p_direct;
        update flows s set tag = p_front  -- flow 0 is not picked while no plain job waits
        where s.queue = p_queue and s.priority = p_priority and s.direct = p_direct and s.flow = 0 and s.tag < p_front;
    end if;
    if v_moved is not null then perform open_flows(v_moved, p_claim.token); end if;
    if v_spared is not null then perform reopen_lanes(v_spared, p_claim.token); end if;
    if v_unknown is not null then
        perform make_limits(v_unknown);
        changed := true;
    end if;
    if v_strays is not null then  -- the next claim finds them in their own lane
        perform move_jobs(v_strays, p_claim.tasks);
        changed := true;
        p_claim.more := true;
    end if;
    p_claim.moved := p_claim.moved or v_moved is not null;
end $$;

-- What claim_lanes does, for what most claims of limited jobs are, at half the cost: lanes that the caller knows, jobs under one
-- limit each or none, and limits of concurrency alone. One round, in few statements. `fits` is false when something met
-- here needs more than that; then nothing has been counted, and claim_lanes finds the same jobs. p_hint as there, with the "keys" that
-- the lanes are thought to be under, so that no more jobs are locked than may start.
-- Called by: claim.
-- Locks: live rows, then limits rows, skipping locked ones.
-- Wakes: nobody.
create or replace function claim_known(
    p_queue text, p_priority integer, p_hint jsonb, p_room integer,
    out fits boolean, out ids uuid[], out places tid[], out deduped bigint, out info jsonb)
language plpgsql
set search_path from current set enable_hashjoin = on
as $$
declare
    v_lanes  bigint[] := (p_hint ->> 'lanes')::bigint[];
    v_takes  integer[];
    v_from   bigint[];    -- of each job found: its lane, and the limit it is under
    v_keys   text[];
    v_whose  text[];
    v_locked text[];      -- limits: their keys, rows, and how many more may start
    v_rows   tid[];
    v_room   integer[];
    v_held   text[];      -- limits that somebody else has at this moment
    v_odd    boolean;
    v_not    bigint[];    -- which of the jobs may not start
    v_shut   jsonb;
    v_busy   bigint[];
    v_cut    jsonb;
begin
    fits := not exists (select 1 from limits m where m.kind <> 'key');
    if not fits then
        return;
    end if;
    v_takes := share(v_lanes, p_room, null);
    if p_hint ? 'first' then
        v_takes[1] := least(v_takes[1], (p_hint ->> 'first')::integer);
    end if;
    select array_agg(c.id), array_agg(c.place), array_agg(c.lane), array_agg(c.keys[1]), array_agg(c.tenant),
           count(c.dedupe_key), bool_or(cardinality(c.keys) > 1 or c.keys[1] like 'order:%' or c.held is not null)
    into ids, places, v_from, v_keys, v_whose, deduped, v_odd from (
        select c.*
        from unnest(v_lanes, (p_hint ->> 'at')::double precision[], (p_hint ->> 'ids')::uuid[], v_takes,
                    array(select jsonb_array_elements_text(p_hint -> 'keys'))) as u(lane, at, id, take, key)
        -- As many as there seems to be room for, and one to tell by that there is none: what is locked in vain is dear.
        left join lateral (select m.concurrency - m.running as room from limits m where m.key = u.key offset 0) m on true
        cross join lateral (
            select l.ctid as place, l.id, l.lane, l.tenant, l.keys, l.dedupe_key, l.held from live l
            where l.queue = p_queue and l.priority = p_priority and l.lane = u.lane
              and (l.run_at, l.id) > (to_timestamp(u.at), u.id)
              and l.token is null and (l.deadline is null or l.deadline > clock())
            order by l.queue, l.priority, l.lane, l.run_at, l.id
            limit least(u.take, greatest(coalesce(m.room, u.take), 1)) for update skip locked) c
        limit p_room) c;
    fits := v_odd is not true;
    if ids is null or not fits then
        info := jsonb_build_object('empty', (
            select jsonb_agg(u.lane) from unnest(v_lanes, v_takes) as u(lane, take) where u.take > 0));
        return;
    end if;
    select array_agg(m.key), array_agg(m.place), array_agg(m.room), bool_or(m.odd) into v_locked, v_rows, v_room, v_odd from (
        select m.key, m.ctid as place, coalesce(m.concurrency - m.running, p_room) as room,
               m.rate is not null or m.breaker_after is not null or m.paused or m.open_until is not null as odd
        from limits m where m.key = any (v_keys) for update skip locked) m;
    v_held := array(select unnest(v_keys) except select unnest(v_locked) except select null);
    fits := v_odd is not true and (
        v_held = '{}' or cardinality(v_held) = (select count(*) from limits m where m.key = any (v_held)));
    if not fits then
        return;
    end if;
    if exists (select 1 from limit_owed) and exists (select 1 from limit_owed o where o.key = any (v_locked)) then
        perform take_owed(v_locked);
        select array_agg(m.key), array_agg(m.ctid), array_agg(coalesce(m.concurrency - m.running, p_room))
        into v_locked, v_rows, v_room from limits m where m.key = any (v_locked);
    end if;
    -- Limits by ctid: their rows are locked, so they cannot have moved.
    with job as materialized (
        select j.*, row_number() over (partition by j.key collate "C" order by j.n) as turn
        from unnest(v_keys, ids, places) with ordinality as j(key, id, place, n)),
    told as materialized (
        select j.n, j.id, j.place, r.place as counted, j.key is null or coalesce(j.turn <= r.room, false) as ok
        from job j left join unnest(v_locked, v_rows, v_room) as r(key, place, room) on r.key = j.key),
    counted as (
        update limits m set running = m.running + u.jobs
        from (select t.counted, count(*) as jobs from told t where t.ok and t.counted is not null group by t.counted) u
        where m.ctid = u.counted)
    select array_agg(t.id order by t.n) filter (where t.ok), array_agg(t.place order by t.n) filter (where t.ok),
           array_agg(t.n) filter (where not t.ok)
    into ids, places, v_not from told t;
    if v_not is not null then
        select jsonb_agg(jsonb_build_array(r.lane, r.key, r.tenant, null)) filter (where r.locked),
               array_agg(r.lane) filter (where not r.locked)
        into v_shut, v_busy from (
            select distinct on (j.lane) j.lane, j.key, j.tenant, j.key <> all (v_held) as locked
            from (select v_from[n] as lane, v_keys[n] as key, v_whose[n] as tenant from unnest(v_not) n) j order by j.lane) r;
    end if;
    if cardinality(v_from) >= p_room then
        v_cut := jsonb_build_array(v_from[p_room], v_takes[array_position(v_lanes, v_from[p_room])]
                                   - cardinality(array_positions(v_from, v_from[p_room])));
    end if;
    info := jsonb_strip_nulls(jsonb_build_object(
        'empty', case when cardinality(v_from) < p_room then
            -- of those that it came to: a tenant's part may be smaller than its number of lanes
            (select jsonb_agg(l.lane) from (
                select u.lane from unnest(v_lanes, v_takes) as u(lane, take) where u.take > 0 except select unnest(v_from)) l) end,
        'closed', v_shut, 'cut', case when (v_cut ->> 1)::integer > 0 then v_cut end, 'held', to_jsonb(v_busy), 'contention', cardinality(v_busy)));
end $$;

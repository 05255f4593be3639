-- What claim_lanes does, for what most claims of limited jobs are, at half the cost: lanes that the caller knows, jobs under one
-- limit each or none, and limits of concurrency alone. One round, in few statements. `fits` is false when something met
-- here needs more than that; then nothing has been counted, and claim_lanes finds the same jobs.
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
    v_locked text[];
    v_held   text[];      -- limits that somebody else has at this moment
    v_odd    boolean;
    v_ok     integer[];
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
        from unnest(v_lanes, (p_hint ->> 'at')::double precision[], (p_hint ->> 'ids')::uuid[], v_takes) as u(lane, at, id, take)
        cross join lateral (
            select l.ctid as place, l.id, l.lane, l.tenant, l.keys, l.dedupe_key, l.held from live l
            where l.queue = p_queue and l.priority = p_priority and l.lane = u.lane
              and (l.run_at, l.id) > (to_timestamp(u.at), u.id)
              and l.token is null and (l.deadline is null or l.deadline > clock())
            order by l.queue, l.priority, l.lane, l.run_at, l.id
            limit u.take for update skip locked) c
        limit p_room) c;
    fits := v_odd is not true;
    if ids is null or not fits then
        info := jsonb_build_object('empty', to_jsonb(v_lanes));
        return;
    end if;
    select array_agg(m.key), bool_or(m.odd) into v_locked, v_odd from (
        select m.key, m.rate is not null or m.breaker_after is not null or m.paused or m.open_until is not null as odd
        from limits m where m.key = any (v_keys) for update skip locked) m;
    v_held := array(select unnest(v_keys) except select unnest(v_locked) except select null);
    fits := v_odd is not true and (
        v_held = '{}' or cardinality(v_held) = (select count(*) from limits m where m.key = any (v_held)));
    if not fits then
        return;
    end if;
    if exists (select 1 from limit_owed) then
        perform take_owed(v_locked);
    end if;
    with job as materialized (
        select j.n, j.key, row_number() over (partition by j.key order by j.n) as turn
        from unnest(v_keys) with ordinality as j(key, n)),
    room as materialized (
        select m.key, coalesce(m.concurrency - m.running, p_room) as room from limits m where m.key = any (v_locked)),
    ok as materialized (
        select j.n, j.key from job j left join room r on r.key = j.key where j.key is null or j.turn <= r.room),
    counted as (
        update limits m set running = m.running + u.jobs
        from (select o.key, count(*) as jobs from ok o group by o.key) u where m.key = u.key)
    select array_agg(o.n order by o.n) into v_ok from ok o;
    if coalesce(cardinality(v_ok), 0) < cardinality(ids) then
        select jsonb_agg(jsonb_build_array(r.lane, r.key, r.tenant, null)) filter (where r.locked),
               array_agg(r.lane) filter (where not r.locked)
        into v_shut, v_busy from (
            select distinct on (j.lane) j.lane, j.key, j.tenant, j.key = any (v_locked) as locked
            from unnest(v_from, v_keys, v_whose) with ordinality as j(lane, key, tenant, n)
            where j.n <> all (coalesce(v_ok, '{}')) order by j.lane) r;
        select array_agg(j.id order by j.n), array_agg(j.place order by j.n) into ids, places
        from unnest(ids, places) with ordinality as j(id, place, n) where j.n = any (v_ok);
    end if;
    if cardinality(v_from) >= p_room then
        v_cut := jsonb_build_array(v_from[p_room], v_takes[array_position(v_lanes, v_from[p_room])]
                                   - cardinality(array_positions(v_from, v_from[p_room])));
    end if;
    info := jsonb_strip_nulls(jsonb_build_object(
        'empty', case when cardinality(v_from) < p_room then
            (select jsonb_agg(l.lane) from (select unnest(v_lanes) as lane except select unnest(v_from)) l) end,
        'closed', v_shut, 'cut', case when (v_cut ->> 1)::integer > 0 then v_cut end, 'held', to_jsonb(v_busy), 'contention', cardinality(v_busy)));
end $$;

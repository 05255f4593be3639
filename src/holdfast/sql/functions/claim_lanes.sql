-- Finds jobs of one queue and priority that may start now, fairly: each tenant with work gets the same part of p_room (by its
-- weight), what one cannot use goes to the others, and lanes whose limits have no room are stepped over. Counts what it
-- finds into its limits; the caller claims all of it.
--
-- p_hint says where to look: {"lanes": "{LANE,...}", "at": "{EPOCH,...}", "ids": "{ID,...}"} are lanes and the last job seen in
-- each, of which those to "look" at may well have to wait, and the "first" has so many jobs left of its turn. {"from": LANE, "to":
-- LANE} walks from there to the next lanes that have jobs, and with "round": LANE past the last lane from the first one up to
-- that, so that all share the room that are on the way; it passes by the lanes to "skip".
--
-- info tells what is worth remembering: "empty" lanes; "closed" lanes (see admit); "contention" when somebody held limits that it
-- needed; "again" when it only made way for what may be claimed; "cut", the lane whose turn p_room cut short, and by how much;
-- the "end" of a walk, null when it came to the last lane; "more" lanes that it met and did not come to.
-- Called by: claim.
-- Locks: live rows, then limits rows, skipping locked ones.
-- Wakes: nobody.
create or replace function claim_lanes(
    p_queue text, p_priority integer, p_hint jsonb, p_room integer, p_free integer,
    p_per_tenant integer, p_served jsonb,
    out taken candidate[], out limited integer, out contention integer, out info jsonb)
language plpgsql
set search_path from current set enable_hashjoin = on
as $$
declare
    v_lanes bigint[];
    v_at    timestamptz[];
    v_ids   uuid[];
    v_takes integer[];
    v_none  bigint[];
    v_empty bigint[] := '{}';
    v_shut  jsonb := '[]';
    v_found candidate[];
    v_over  candidate[];
    v_left  integer := p_room;
    v_first integer;
    v_keyed bigint;
    v_asked bigint[];
    v_held  bigint[];
    v_cut   jsonb;
    v_ok    record;
    v_way   record;
    v_aside boolean := false;
    v_moved boolean := false;
begin
    taken := '{}';
    limited := 0;
    contention := 0;
    if p_hint ? 'lanes' then
        v_lanes := (p_hint ->> 'lanes')::bigint[];
        v_at := array(select to_timestamp(e) from unnest((p_hint ->> 'at')::double precision[]) e);
        v_ids := (p_hint ->> 'ids')::uuid[];
        if p_hint ? 'look' then
            v_shut := shut_lanes(p_queue, p_priority, array(
                select (null, null, l, null, null, null, null, null, null)::candidate from unnest((p_hint ->> 'look')::bigint[]) l));
            select array_agg(u.lane order by u.n), array_agg(u.at order by u.n), array_agg(u.id order by u.n)
            into v_lanes, v_at, v_ids from unnest(v_lanes, v_at, v_ids) with ordinality as u(lane, at, id, n)
            where u.lane not in (select (c ->> 0)::bigint from jsonb_array_elements(v_shut) c);
        end if;
    else
        v_way := walk_lanes(p_queue, p_priority, p_hint, p_room);
        v_shut := v_way.shut;
        v_lanes := v_way.lanes;
        -- From any of them on: whoever comes first in the index must not come first in every lap.
        v_first := floor(random() * cardinality(v_lanes));
        v_lanes := v_lanes[v_first + 1:] || v_lanes[:v_first];
        v_at := array_fill('-infinity'::timestamptz, array[cardinality(v_lanes)]);
        v_ids := array_fill('00000000-0000-0000-0000-000000000000'::uuid, array[cardinality(v_lanes)]);
    end if;
    -- Rounds in which nothing could be taken do not count: what is behind may start.
    for v_round in 1..25 loop
        exit when v_left <= 0 or v_lanes = '{}' or v_lanes is null or v_round > 4 and not v_moved;
        v_takes := share(v_lanes, v_left, p_per_tenant);
        if v_round = 1 and p_hint ? 'first' then
            v_takes[1] := least(v_takes[1], (p_hint ->> 'first')::integer);
        end if;
        v_found := array(
            select (c.place, c.id, c.lane, c.run_at, c.tenant, c.task, c.keys, c.dedupe_key, c.held)::candidate
            from unnest(v_lanes, v_at, v_ids, v_takes) as u(lane, at, id, take)
            cross join lateral (
                select l.ctid as place, l.id, l.lane, l.run_at, l.tenant, l.task, l.keys, l.dedupe_key, l.held from live l
                where l.queue = p_queue and l.priority = p_priority and l.lane = u.lane
                  and (l.run_at, l.id) > (u.at, u.id)
                  and l.token is null and (l.deadline is null or l.deadline > clock())
                order by l.queue, l.priority, l.lane, l.run_at, l.id
                limit u.take for update skip locked) c
            limit v_left);
        v_asked := v_lanes;
        -- What is left of the lanes for another round, and which have nothing more.
        select array_agg(g.lane order by g.n) filter (where g.goes_on), array_agg(g.at order by g.n) filter (where g.goes_on),
               array_agg(g.id order by g.n) filter (where g.goes_on), array_agg(g.lane) filter (where not g.goes_on)
        into v_lanes, v_at, v_ids, v_none from (
            select u.lane, u.n, coalesce(f.at, u.at) as at, coalesce(f.id, u.id) as id,
                   coalesce(f.jobs, 0) >= u.take
                   or cardinality(v_found) >= v_left and u.n >= max(case when f.jobs > 0 then u.n end) over () as goes_on
            from unnest(v_lanes, v_at, v_ids, v_takes) with ordinality as u(lane, at, id, take, n)
            left join (
                select f.lane, count(*) as jobs, max(f.run_at) as at, (array_agg(f.id order by f.ordinality desc))[1] as id
                from unnest(v_found) with ordinality f group by f.lane) f on f.lane = u.lane) g;
        v_empty := v_empty || v_none;
        if v_round = 1 and cardinality(v_found) >= v_left then
            v_cut := (
                select jsonb_build_array(c.lane, u.take - c.jobs)
                from (select f.lane, count(*) as jobs, max(f.ordinality) as last
                      from unnest(v_found) with ordinality f group by f.lane order by last desc limit 1) c
                join unnest(v_asked, v_takes) as u(lane, take) on u.lane = c.lane where u.take > c.jobs);
        end if;
        if p_per_tenant is not null then
            v_over := v_found;
            v_found := within_cap(v_found, p_per_tenant, p_served, taken);
            if cardinality(v_over) > cardinality(v_found) then  -- closed for this caller: their tenants have had their part
                v_shut := v_shut || (
                    select jsonb_agg(distinct jsonb_build_array(o.lane, 'tenant:' || o.tenant, o.tenant, null))
                    from unnest(v_over) o where o.id not in (select f.id from unnest(v_found) f));
            end if;
        end if;
        v_keyed := (select count(*) from unnest(v_found) f where f.keys is not null);
        v_moved := false;
        v_aside := false;
        if v_keyed > 0 or exists (select 1 from limits m where m.kind <> 'key') then
            v_ok := admit(v_found, p_queue, p_free - limited);
            v_aside := v_ok.aside is not null;
            if v_aside then
                update live l set lane = a.lane from unnest(v_ok.aside) a where l.ctid = a.place;
            end if;
            if cardinality(v_found) > coalesce(cardinality(v_ok.taken), 0) then
                v_shut := v_shut || coalesce(v_ok.closed, '[]');
                v_none := array(select (c ->> 0)::bigint from jsonb_array_elements(v_ok.closed) c);
                -- Neither taken nor told to wait: somebody has their limits for a moment. They are not empty, and had their turn.
                v_held := array(
                    select f.lane from unnest(v_found) f left join unnest(v_ok.taken) t on t.id = f.id where t.id is null
                    except select unnest(v_none) except select a.lane from unnest(v_ok.aside) a);
                v_empty := array(select unnest(v_empty) except select unnest(v_held));
                select array_agg(u.lane order by u.n), array_agg(u.at order by u.n), array_agg(u.id order by u.n)
                into v_lanes, v_at, v_ids from unnest(v_lanes, v_at, v_ids) with ordinality as u(lane, at, id, n)
                left join (select distinct unnest(v_none || case when v_aside then '{}' else v_held end) as lane) c on c.lane = u.lane
                where c.lane is null;
                v_moved := v_aside or taken = '{}' and v_ok.taken is null;
            end if;
            v_found := coalesce(v_ok.taken, '{}');
            limited := limited + v_ok.limited;
            contention := contention + v_ok.contention;
        end if;
        taken := taken || v_found;
        v_left := p_room - cardinality(taken);
        -- Whoever holds limits has them for a moment, and what may not be claimed ahead waits for a slot: the next claim
        -- will do better.
        exit when contention > 0 and taken <> '{}' or v_keyed > 0 and limited >= p_free;
    end loop;
    -- Lanes with nothing that waits come without a key.
    v_empty := v_empty || array(select (c ->> 0)::bigint from jsonb_array_elements(v_shut) c where c ->> 1 is null);
    info := jsonb_strip_nulls(jsonb_build_object(
        'empty', to_jsonb(nullif(v_empty, '{}')),
        'closed', (select jsonb_agg(distinct c) from jsonb_array_elements(v_shut) c where c ->> 1 is not null), 'cut', v_cut,
        'contention', nullif(contention, 0), 'again', nullif(v_aside and v_left > 0, false)));
    if not p_hint ? 'lanes' then
        -- Met on the way, and not come to: worth remembering all the same. Of a few of each tenant some lie beyond the end.
        info := info || jsonb_build_object('end', case when not (v_way.few and taken <> '{}') then v_way.reached end, 'more', (
            select jsonb_agg(l.lane) from (
                select unnest(v_way.lanes) as lane except select unnest(v_empty) except select t.lane from unnest(taken) t
                except select (c ->> 0)::bigint from jsonb_array_elements(v_shut) c) l));
    end if;
end $$;

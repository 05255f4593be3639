-- A prototype of the next claim engine, for measuring: the ring of lanes is a table with one writer at a time, and workers remember nothing.
-- Load it into a scratch database (it makes the schema "ring"), then run ring.py beside it. docs/decisions/031 has the figures.
-- Left out: priorities, plain jobs, rates, breakers, pauses, limits of queues and tasks, orders, deadlines, dedupe, tokens that survive a failover.
drop schema if exists ring cascade;
create schema ring;
set search_path = ring;

create table live (
    id uuid primary key, queue text not null default 'default', lane bigint not null, run_at timestamptz not null,
    token bigint, claimed_at timestamptz, attempt smallint not null default 0, tenant text, keys text[], payload json
) with (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05);
create index live_fetch on live (queue, lane, run_at, id);
create table history (id uuid, status text, tenant text, payload json, attempt smallint, started_at timestamptz, finished_at timestamptz);
create index on history (id);
create table claims (token bigint primary key, worker text, expires_at timestamptz, ids uuid[]);
create sequence claim_token;

-- What code and operators say: claims only read it, so a rule is changed by one row, and no open transaction holds up a claim.
create table limit_rules (template text primary key, pattern text not null, concurrency integer);
create table limit_settings (key text primary key, concurrency integer, paused boolean not null default false);
-- Where each key stands: written only by the holder of the ring's lock.
create table limits (key text collate "C" primary key, template text, running integer not null default 0) with (fillfactor = 40);
create view limit_state as
select m.key, m.running, case when s.paused then 0 else greatest(coalesce(s.concurrency, o.concurrency, r.concurrency) - m.running, 0) end as room
from limits m left join limit_rules r on r.template = m.template
left join limit_settings o on o.key = m.template left join limit_settings s on s.key = m.key;

-- A lane is open (it has a turn), closed by a key without room, or empty. mark: where its last job was claimed.
create table lanes (
    queue text not null, lane bigint not null, tenant text not null, keys text[], turn bigint, closed_by text,
    mark_at timestamptz not null default '-infinity', mark_id uuid not null default '00000000-0000-0000-0000-000000000000',
    primary key (queue, lane)) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index lanes_open on lanes (queue, tenant, turn) where turn is not null;
create index lanes_closed on lanes (closed_by) where closed_by is not null;
create sequence lane_turn;
-- A tenant's place in the ring (start-time fair queueing): serving n jobs moves its tag on by n; the lowest is next.
create table shares (
    queue text not null, tenant text not null, tag double precision not null, open boolean not null,
    primary key (queue, tenant)) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
create index shares_ring on shares (queue, tag, tenant) where open;
-- Below vtime nothing is open. Moved on once a second, so that a walk of the ring meets few dead entries.
create table rings (queue text primary key, vtime double precision not null, moved_at timestamptz not null);

-- Appended by the transaction that puts a job into live, and by the one that ends it; folded and deleted by the next claim.
create table arrivals (
    xid xid8 not null default pg_current_xact_id(), queue text not null, lane bigint not null, tenant text, keys text[], run_at timestamptz not null);
create index on arrivals (xid);
create table releases (xid xid8 not null default pg_current_xact_id(), key text not null, id uuid);
create index on releases (xid);
-- Rows of transactions before from_xid have been folded, but for those that were open then.
create table ring_fold (from_xid xid8 not null, open_xids xid8[] not null, moved_at timestamptz not null);
insert into ring_fold values ('0', '{}', '-infinity');

create function open_shares(p_opened jsonb) returns void language plpgsql as $$
begin
    insert into rings select distinct o.queue, 0, now() from jsonb_to_recordset(p_opened) o(queue text) on conflict do nothing;
    insert into shares as s (queue, tenant, tag, open)
    select o.queue, o.tenant, coalesce((select n.tag from shares n where n.queue = r.queue and n.open and n.tag >= r.vtime
                                        order by n.queue, n.tag limit 1), r.vtime), true
    from jsonb_to_recordset(p_opened) o(queue text, tenant text) join rings r on r.queue = o.queue
    on conflict (queue, tenant) do update set open = true, tag = greatest(s.tag, excluded.tag) where not s.open;
end $$;

-- Lets lanes go on that wait for the keys, as many as each has room for.
create function reopen(p_keys text[]) returns void language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    v_opened jsonb;
begin
    with back as materialized (
        select l.place, l.queue, l.tenant from unnest(p_keys) k(key)
        cross join lateral (select s.room from limit_state s where s.key = k.key offset 0) s
        cross join lateral (select l.ctid as place, l.queue, l.tenant from lanes l where l.closed_by = k.key
                            limit least(coalesce(s.room, 1000), 1000)) l),
    opened as (update lanes l set closed_by = null, turn = nextval('lane_turn') from back b where l.ctid = b.place)
    select jsonb_agg(o) into v_opened from (select distinct b.queue, b.tenant from back b) o;
    if v_opened is not null then
        perform open_shares(v_opened);
    end if;
end $$;

create function fold() returns void language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
    v_fold   ring_fold;
    v_from   xid8 := least(pg_snapshot_xmax(pg_current_snapshot()), pg_current_xact_id_if_assigned());
    v_open   xid8[] := array(select x from pg_snapshot_xip(pg_current_snapshot()) x);
    v_places tid[];
    v_keys   text[];
    v_opened jsonb;
begin
    select * into v_fold from ring_fold;
    v_places := array(select r.ctid from releases r where r.xid >= v_fold.from_xid order by r.xid limit 5000)
             || array(select r.ctid from releases r where r.xid = any (v_fold.open_xids) and r.xid < v_fold.from_xid);
    if v_places <> '{}' then
        with gone as (delete from releases where ctid = any (v_places) returning key),
        ended as materialized (select g.key, count(*)::integer as jobs from gone g group by g.key),
        counted as (update limits m set running = m.running - e.jobs from ended e where m.key = e.key)
        select array_agg(e.key) into v_keys from ended e;
        perform reopen(v_keys);
    end if;
    v_places := array(select a.ctid from arrivals a where a.xid >= v_fold.from_xid order by a.xid limit 5000)
             || array(select a.ctid from arrivals a where a.xid = any (v_fold.open_xids) and a.xid < v_fold.from_xid);
    if v_places <> '{}' then
        with gone as (delete from arrivals where ctid = any (v_places) returning *),
        arrived as materialized (
            select g.queue, g.lane, coalesce(min(g.tenant), '') as tenant, min(g.keys) as keys, min(g.run_at) as run_at
            from gone g group by g.queue, g.lane),
        known as materialized (
            select a.*, l.place, l.turn is null and l.closed_by is null as opens, l.mark_at from arrived a left join lateral (
                select l.ctid as place, l.turn, l.closed_by, l.mark_at from lanes l where l.queue = a.queue and l.lane = a.lane offset 0) l on true),
        keyed as (
            insert into limits (key, template)
            select k.key, (select r.template from limit_rules r where k.key like r.pattern order by length(r.pattern) desc limit 1)
            from (select distinct k.key from known n cross join unnest(n.keys) k(key) where n.place is null) k on conflict do nothing),
        made as (
            insert into lanes (queue, lane, tenant, keys, turn)
            select k.queue, k.lane, k.tenant, k.keys, nextval('lane_turn') from known k where k.place is null),
        moved as (
            update lanes l set turn = case when k.opens then nextval('lane_turn') else l.turn end, mark_at = least(l.mark_at, k.run_at),
                mark_id = case when k.run_at <= l.mark_at then '00000000-0000-0000-0000-000000000000' else l.mark_id end
            from known k where l.ctid = k.place and (k.opens or k.run_at <= k.mark_at))
        select jsonb_agg(o) into v_opened from (select distinct k.queue, k.tenant from known k where k.opens) o;
        if v_opened is not null then
            perform open_shares(v_opened);
        end if;
    end if;
    if cardinality(v_places) < 5000 and v_fold.moved_at < clock_timestamp() - interval '1 second' then
        update ring_fold set from_xid = v_from, open_xids = v_open, moved_at = clock_timestamp();
    end if;
end $$;

-- One round: tenants from the lowest tag on, their open lanes in turn, each key's room shared out in that order.
create function claim_round(p_queue text, p_room integer, p_quantum integer, inout p_after shares, out places tid[]) language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_bitmapscan = off set jit = off
set plan_cache_mode = force_generic_plan as $$
declare
    v_ring    rings;
    v_shares  tid[];
    v_tenants text[];
    v_tags    double precision[];
    v_each    integer;
begin
    places := '{}';
    select * into v_ring from rings r where r.queue = p_queue;
    select array_agg(f.place), array_agg(f.tenant), array_agg(f.tag) into v_shares, v_tenants, v_tags from (
        select s.ctid as place, s.tenant, s.tag from shares s
        where s.queue = p_queue and s.open and (s.tag, s.tenant) >= (coalesce(p_after.tag, v_ring.vtime), coalesce(p_after.tenant || chr(1), ''))
        order by s.queue, s.tag, s.tenant limit greatest(p_room / p_quantum, 1)) f;
    if v_shares is null then
        p_after := null;
        return;
    end if;
    if p_after is null and v_ring.moved_at < clock_timestamp() - interval '1 second' then
        update rings r set vtime = v_tags[1], moved_at = clock_timestamp() where r.queue = p_queue;
    end if;
    p_after := (p_queue, v_tenants[cardinality(v_tenants)], v_tags[cardinality(v_tags)], true);
    v_each := ceil(p_room::double precision / cardinality(v_shares));
    with flow as materialized (select * from unnest(v_shares, v_tenants) with ordinality as f(place, tenant, n)),
    picked as materialized (
        select l.*, count(*) over (partition by l.flow) as mine, row_number() over (order by l.flow, l.turn) as n from (
            select f.n as flow, l.* from flow f cross join lateral (
                select l.ctid as place, l.lane, l.keys, l.turn, l.mark_at, l.mark_id from lanes l
                where l.queue = p_queue and l.tenant = f.tenant and l.turn is not null order by l.queue, l.tenant, l.turn limit v_each) l) l),
    asked as materialized (select p.*, greatest(ceil(v_each::double precision / p.mine), least(p_quantum, v_each))::integer as ask from picked p),
    allowed as materialized (  -- grouped, not joined: a join of two lists is quadratic under a plan for empty tables
        select x.n, min(x.flow) as flow, min(x.place) as place, min(x.lane) as lane, min(x.keys) as keys, min(x.mine) as mine,
               min(x.mark_at) as mark_at, min(x.mark_id::text)::uuid as mark_id, greatest(least(min(x.ask), min(x.left_over)), 0)::integer as take,
               min(x.key) filter (where x.room <= 0) as full_key, min(x.key) filter (where x.left_over <= x.ask) as last_key
        from (select a.*, k.key, s.room, s.room - (sum(a.ask) over (partition by k.key order by a.n) - a.ask) as left_over
              from asked a left join lateral unnest(a.keys) k(key) on true
              left join lateral (select s.room from limit_state s where s.key = k.key offset 0) s on true) x
        group by x.n),
    granted as materialized (
        select g.*, least(g.take, p_room - (sum(g.take) over (order by g.n) - g.take),
                          v_each - (sum(g.take) over (partition by g.flow order by g.n) - g.take)) as wanted from allowed g),
    found as materialized (
        select g.*, f.*, coalesce(g.full_key, case when f.got = g.wanted and g.wanted = g.take then g.last_key end) as shut_by
        from granted g left join lateral (
            select count(*) as got, array_agg(c.place) as jobs, (array_agg(c.run_at))[count(*)] as last_at, (array_agg(c.id))[count(*)] as last_id from (
                select l.ctid as place, l.run_at, l.id from live l
                where l.queue = p_queue and l.lane = g.lane and l.token is null and (l.run_at, l.id) > (g.mark_at, g.mark_id)
                order by l.queue, l.lane, l.run_at, l.id limit greatest(g.wanted, 0) for update skip locked) c) f on g.wanted > 0),
    counted as (
        update limits m set running = m.running + c.jobs from (
            select k.key, sum(f.got)::integer as jobs from found f cross join unnest(f.keys) k(key) where f.got > 0 group by k.key) c
        where m.key = c.key),
    moved as (
        update lanes l set
            turn = case when f.shut_by is not null or f.got < f.wanted then null when f.mine > 1 then nextval('lane_turn') else l.turn end,
            closed_by = case when f.got < f.wanted then null else f.shut_by end,
            mark_at = coalesce(f.last_at, l.mark_at), mark_id = coalesce(f.last_id, l.mark_id)
        from found f where l.ctid = f.place and (f.wanted > 0 or f.shut_by is not null))
    select array_agg(j) filter (where j is not null) into places from found f left join lateral unnest(f.jobs) j on true;
    places := coalesce(places, '{}');
    with given as materialized (
        select (select tenant from live l where l.ctid = p) as tenant from unnest(places) p),
    served as materialized (select coalesce(g.tenant, '') as tenant, count(*) as jobs from given g group by 1)
    update shares s set tag = s.tag + coalesce((select v.jobs from served v where v.tenant = s.tenant), 0),
        open = exists (select 1 from lanes l where l.queue = p_queue and l.tenant = s.tenant and l.turn is not null)
    where s.ctid = any (v_shares);
end $$;

create function claim(p_worker text, p_queue text, p_limit integer, p_quantum integer default 4) returns setof live language plpgsql
set jit = off set enable_seqscan = off set plan_cache_mode = force_generic_plan as $$
declare
    v_places tid[] := '{}';
    v_before integer := 0;
    v_after  shares;
    v_round  record;
    v_token  bigint;
begin
    perform pg_advisory_xact_lock(hashtext('ring'));
    perform fold();
    while cardinality(v_places) < p_limit loop
        v_round := claim_round(p_queue, p_limit - cardinality(v_places), p_quantum, v_after);
        v_after := v_round.p_after;
        v_places := v_places || v_round.places;
        if v_after is null then  -- once round: again while it gives something
            exit when cardinality(v_places) = v_before;
            v_before := cardinality(v_places);
        end if;
    end loop;
    if v_places = '{}' then
        return;
    end if;
    v_token := nextval('claim_token');
    insert into claims values (v_token, p_worker, now() + interval '60 s', array(select l.id from live l where l.ctid = any (v_places)));
    return query update live l set token = v_token, claimed_at = now(), attempt = l.attempt + 1
        from unnest(v_places) as f(place) where l.ctid = f.place returning l.*;
end $$;

create function finish(p_ids uuid[], p_tokens bigint[]) returns bigint language plpgsql
set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_ended bigint;
begin
    delete from claims where token = any (p_tokens);
    with ended as (
        delete from live where token = any (p_tokens) and ctid = any (array(
            select l.place from unnest(p_ids, p_tokens) as g(id, token) cross join lateral (
                select l.ctid as place from live l where l.id = g.id and l.token = g.token offset 0) l))
        returning *),
    kept as (
        insert into history select id, 'succeeded', tenant, payload, attempt, claimed_at, now() from ended),
    released as (insert into releases (key, id) select k, e.id from ended e cross join unnest(e.keys) k)
    select count(*) into v_ended from ended;
    return v_ended;
end $$;

-- Jobs of so many groups by turns, after a flood of the first: a tenant each, a key each, or all of one tenant.
create function fill(p_jobs integer, p_groups integer, p_tenant text, p_key text, p_flood double precision default 0, p_one_tenant boolean default false)
returns void language sql as $$
    with groups as materialized (
        select n, case when p_one_tenant then p_tenant else p_tenant || n end as tenant, case when p_key is not null then array[p_key || n] end as keys,
               hashtextextended(concat_ws('/', p_tenant, p_key, n), 0) & 9223372036854775807 as lane
        from generate_series(0, p_groups - 1) n),
    arrived as (
        insert into ring.arrivals (queue, lane, tenant, keys, run_at) select 'default', lane, tenant, keys, now() - interval '1 hour' from groups)
    insert into ring.live (id, lane, tenant, keys, payload, run_at)
    select gen_random_uuid(), g.lane, g.tenant, g.keys, json_build_object('n', j.n, 'text', repeat('x', 60)), now() - make_interval(secs => (p_jobs - j.n) * 1e-5)
    from generate_series(0, p_jobs - 1) j(n) join groups g on g.n = case when j.n < p_jobs * p_flood then 0 else j.n % p_groups end order by j.n
$$;

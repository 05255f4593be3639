-- What is before a due job in its queue, as reasons for why: jobs of a higher priority; jobs of its own lane, which go in
-- order; other lanes, which take turns with it. Each is counted along the fetch index, up to a bound.
-- Called by: why_waiting.
-- Locks: none.
-- Wakes: nobody.
create or replace function why_behind(p_id uuid, p_queue text, p_priority integer, p_lane bigint, p_run_at timestamptz)
returns jsonb
language plpgsql stable
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_most  integer := 1000;
    v_turns integer := 300;
    v_jobs  bigint;
    v_lanes bigint[];
    v_who   bigint;
    v_found jsonb := '[]';
begin
    v_jobs := (select count(*) filter (where b.token is null) from (
        select l.token from live l where l.queue = p_queue and l.priority < p_priority
        order by l.queue, l.priority, l.lane, l.run_at, l.id limit v_most) b);
    if v_jobs > 0 then
        v_found := v_found || jsonb_build_object('kind', 'priority', 'rank', 80, 'jobs', v_jobs, 'more', v_jobs = v_most,
            'short', 'jobs of a higher priority', 'text', format('%s of a higher priority %s first',
                jobs_in_words(v_jobs, v_most), case when v_jobs = 1 then 'goes' else 'go' end));
    end if;
    v_jobs := (select count(*) filter (where b.token is null) from (
        select l.token from live l
        where l.queue = p_queue and l.priority = p_priority and l.lane = p_lane and (l.run_at, l.id) < (p_run_at, p_id)
        order by l.queue, l.priority, l.lane, l.run_at, l.id limit v_most) b);
    if v_jobs > 0 then
        v_found := v_found || jsonb_build_object('kind', 'behind', 'rank', 81, 'jobs', v_jobs, 'more', v_jobs = v_most,
            'short', 'jobs before it', 'text', format('%s of the same %s %s before it', jobs_in_words(v_jobs, v_most),
                case when p_lane = 0 then 'queue' when p_lane >> 32 = 0 then 'limits' else 'tenant' end,
                case when v_jobs = 1 then 'is' else 'are' end));
    end if;
    -- From lane to lane, each found by one look into the index.
    with recursive lanes as (
        (select l.lane, 1 as n from live l where l.queue = p_queue and l.priority = p_priority and l.token is null
         order by l.queue, l.priority, l.lane limit 1)
        union all
        select g.lane, f.n + 1 from lanes f cross join lateral (
            select l.lane from live l
            where l.queue = p_queue and l.priority = p_priority and l.lane > f.lane and l.token is null
            order by l.queue, l.priority, l.lane limit 1) g
        where f.n <= v_turns)
    select array_agg(f.lane) into v_lanes from lanes f where f.lane <> p_lane;
    if v_lanes is not null then
        v_who := (select count(distinct u >> 32) from unnest(v_lanes) u where u >> 32 not in (0, p_lane >> 32));
        v_found := v_found || jsonb_build_object('kind', 'ring', 'rank', 82, 'lanes', cardinality(v_lanes), 'tenants', v_who,
            'more', cardinality(v_lanes) >= v_turns, 'short', 'others take turns', 'text', format('%s%s %s turns with it',
                case when cardinality(v_lanes) >= v_turns then 'more than ' else '' end,
                case when v_who = 1 then '1 other tenant' when v_who > 0 then v_who || ' other tenants'
                     when cardinality(v_lanes) = 1 then '1 other lane' else cardinality(v_lanes) || ' other lanes' end,
                case when greatest(v_who, (v_who = 0)::integer * cardinality(v_lanes)) = 1 then 'takes' else 'take' end));
    end if;
    return v_found;
end $$;

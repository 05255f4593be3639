-- Return what is ahead of a due job in its queue, as reasons for why: jobs of a higher priority; jobs of its own lane,
-- which run in order; other tenants of its ring and lanes of its own tenant, which take turns with it. Each is counted
-- along an index, up to a bound.
create or replace function why_behind(p_id uuid, p_queue text, p_priority integer, p_lane bigint, p_run_at timestamptz)
    returns jsonb
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
    v_most integer := 1000; v_turns integer := 300; v_kind text; v_jobs bigint;
    v_flow bigint;   -- the job's tenant: 0 a plain job, 1 a job without a tenant but with limits
    v_direct boolean; v_front bigint;
    v_who bigint;   -- other tenants
    v_lanes bigint;   -- other lanes
    v_more boolean; v_found jsonb := '[]';
begin
    select l.flow, l.direct into v_flow, v_direct from lanes l where l.queue = p_queue and l.priority = p_priority and l.lane = p_lane;
    if not found then  -- a plain job, or a lane that no claim has read yet
        v_direct := false;
        v_flow := case when p_lane = 0 then 0 else coalesce((
            select lane_of(l.tenant, null) from live l where l.id = p_id and l.tenant is not null), 1) end;
    end if;
    for v_kind, v_jobs in
        select 'priority', count(*) filter (where b.token is null) from (
            select l.token from live l where l.queue = p_queue and l.priority < p_priority
            order by l.queue, l.priority, l.lane, l.run_at, l.id limit v_most) b
        union all
        select 'behind', count(*) filter (where b.token is null) from (
            select l.token from live l
            where l.queue = p_queue and l.priority = p_priority and l.lane = p_lane and (l.run_at, l.id) < (p_run_at, p_id)
            order by l.queue, l.priority, l.lane, l.run_at, l.id limit v_most) b
    loop
        continue when v_jobs = 0;
        v_found := v_found || jsonb_build_object(
            'kind', v_kind, 'rank', case v_kind when 'priority' then 80 else 81 end, 'jobs', v_jobs, 'more', v_jobs = v_most,
            'short', case v_kind when 'priority' then 'jobs of a higher priority' else 'jobs before it' end,
            'text', case when v_jobs = 1 then '1 job' else to_char(v_jobs, 'FM999,999,999') || ' jobs' end
                || case when v_jobs = v_most then ' or more' else '' end || case v_kind
                when 'priority' then format(' of a higher priority %s first', case when v_jobs = 1 then 'goes' else 'go' end)
                else format(' of the same %s %s before it', case v_flow when 0 then 'queue' when 1 then 'limits' else 'tenant' end,
                            case when v_jobs = 1 then 'is' else 'are' end) end);
    end loop;
    v_front := (select r.front from rings r where r.queue = p_queue and r.priority = p_priority and r.direct = v_direct);
    select count(*) filter (where f.flow > 1 and not exists (  -- a claim closes the lanes of a paused tenant when it meets them
               select 1 from limit_settings p
               where p.key = 'tenant:' || f.tenant and p.paused and (p.paused_until is null or p.paused_until > clock()))),
           count(*) filter (where f.flow <= 1), count(*) > v_turns
    into v_who, v_lanes, v_more from (
        select s.flow, s.tenant from flows s
        where s.queue = p_queue and s.priority = p_priority and s.direct = v_direct and s.open and s.tag >= v_front and s.flow not in (v_flow, 0)
        order by s.tag, s.flow limit v_turns + 1) f;
    v_lanes := v_lanes + (select count(*) from (
        select 1 from lanes l
        where l.queue = p_queue and l.priority = p_priority and l.direct = v_direct and l.flow = v_flow and l.open and l.lane <> p_lane
        order by l.queue, l.priority, l.direct, l.flow, l.lane limit v_turns + 1) b);
    if v_flow <> 0 and exists (select 1 from live l where l.queue = p_queue and l.priority = p_priority and l.lane = 0 and l.token is null) then
        v_lanes := v_lanes + 1;  -- plain jobs
    end if;
    if v_who + v_lanes > 0 then
        v_more := case when v_who > 0 then v_more else v_lanes > v_turns end;
        v_who := least(v_who, v_turns);
        v_lanes := least(v_lanes, v_turns);
        v_found := v_found || jsonb_build_object('kind', 'ring', 'rank', 82, 'lanes', v_lanes, 'tenants', v_who,
            'more', v_more, 'short', 'others take turns', 'text', format('%s%s %s turns with it',
                case when v_more then 'more than ' else '' end,
                case when v_who = 1 then '1 other tenant' when v_who > 0 then v_who || ' other tenants'
                     when v_lanes = 1 then '1 other lane' else v_lanes || ' other lanes' end,
                case when greatest(v_who, (v_who = 0)::integer * v_lanes) = 1 then 'takes' else 'take' end));
    end if;
    return v_found;
end $$;

-- Count tenants that have reached their cap in this claim and have more work as throttled by their own key. Return
-- their number. p_before: jobs they had before this claim.
create or replace function note_capped(p_queues text[], p_before jsonb, p_claim claim_state) returns integer
language plpgsql as $$
declare
    v_capped integer;
begin
    with noted as (
        insert into throttled as t (key, tenant, count, last_at)
        select 'tenant:' || s.key, s.key, 1, clock() from jsonb_each_text(p_claim.served) s
        where s.value::integer >= p_claim.per_tenant and coalesce((p_before ->> s.key)::integer, 0) < p_claim.per_tenant and (
            select true from unnest(p_queues) q cross join generate_series(0, 3) p cross join unnest('{true,false}'::boolean[]) d
            join lanes l on l.queue = q and l.priority = p and l.direct = d and l.flow = lane_of(s.key, null) and l.open
            join live j on j.queue = l.queue and j.priority = l.priority and j.lane = l.lane and j.token is null
                and (j.run_at, j.id) >= (l.mark_at, l.mark_id) and j.id <> all (p_claim.ids) and (j.deadline is null or j.deadline > clock())
            limit 1)
        order by 1 on conflict (key, tenant) do update set count = t.count + 1, last_at = excluded.last_at returning 1)
    select count(*) into v_capped from noted;
    return v_capped;
end $$;

-- How often tenants have been served, with the jobs just taken; null while nobody counts.
-- Called by: claim, claim_ring.
-- Locks: none.
-- Wakes: nobody.
create or replace function add_served(p_served jsonb, p_taken candidate[]) returns jsonb
language sql immutable
as $$
    select p_served || coalesce((
        select jsonb_object_agg(t.tenant, t.jobs + coalesce((p_served ->> t.tenant)::bigint, 0))
        from (select t.tenant, count(*) as jobs from unnest(p_taken) t where t.tenant is not null group by t.tenant) t), '{}')
$$;

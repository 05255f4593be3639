-- How many jobs each tenant has had, with those of the lanes' turns.
-- Called by: claim_ring.
-- Locks: none.
-- Wakes: nobody.
create or replace function add_served(p_served jsonb, p_lanes lane_turn[]) returns jsonb
language plpgsql immutable
as $$
begin
    return coalesce(p_served, '{}') || coalesce((
        select jsonb_object_agg(t.tenant, coalesce((p_served ->> t.tenant)::integer, 0) + t.got) from (
            select u.tenant, sum(u.got) as got from unnest(p_lanes) u where u.tenant is not null group by u.tenant) t), '{}');
end $$;

-- How many jobs each lane may give in one round, so that p_room is shared by tenants according to their weights, and a
-- tenant's part by its lanes. A part is two jobs or more, or visiting a lane costs more than it gives; with a cap one, and rounded
-- down, so that as many tenants as possible advance: what is left goes to another round. 0 for lanes of a tenant that has more of
-- them than its part has jobs.
-- Called by: claim.
-- Locks: none.
-- Wakes: nobody.
create or replace function share(p_lanes bigint[], p_room integer, p_per_tenant integer) returns integer[]
language plpgsql
set search_path from current
as $$
declare
    v_tenants integer := (select count(distinct l >> 32) from unnest(p_lanes) l);
    v_least   integer := case when p_per_tenant is null then 2 else 1 end;
begin
    if p_per_tenant is null and (
        v_tenants = 1 or v_tenants = cardinality(p_lanes) and not exists (select 1 from limits m where m.kind = 'tenant')) then
        return array_fill(greatest(ceil(p_room::numeric / cardinality(p_lanes))::integer, v_least), array[cardinality(p_lanes)]);
    end if;
    return array(
        select case when t.place > ceil(t.part) then 0
                    when p_per_tenant is null then ceil(t.part / t.lanes)
                    else greatest(least(floor(t.part / t.lanes), case when t.tenant > 0 then p_per_tenant end), 1) end
        from (
            select u.n, u.lane >> 32 as tenant, row_number() over tenant as place, u.lanes,
                   w.weight * greatest(p_room / sum(w.weight / u.lanes) over (), v_least) as part
            from (select u.lane, u.n, count(*) over (partition by u.lane >> 32) as lanes
                  from unnest(p_lanes) with ordinality as u(lane, n)) u
            cross join lateral (
                select coalesce((select m.weight from limits m where m.lane = (u.lane >> 32) << 32 limit 1), 1) as weight) w
            window tenant as (partition by u.lane >> 32 order by u.n)) t
        order by t.n);
end $$;

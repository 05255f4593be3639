-- The lane of a job: 0 without a tenant and limits; else the tenant's hash in the upper 31 bits and its keys' in the
-- lower 32. So the fetch index keeps a tenant's lanes side by side, and all jobs of a lane wait for the same limits. All jobs of
-- an order ("order:...") are in one lane whatever their other limits: they wait for each other.
-- Called by: enqueue, claim, and clients that insert into live themselves, unless they compute the same (model/limit.py).
-- Locks: none.
-- Wakes: nobody.
create or replace function lane_of(p_tenant text, p_keys text[]) returns bigint
language plpgsql immutable parallel safe
as $$
declare
    v_keys text := p_keys[1];
    v_lane bigint := 0;
begin
    if p_tenant is not null then
        v_lane := greatest(('x' || encode(substr(sha256(convert_to(p_tenant, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint
                           & 2147483647, 1) << 32;
    end if;
    if coalesce(cardinality(p_keys), 0) = 0 then
        return v_lane;
    end if;
    if cardinality(p_keys) > 1 or array_lower(p_keys, 1) <> 1 then  -- a query costs more than all the rest
        v_keys := (select coalesce(string_agg(k, chr(31) order by k collate "C") filter (where k like 'order:%'),
                                   string_agg(k, chr(31) order by k collate "C")) from unnest(p_keys) k);
    end if;
    return v_lane
        | greatest(('x' || encode(substr(sha256(convert_to(v_keys, 'UTF8')), 1, 4), 'hex'))::bit(32)::bigint, 1);
end $$;

-- Return the lane of a job: 0 without a tenant and limits, else a hash of both. All jobs of a lane have one tenant and
-- wait for the same limits. Jobs of an order ("order:...") are in one lane whatever their other limits, because they
-- wait for each other. Clients that insert into live themselves call it, or compute the same value (model/limit.py).
create or replace function lane_of(p_tenant text, p_keys text[]) returns bigint
language plpgsql immutable parallel safe as $$
declare
    v_keys text := p_keys[1]; v_lane bigint := 0;
begin
    if p_tenant is not null then
        v_lane := ('x' || encode(substr(sha256(convert_to(p_tenant, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint;
    elsif coalesce(cardinality(p_keys), 0) = 0 then
        return 0;
    end if;
    if cardinality(p_keys) > 1 or array_lower(p_keys, 1) <> 1 then  -- the query costs more than the rest of the function
        v_keys := (select coalesce(string_agg(k, chr(31) order by k collate "C") filter (where k like 'order:%'),
                                   string_agg(k, chr(31) order by k collate "C")) from unnest(p_keys) k);
    end if;
    if v_keys is not null then
        v_lane := v_lane # ('x' || encode(substr(sha256(convert_to(chr(31) || v_keys, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint;
    end if;
    return greatest(v_lane & 9223372036854775807, 1);
end $$;

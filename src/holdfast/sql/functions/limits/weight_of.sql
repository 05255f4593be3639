-- Returns a tenant's share of each round: 1 unless operators have set another.
create or replace function weight_of(p_tenant text) returns double precision
language plpgsql stable
set search_path from current
as $$
begin
    return coalesce((select s.weight from limit_settings s where s.key = 'tenant:' || p_tenant), 1);
end $$;

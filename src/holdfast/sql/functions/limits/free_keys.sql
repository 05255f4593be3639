-- Return those of a job's limits that it does not hold already, in their order. A job that keeps an order joins no
-- other order.
create or replace function free_keys(p_keys text[], p_held text[]) returns text[]
language plpgsql immutable parallel safe as $$
begin
    return array(select k from unnest(p_keys) with ordinality as u(k, n) where k <> all (coalesce(p_held, '{}'))
                 and not (k like 'order:%' and exists (select from unnest(p_held) h where h like 'order:%')) order by n);
end $$;

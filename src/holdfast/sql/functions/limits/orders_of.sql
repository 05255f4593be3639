-- Return the orders among limits. An order runs one job at a time, in sequence; a job that waits for another attempt
-- holds up those after it.
create or replace function orders_of(p_keys text[]) returns text[] language plpgsql immutable parallel safe as $$
begin
    return array(select k from unnest(p_keys) k where k like 'order:%');
end $$;

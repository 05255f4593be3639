-- Return whether a job is the first waiting job of its order.
create or replace function first_of_order(p_queue text, p_lane bigint, p_at timestamptz, p_id uuid) returns boolean
language plpgsql stable as $$
begin
    return not exists (
        select 1 from generate_series(0, 3) p cross join lateral (
            select 1 from live j
            where j.queue = p_queue and j.priority = p and j.lane = p_lane and j.token is null
              and (j.run_at, j.id) < (p_at, p_id) and (j.deadline is null or j.deadline > clock()) limit 1) j);
end $$;

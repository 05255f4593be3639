-- Return whether a job is the first waiting job of its order.
create or replace function first_of_order(p_queue text, p_lane bigint, p_place tid) returns boolean
language plpgsql stable
as $$
declare
    v_at timestamptz;
    v_id uuid;
begin
    select j.run_at, j.id into v_at, v_id from live j where j.ctid = p_place;
    return not exists (
        select 1 from generate_series(0, 3) p cross join lateral (
            select 1 from live j
            where j.queue = p_queue and j.priority = p and j.lane = p_lane and j.token is null
              and (j.run_at, j.id) < (v_at, v_id) and (j.deadline is null or j.deadline > clock()) limit 1) j);
end $$;

-- Notify workers that sleep on p_queue, a few more than p_jobs needs in case one of them is gone. The notification is
-- sent when the caller's transaction commits.
-- Wakes: up to nine sleepers, chosen at random; a lost wake-up costs one poll interval.
create or replace function wake(p_queue text, p_jobs bigint default 1) returns void
language plpgsql security definer set search_path from current as $$
begin
    perform pg_notify(current_schema() || '_wake', s.worker)
    from (select worker from sleepers where queue = p_queue order by random() limit least(p_jobs, 8) + 1) s;
end $$;

-- Store what a bounded pass (hf.tick) did, or a worker in one window. Return how many jobs wait in its queues now.
create or replace function record_tick(p_worker text, p_queues text[], p_seconds double precision, p_claimed integer,
    p_processed integer, p_succeeded integer, p_failed integer, p_throttled integer, p_contention integer,
    p_tenants jsonb, p_kind text default 'tick', p_depth_at_start bigint default null, out id uuid, out depth bigint)
language plpgsql security definer set search_path from current as $$
begin
    id := uuid7();
    depth := count_waiting(p_queues);
    insert into ticks (id, worker, started_at, ended_at, claimed, processed, succeeded, failed, throttled, contention,
                       depth, tenants, kind, depth_at_start)
    values (record_tick.id, p_worker, clock() - make_interval(secs => p_seconds), clock(), p_claimed, p_processed,
            p_succeeded, p_failed, p_throttled, p_contention, record_tick.depth, p_tenants, p_kind, p_depth_at_start);
end $$;

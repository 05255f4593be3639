-- Reclaim at once all jobs of a worker whose process has ended, as reclaim does for expired claims, and remove the
-- worker. Return the number of jobs reclaimed. Supervisors call it. If the process still runs, its tokens are stale
-- from then on and its writes are rejected.
-- Locks: the worker's rows; its claims in token order, skipping locked ones; then as reclaim.
-- Wakes: sleepers, through settle.
create or replace function reclaim_worker(p_worker text) returns integer
language plpgsql security definer set search_path from current as $$
declare
    v_jobs integer := 0; v_more integer; v_claims integer;
begin
    perform unregister_worker(p_worker);
    update claims c set expires_at = clock() where c.token = any (array(
        select k.token from claims k where k.worker = p_worker order by k.token for no key update skip locked));
    loop
        select count(*), coalesce(sum(cardinality(r.ids)) filter (where r.worker = p_worker), 0)
        into v_claims, v_more from reclaim() r;
        exit when v_claims = 0;
        v_jobs := v_jobs + v_more;
    end loop;
    return v_jobs;
end $$;

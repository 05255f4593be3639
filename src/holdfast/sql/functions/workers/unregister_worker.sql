-- Remove a worker that stopped; jobs it still holds are reclaimed when its leases expire. With p_gone false it is
-- only marked as stopping and no longer woken.
-- Locks: the worker's rows; its request to stop, unless that is locked (prune removes it later). It does not
--   wait for the leader row: a lead that is not released expires.
create or replace function unregister_worker(p_worker text, p_gone boolean default true) returns void
language plpgsql security definer set search_path from current as $$
begin
    delete from sleepers where worker = p_worker;
    if p_gone then
        delete from workers where id = p_worker;
        delete from worker_stops where ctid = any (array(
            select s.ctid from worker_stops s where s.worker = p_worker for update skip locked));
        update leader set expires_at = clock() where ctid = any (array(
            select l.ctid from leader l where l.worker = p_worker for update skip locked));
    else
        update workers set stopping = true where id = p_worker;
    end if;
end $$;

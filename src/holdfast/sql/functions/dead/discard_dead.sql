-- Discard failed and dead jobs: they keep their status but move to history, where retention removes them. Return the
-- ids it moved.
-- Locks: dead rows in id order; then as process_endings, since jobs may wait for their success or discard.
create or replace function discard_dead(p_ids uuid[]) returns setof uuid
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
begin
    return query
        with gone as (
            delete from dead where ctid = any (array(
                select d.ctid from dead d where d.id = any (p_ids) order by d.id for update))
            returning *),
        left_groups as (
            insert into error_arrivals (failed)
            select array_agg(f.part) from (
                select (fingerprint, task, null, null, null, null, 0, -count(*), null, clock())::failed as part
                from gone group by fingerprint, task) f
            having count(*) > 0),
        let_go as (
            insert into endings (job, status, durable, followed) select g.id, 'skipped', false, true from gone g
            where exists (select 1 from follows f where f.job = g.id))
        insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at, finished_at,
                             queue, task, worker, tenant, payload, dedupe_key, last_error, batch, failures)
        select g.id, status, priority, attempt, max_attempts, run_at, created_at, started_at, clock(),
               queue, task, worker, tenant, payload, dedupe_key, last_error, batch, failures
        from gone g returning history.id;
    if exists (select 1 from endings e where e.xid = pg_current_xact_id_if_assigned()) then perform process_endings(); end if;
end $$;

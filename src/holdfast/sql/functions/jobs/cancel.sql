-- Cancel jobs: a waiting one at once, a running one by a request that notifies its worker. Return for each id:
-- canceled, canceling (it ends as canceled unless it succeeds or fails for good first), finished (already at a final
-- status) or unknown.
-- Locks: as cancel_waiting; then running live rows in id order, so that none can end before its request is recorded.
-- Wakes: the workers that run the jobs, by "WORKER cancel"; they also call wanted_cancels periodically.
create or replace function cancel(p_ids uuid[]) returns table (id uuid, outcome text)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    v_rest uuid[] := array(select i from unnest(p_ids) i order by i); v_canceled uuid[] := '{}'; v_asked uuid[] := '{}';
begin
    -- A job may move between the tables meanwhile. One statement sees each job in exactly one place, so jobs that are
    -- still in live or later are tried again.
    loop
        v_canceled := v_canceled || array(select cancel_waiting(v_rest));
        with held as materialized (
            select l.id, l.token from live l where l.id = any (v_rest) and l.token is not null order by l.id for update),
        noted as (
            insert into cancels (id, token, requested_at) select h.id, h.token, clock() from held h
            on conflict (id) do update set token = excluded.token),
        requested as (
            select pg_notify(current_schema() || '_wake', c.worker || ' cancel')
            from claims c where c.token = any (array(select h.token from held h)))
        select v_asked || array_agg(h.id) into v_asked from held h where (select count(*) from requested) >= 0;
        v_rest := array(
            select r from unnest(v_rest) r
            where r <> all (v_canceled) and r <> all (v_asked) and (
                exists (select 1 from later t where t.id = r) or exists (select 1 from live l where l.id = r)));
        exit when v_rest = '{}';
    end loop;
    return query
        select g.id, case when g.id = any (v_canceled) then 'canceled'
                          when g.id = any (v_asked) then 'canceling'
                          when exists (select 1 from dead d where d.id = g.id)
                               or exists (select 1 from history h where h.id = g.id) then 'finished'
                          else 'unknown' end
        from unnest(p_ids) with ordinality as g(id, place) order by g.place;
end $$;

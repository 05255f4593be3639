-- Cancels jobs: a waiting one at once, a running one by notifying its worker. Returns for each id: canceled, canceling (its
-- worker was notified; it ends as canceled unless it succeeds or fails for good first), finished (already at a final status) or
-- unknown. A repeated call changes nothing.
-- Locks: as cancel_waiting; then running live rows in id order.
-- Wakes: the workers that run the jobs.
create or replace function cancel(p_ids uuid[]) returns table (id uuid, outcome text)
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_rest     uuid[] := array(select i from unnest(p_ids) i order by i);
    v_canceled uuid[] := '{}';
    v_told     uuid[] := '{}';
    v_again    uuid[];
begin
    -- A job may move between the tables meanwhile. One statement sees each job in exactly one place, so jobs that are
    -- still in live or later are tried again.
    loop
        v_canceled := v_canceled || array(select cancel_waiting(v_rest));
        v_told := v_told || array(select cancel_running(v_rest));
        v_again := array(
            select r from unnest(v_rest) r
            where r <> all (v_canceled) and r <> all (v_told) and (
                exists (select 1 from later t where t.id = r) or exists (select 1 from live l where l.id = r)));
        exit when v_again = '{}';
        v_rest := v_again;
    end loop;
    return query
        select g.id, case when g.id = any (v_canceled) then 'canceled'
                          when g.id = any (v_told) then 'canceling'
                          when exists (select 1 from dead d where d.id = g.id)
                               or exists (select 1 from history h where h.id = g.id) then 'finished'
                          else 'unknown' end
        from unnest(p_ids) with ordinality as g(id, place) order by g.place;
end $$;

-- Correct the counts in the view limit_drift, and return them. There are none unless something is broken.
-- Locks: an advisory lock against other repairs. The next claim applies the corrections (fold_releases).
-- Wakes: all workers, if something was repaired.
create or replace function reconcile_limits() returns table (key text, counted bigint, actual bigint)
language plpgsql security definer set search_path from current set jit = off as $$
#variable_conflict use_column
begin
    if not pg_try_advisory_xact_lock(1215259733, hashtext('the counts of ' || current_schema())) then  -- else both would correct
        raise exception 'another repair of limit counts is running; try again' using errcode = 'lock_not_available';
    end if;
    -- Recorded like the ends of jobs, so that concurrent claims stay correctly counted and do not wait.
    return query
        with drift as materialized (select d.key, d.counted, d.actual from limit_drift d),
        appended as (
            insert into releases (ended)
            select array_agg((d.key, d.counted - d.actual, 0, 0, null)::released) from drift d having count(*) > 0)
        select d.key, d.counted, d.actual from drift d;
    if found then perform pg_notify(current_schema() || '_wake', w.id || ' limits') from workers w; end if;
end $$;

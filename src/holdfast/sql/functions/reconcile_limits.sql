-- Compares every key's count of running jobs with the truth and answers with the keys that differ: key, counted, actual.
-- With p_repair it sets them right; what it answers is then what it has changed.
-- Called by: operators; `holdfast doctor` only looks (limit_drift). There is nothing to find unless something is broken.
-- Locks: with p_repair, the limits rows that differ, in key order. Who holds them keeps claims from counting, and jobs
--   that end meanwhile say so in limit_owed, which the count allows for.
-- Wakes: all workers, if something was repaired.
create or replace function reconcile_limits(p_repair boolean default false)
returns table (key text, counted bigint, actual bigint)
language plpgsql security definer
set search_path from current set jit = off
as $$
#variable_conflict use_column
declare
    v_keys text[];
begin
    if not p_repair then
        return query select d.key, d.counted, d.actual from limit_drift() d;
        return;
    end if;
    v_keys := array(select d.key from limit_drift() d);
    perform apply_limits(array(select u from unnest(v_keys) u where not exists (select 1 from limits m where m.key = u)));
    perform 1 from limits m where m.key = any (v_keys) order by m.key for update;
    return query  -- looked at once more: only now does the count stand still
        update limits m set running = m.running + (d.actual - d.counted)
        from (select * from limit_drift() d where d.key = any (v_keys)) d where m.key = d.key
        returning m.key, d.counted, d.actual;
    if found then
        perform tell_workers('limits');
    end if;
end $$;

-- Fires several schedules in one transaction, since many share a slot and a commit for each would take seconds. p_fires is a
-- JSON array of objects with the names of fire_schedule's parameters. A schedule that fails does not affect the rest. Returns
-- for each its jobs' ids (null if there was nothing to fire) or the problem.
-- Locks: as fire_schedule, one after the other in the order of their dedupe keys.
-- Wakes: sleepers, through enqueue.
create or replace function fire_schedules(p_fires jsonb) returns table (name text, ids uuid[], problem text)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
    v_fire jsonb;
begin
    for v_fire in
        select f.value from jsonb_array_elements(p_fires) with ordinality f
        order by (select s.options ->> 'dedupe_key' from schedules s where s.name = f.value ->> 'name'), f.ordinality
    loop
        name := v_fire ->> 'name';
        ids := null;
        problem := null;
        begin
            ids := fire_schedule(
                name, v_fire ->> 'cron', v_fire ->> 'zone', (v_fire ->> 'next_at')::timestamptz,
                array(select s::timestamptz from jsonb_array_elements_text(v_fire -> 'slots') s),
                (v_fire ->> 'then')::timestamptz);
        exception
            when serialization_failure or deadlock_detected then raise;  -- the caller repeats the whole call
            when others then problem := sqlerrm;
        end;
        return next;
    end loop;
end $$;

-- Fire schedules: enqueue the job of each for the given slots, with the slot as run_at, and set its next_at to
-- "then". p_fires is a JSON array of {name, cron, zone, next_at, slots, then}; cron, zone and next_at are what the
-- slots were computed from. Return for each its jobs' ids, null if the row has changed or there is nothing to fire, or
-- the problem, which it records for operators until the schedule fires or is registered again. {name, problem} only
-- records a problem.
-- Locks: the schedule's row, giving up if it is locked; then as enqueue_many, after 100 ms. Wakes: through enqueue.
create or replace function fire_schedules(p_fires jsonb) returns table (name text, ids uuid[], problem text)
language plpgsql security definer set search_path from current set lock_timeout = '100ms' as $$
#variable_conflict use_column
declare
    v_fire jsonb; v_due record; v_last timestamptz; v_schedule schedules;
begin
    for v_fire in  -- in the order of their dedupe keys
        select f.value from jsonb_array_elements(p_fires) with ordinality f
        order by (select s.options ->> 'dedupe_key' from schedules s where s.name = f.value ->> 'name'), f.ordinality
    loop
        name := v_fire ->> 'name';
        ids := null;
        problem := v_fire ->> 'problem';
        begin  -- a schedule that fails does not affect the rest
            if problem is not null then raise exception '%', problem; end if;
            select * into v_due from jsonb_to_record(v_fire)
                as f(cron text, zone text, next_at timestamptz, slots timestamptz[], "then" timestamptz);
            v_last := v_due.slots[cardinality(v_due.slots)];
            if v_due.slots is null or v_due.slots is distinct from array(select distinct s from unnest(v_due.slots) s order by s)
               or v_due.slots[1] < v_due.next_at or v_last >= coalesce(v_due."then", 'infinity') or v_last > clock()
               or v_due."then" <= v_due.next_at or v_due."then" not between '1970-01-01' and '9999-12-31' then
                raise exception 'schedule % cannot be fired for %: slots must be ascending, from next_at (%) on, before then (%) and '
                    'not in the future', name, v_due.slots, v_due.next_at, v_due."then" using errcode = 'invalid_parameter_value';
            end if;
            -- Compared and moved on in one transaction: each slot is fired once, also after a crash or with two leaders.
            select * into v_schedule from schedules s
            where s.name = v_fire ->> 'name' and s.cron = v_due.cron and s.zone = v_due.zone and s.next_at = v_due.next_at
              and s.next_at <= clock() and not s.paused
            for update skip locked;
            if found then
                -- A slot whose dedupe key is held creates no job: the holder's id is returned for it.
                ids := array(select e.id from enqueue_many(
                    (select coalesce(jsonb_agg(v_schedule.options || jsonb_build_object(
                                'task', v_schedule.task, 'payload', v_schedule.payload, 'run_at', s) order by s), '[]')
                     from unnest(v_due.slots) s), 'existing', true) e);
                update schedules s
                set next_at = v_due."then", problem = null, last_at = coalesce(v_last, s.last_at),
                    last_job = coalesce(ids[cardinality(ids)], s.last_job)
                where s.name = v_schedule.name;
            end if;
        exception
            when serialization_failure or deadlock_detected then raise;  -- the caller repeats the whole call
            when others then
                ids := null;
                problem := sqlerrm;
        end;
        if problem is not null then
            update schedules s set problem = left(fire_schedules.problem, 1000) where s.name = (
                select k.name from schedules k
                where k.name = v_fire ->> 'name' and k.problem is distinct from left(fire_schedules.problem, 1000)
                for update skip locked);
        end if;
        return next;
    end loop;
end $$;

-- Enqueues a due schedule's job once for each of the given slots, with the slot as run_at, and sets the schedule's next_at to
-- p_then. Returns the jobs' ids, or null if there is nothing to fire: the schedule was fired, is being fired, was paused or has
-- another timetable.
-- The caller passes what it computed the slots from: cron, zone and next_at. The slots are fired only if the row is unchanged,
-- in the transaction that moves next_at. So each slot is fired exactly once, also after a crash or when two leaders overlap.
-- Locks: the schedule's row, giving up if it is locked; then as enqueue_many, giving up after 100 ms.
-- Wakes: sleepers, through enqueue.
create or replace function fire_schedule(
    p_name text, p_cron text, p_zone text, p_next_at timestamptz, p_slots timestamptz[], p_then timestamptz)
returns uuid[]
language plpgsql security definer
set search_path from current set lock_timeout = '100ms'
as $$
declare
    v_schedule schedules;
    v_ids      uuid[];
begin
    if p_slots is null or p_slots is distinct from array(select distinct s from unnest(p_slots) s order by s)
       or p_slots[1] < p_next_at or p_slots[cardinality(p_slots)] >= coalesce(p_then, 'infinity')
       or p_slots[cardinality(p_slots)] > clock() or p_then <= p_next_at or p_then not between '1970-01-01' and '9999-12-31'
    then
        raise exception 'schedule % cannot be fired for %: slots must be ascending, from next_at (%) on, before p_then (%) and '
            'not in the future', p_name, p_slots, p_next_at, p_then using errcode = 'invalid_parameter_value';
    end if;
    select * into v_schedule from schedules s
    where s.name = p_name and s.cron = p_cron and s.zone = p_zone and s.next_at = p_next_at and s.next_at <= clock()
      and not s.paused
    for update skip locked;
    if not found then
        return null;
    end if;
    -- A slot whose dedupe key is held creates no job: the holder's id is returned for it.
    v_ids := array(select e.id from enqueue_many(
        (select coalesce(jsonb_agg(v_schedule.options || jsonb_build_object(
                    'task', v_schedule.task, 'payload', v_schedule.payload, 'run_at', s) order by s), '[]')
         from unnest(p_slots) s), 'existing', true) e);
    update schedules s
    set next_at = p_then, problem = null,
        last_at = coalesce(p_slots[cardinality(p_slots)], s.last_at),
        last_job = coalesce(v_ids[cardinality(v_ids)], s.last_job)
    where s.name = p_name;
    return v_ids;
end $$;

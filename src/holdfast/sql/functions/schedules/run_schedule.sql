-- Enqueue a schedule's job once, now, in addition to its slots and even while it is paused. Return the job's id, or
-- null if the schedule does not exist. A client that lost the connection repeats the call with the same p_id.
-- Locks: the schedule's row, then as enqueue_many.
-- Wakes: sleepers, through enqueue.
create or replace function run_schedule(p_name text, p_id uuid default null, p_by text default null,
    p_reason text default null) returns uuid
language plpgsql security definer set search_path from current as $$
declare
    v_schedule schedules; v_id uuid;
begin
    select * into v_schedule from schedules s where s.name = p_name for update;
    if not found then return null; end if;
    select e.id into v_id from enqueue_many(jsonb_build_array(v_schedule.options || jsonb_build_object(
        'task', v_schedule.task, 'payload', v_schedule.payload, 'id', p_id))) e;
    update schedules s set last_job = v_id where s.name = p_name;
    perform record_action('schedules.run', p_name, p_by, p_reason, null, jsonb_build_object('job', v_id));
    return v_id;
end $$;

-- Enqueue the undo of a job's finished steps, the last step's first: each is a job that starts after the one before
-- has succeeded, or was discarded. Steps whose undo was enqueued earlier are left out. Return the number of undo jobs.
-- Locks: the job's rows of steps, then as enqueue.
-- Wakes: sleepers of the queue of the first undo.
create or replace function undo_steps(p_job uuid) returns integer
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_step record; v_id uuid; v_last uuid; v_undone integer := 0;
begin
    perform 1 from steps s where s.job = p_job and s.undo is not null order by s.number for update;
    for v_step in select s.name, s.undo from steps s
        where s.job = p_job and s.undo is not null and s.undo_job is null and s.finished_at is not null order by s.number desc
    loop
        select e.id into v_id from enqueue_many(jsonb_build_array(v_step.undo || jsonb_build_object('id', uuid7()) || case
            when v_last is null then '{}' else jsonb_build_object('after', jsonb_build_array(v_last), 'on_failure', 'hold') end), 'existing', true) e;
        update steps set undo_job = v_id where job = p_job and name = v_step.name;
        v_last := v_id;
        v_undone := v_undone + 1;
    end loop;
    return v_undone;
end $$;

-- Make the change of an action to jobs one by one, after an error with all of them at once, until p_until. Those that
-- have to wait for another transaction count as locked, and so does the rest when the time is over; a job that cannot
-- be changed is skipped.
-- Locks: as apply_action, and gives up what it cannot have at once.
create or replace function apply_singly(p_kind text, p_params jsonb, p_ids uuid[], p_until timestamptz, out changed uuid[],
    out locked uuid[], out problem text)
language plpgsql set search_path from current set lock_timeout = '5ms' as $$
declare
    v_id uuid; v_one record;
begin
    changed := '{}';
    locked := '{}';
    foreach v_id in array p_ids loop
        if clock_timestamp() > p_until then
            locked := locked || v_id;
            continue;
        end if;
        begin
            v_one := apply_action(p_kind, p_params, array[v_id]);
            changed := changed || v_one.changed;
            locked := locked || v_one.locked;
        exception
            when lock_not_available or deadlock_detected then locked := locked || v_id;
            when insufficient_resources or operator_intervention then raise;
            when others then problem := format('job %s: %s', v_id, sqlerrm);
        end;
    end loop;
end $$;

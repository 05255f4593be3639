-- Roles with least rights, named after the schema: enqueue may add jobs but not read them, worker may run them through
-- functions but not write tables, reader may look, admin may do all that an operator does. Applied after every change
-- of a function. Where the migrating user may not create roles they are skipped, and doctor says so.
do $$
declare
    v_schema text := current_schema();
    v_role   text;
begin
    foreach v_role in array array['enqueue', 'worker', 'reader', 'admin'] loop
        begin
            execute format('create role %I nologin', v_schema || '_' || v_role);
        exception when duplicate_object or unique_violation then null;
        end;
        execute format('grant usage on schema %I to %I', v_schema, v_schema || '_' || v_role);
    end loop;
    execute format('revoke all on all functions in schema %I from public', v_schema);
    execute format('grant execute on function enqueue, enqueue_many, wake to %I, %I, %I',
                   v_schema || '_enqueue', v_schema || '_worker', v_schema || '_admin');
    -- A plain job may be inserted or copied; what a claim sets, nobody may.
    execute format('grant insert (id, queue, priority, task, tenant, payload, max_attempts, retry) on live to %I, %I, %I',
                   v_schema || '_enqueue', v_schema || '_worker', v_schema || '_admin');
    execute format('grant execute on function claim, sleep, finish, fail, snooze, release, renew, reclaim, promote, '
                   'take_lead, upkeep, register_worker, unregister_worker, make_partitions, prune to %I, %I',
                   v_schema || '_worker', v_schema || '_admin');
    execute format('grant execute on function cancel, retry_dead, discard_dead to %I', v_schema || '_admin');
    execute format('grant select on all tables in schema %I to %I, %I, %I', v_schema,
                   v_schema || '_reader', v_schema || '_worker', v_schema || '_admin');
    execute format('grant execute on function clock to %I, %I, %I', v_schema || '_reader',
                   v_schema || '_worker', v_schema || '_admin');
    execute format('grant insert, update on settings to %I', v_schema || '_admin');
    execute format('grant select on schema_info, sleepers to %I', v_schema || '_enqueue');
exception when insufficient_privilege then
    raise notice 'roles were not created: %', sqlerrm;
end $$;

-- Roles with minimal privileges, named after the schema. enqueue adds jobs but cannot read them; worker also runs them,
-- through functions only; reader reads; service is for `holdfast serve`, which adds, reads and operates but never
-- claims; admin may do everything an operator does. Applied after every change of a function. If the migrating user may
-- not create roles, they are skipped, and doctor reports it.
do $$ begin
    execute format('revoke all on all functions in schema %I from public', current_schema());
end $$;
do $$
declare
    v_schema  text := current_schema();
    v_enqueue text := quote_ident(v_schema || '_enqueue');
    v_worker  text := quote_ident(v_schema || '_worker');
    v_reader  text := quote_ident(v_schema || '_reader');
    v_service text := quote_ident(v_schema || '_service');
    v_admin   text := quote_ident(v_schema || '_admin');
    v_role    text; v_rights text;
begin
    foreach v_role in array array[v_enqueue, v_worker, v_reader, v_service, v_admin] loop
        begin
            execute format('create role %s nologin', v_role);
        exception when duplicate_object or unique_violation then null;
        end;
        execute format('grant usage on schema %I to %s', v_schema, v_role);
        execute format('grant select on schema_info to %s', v_role);
    end loop;
    -- Roles belong to the cluster: a migration of another database may grant the same concurrently.
    begin
        execute format('grant %s to %s', v_enqueue, v_worker);
        execute format('grant %s, %s to %s', v_enqueue, v_reader, v_service);
        execute format('grant %s, %s to %s', v_worker, v_service, v_admin);
    exception when internal_error or unique_violation then null;
    end;

    for v_role, v_rights in values
        (v_enqueue, 'execute on function enqueue, enqueue_many, emit, publish_event, open_batch, add_to_batch, close_batch, '
                    'wake, announce_lanes, lane_of, fit_keys, signal'),
        -- A plain job may be inserted or copied in; no role may write the columns that a claim sets.
        (v_enqueue, 'insert (id, queue, priority, task, tenant, payload, max_attempts, retry, batch, headers, lane, keys) on live'),
        (v_enqueue, 'select on sleepers'),
        (v_worker, 'execute on function claim, sleep, finish, fail, snooze, release, renew, reclaim, promote, take_lead, upkeep, '
                   'record_tick, count_waiting, register_worker, unregister_worker, register_limits, make_partitions, prune, '
                   'expire, complete_batches, report_progress, report_log, wanted_cancels, keep_result, reclaim_worker, mark_started, '
                   'held_jobs, register_schedules, next_schedules, fire_schedules, read_endpoint, read_body, disable_endpoint, '
                   'webhooks_wanted, take_snapshot, work_actions, store_steps, read_steps, store_step_result, start_child, start_batch'),
        (v_reader, 'select on all tables in schema ' || quote_ident(v_schema)),
        (v_reader, 'execute on function clock, idempotency_key, rule_of, why, claimed_jobs, count_jobs, is_alive, level_of, '
                   'may_see, seen_jobs, look_at, page_floor, job_marks, figures, wanted_workers, wait_at, has_args'),
        (v_service, 'execute on function use_token, begin_response, store_response, cancel, cancel_batch, retry_dead, '
                    'discard_dead, set_limit, clear_limit, pause, resume, reset_breaker, stop_worker, add_endpoint, change_endpoint, '
                    'rotate_secret, remove_endpoint, test_endpoint, redeliver, disable_endpoint, start_action, preview_action, '
                    'work_actions, abort_action, act_on_jobs, edit_job, compensate, rerun'),
        (v_admin, 'execute on function pause_schedule, run_schedule, remove_schedule, create_token, revoke_token, '
                  'reconcile_limits, after_restore'),
        (v_admin, 'insert, update on settings'), (v_admin, 'delete on blocks')
    loop
        execute format('grant %s to %s', v_rights, v_role);
    end loop;
    execute format('revoke select on webhook_endpoints, api_tokens, responses, cursor_keys from %s', v_reader);
    -- All but the secrets.
    execute format('grant select (id, tenant, url, events, prefix, timeout, dev, enabled, disabled_reason, description, '
                   'created_at, updated_at) on webhook_endpoints to %s', v_reader);
    execute format('grant select (id, name, shown, tenant, scopes, created_at, expires_at, revoked_at, last_used_at, priority, rate) '
                   'on api_tokens to %s', v_reader);
    execute format('grant select on cursor_keys to %s', v_service);
exception when insufficient_privilege then
    raise notice 'roles were not set up: %', sqlerrm;
end $$;

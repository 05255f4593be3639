-- Process one action for p_within, and return its id and state; null if there is none to process. `more`: call it again
-- soon, else after a longer pause. Commit each call. Any number of callers is safe. The leader calls it, and so may any
-- other program. p_id: only this action.
-- Locks: the action's row, skipping locked ones; then as apply_action, giving up after 50 ms what another transaction
--   holds. Such jobs are tried again.
create or replace function work_actions(p_id uuid default null, p_within interval default '50 ms', out id uuid, out state text,
    out more boolean)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set lock_timeout = '50ms' as $$
#variable_conflict use_column
declare
    v_action actions; v_scanned bigint;
begin
    more := false;
    select a.* into v_action from actions a where a.state = 'running' and (p_id is null or a.id = p_id)
    order by a.worked_at nulls first, a.id limit 1 for update skip locked;
    if not found then return; end if;
    begin
        v_scanned := v_action.scanned;
        v_action := step_action(v_action, clock_timestamp() + p_within);
        more := v_action.state = 'running' and v_action.scanned > v_scanned;
    exception
        when lock_not_available or deadlock_detected or insufficient_resources or operator_intervention then raise;
        when others then
            v_action.state := 'failed';
            v_action.error := sqlerrm;
    end;
    update actions a set
        state = v_action.state, finished_at = case when v_action.state <> 'running' then clock() end,
        place_id = v_action.place_id, scanned = v_action.scanned, matched = v_action.matched, changed = v_action.changed,
        skipped = v_action.skipped, locked = v_action.locked, worked_at = clock(), error = v_action.error
    where a.id = v_action.id;
    more := more or (p_id is null and exists (
        select 1 from actions a where a.state = 'running' and a.id <> v_action.id
          and (a.worked_at is null or a.worked_at < clock() - interval '1 second')));
    work_actions.id := v_action.id;
    work_actions.state := v_action.state;
end $$;

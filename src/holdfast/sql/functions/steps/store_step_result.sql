-- Store the result of a step that was stored in its function's own transaction, which ends before the function returns,
-- and the undo made from it. The first result stays.
-- Locks: the row of steps.
create or replace function store_step_result(p_id uuid, p_token bigint, p_name text, p_result json, p_undo jsonb default null) returns void
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
begin
    if exists (select 1 from live l where l.id = p_id and l.token = p_token) then
        update steps set result = p_result, undo = coalesce(p_undo, undo) where job = p_id and name = p_name and kind = 'step' and result is null;
    end if;
end $$;

-- Explain where a job is and why it does not run.
-- Returns: {"id", "status", "sentence", "reasons", "notes"}. A reason has a "kind", its own "text" and the facts; the
--   strongest obstacle is first. Kinds, while it waits: waits, deadline, batch, paused, concurrency, no_worker,
--   stopping, no_task, later, breaker, rate, busy, priority, behind, ring, soon; else running, lost, canceling,
--   succeeded, failed, dead, canceled, unknown. Counts are bounded (facts then have "more": true): the backlog does not
--   add to the cost.
create or replace function why(p_id uuid) returns jsonb
language plpgsql stable security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_status text := (select j.status::text from jobs j where j.id = p_id); v_all jsonb; v_reasons jsonb; v_rest text;
begin
    v_all := case when v_status is null then jsonb_build_array(jsonb_build_object('kind', 'unknown', 'rank', 0, 'text',
                      'there is no such job: it was never accepted, or history has dropped it since'))
                  when v_status in ('queued', 'retrying', 'waiting') then why_waiting(p_id)
                  else why_started(p_id) end;
    select jsonb_agg(r order by (r ->> 'rank')::integer, r ->> 'key') into v_reasons
    from jsonb_array_elements(v_all) r where (r ->> 'rank')::integer < 95;
    select string_agg(u.short, ', ' order by u.n) into v_rest from (
        select r ->> 'short' as short, min(n) as n from jsonb_array_elements(v_reasons) with ordinality as g(r, n)
        where n > 1 and (r ->> 'kind' <> 'ring' or (v_reasons -> 0 ->> 'rank')::integer >= 80)  -- turns matter only to a job that could run
        group by 1) u;
    return jsonb_build_object(
        'id', p_id, 'status', v_status,
        'sentence', (v_reasons -> 0 ->> 'text') || coalesce(' (then: ' || v_rest || ')', ''),
        'reasons', (select jsonb_agg(r - 'rank' - 'short') from jsonb_array_elements(v_reasons) r),
        'notes', (select coalesce(jsonb_agg(r - 'rank' - 'short'), '[]') from jsonb_array_elements(v_all) r
                  where (r ->> 'rank')::integer >= 95));
end $$;

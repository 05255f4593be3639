-- Store the start of a step that waits for a child or a batch. Return started, existing (the job has a step of that
-- name) or lost (the token is no longer the job's).
-- Locks: the job's live row, so that it is not reclaimed before its children are there; the row of steps.
create or replace function begin_step(p_id uuid, p_token bigint, p_name text, p_kind text, p_ref uuid, p_detail jsonb) returns text
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_job record;
begin
    select l.durable, l.attempt into v_job from live l where l.id = p_id and l.token = p_token for key share;
    if not found then return 'lost'; end if;
    insert into steps (job, name, kind, ref, detail, attempt, started_at, check_at)
    values (p_id, p_name, p_kind, p_ref, p_detail, v_job.attempt, clock(), case when v_job.durable is not true then clock() + interval '1 day' end)
    on conflict do nothing;
    if not found then return 'existing'; end if;
    if v_job.durable is not true then
        update live set durable = true where id = p_id and token = p_token;
        if not found then return 'lost'; end if;
    end if;
    return 'started';
end $$;

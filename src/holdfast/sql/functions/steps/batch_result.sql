-- Return the counts of a batch that has ended, or of one that retention has removed; null while it has not ended.
create or replace function batch_result(p_batch uuid) returns json
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_batch record;
begin
    select * into v_batch from batch_progress b where b.id = p_batch;
    return case when v_batch.id is null then json_build_object('status', 'unknown', 'total', 0, 'succeeded', 0, 'failed', 0, 'canceled', 0)
                when v_batch.finished_at is not null then json_build_object(
                    'status', v_batch.status, 'total', v_batch.total, 'succeeded', v_batch.succeeded,
                    'failed', v_batch.failed, 'canceled', v_batch.canceled) end;
end $$;

-- Says that a worker waits for work on these queues; answers in how many seconds the next delayed job is due.
-- Called by: workers that found nothing. They claim once more before they really wait, so that a job which was
-- committed between the empty claim and this row is not left for the next poll.
-- Locks: the worker's own sleepers rows.
-- Wakes: nobody.
create or replace function sleep(p_worker text, p_queues text[]) returns double precision
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
    insert into sleepers (queue, worker) select q, p_worker from unnest(p_queues) q on conflict do nothing;
    -- Not what was due long ago: it has been promoted, and its index entries may still be in the way.
    return (select extract(epoch from min(run_at) - clock()) from later where run_at >= clock() - interval '10 seconds');
end $$;

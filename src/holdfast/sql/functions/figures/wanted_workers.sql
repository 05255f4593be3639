-- Return how many slots (workers of one slot) the queue wants: as many as keep up with the rate of the last minute and
-- start the present backlog within p_seconds. 0 when nothing waits or runs. For autoscalers: it reads one snapshot, and
-- without a recent one at most 10,000 rows.
create or replace function wanted_workers(p_queue text, p_seconds double precision default 60) returns integer
language plpgsql stable security definer set search_path from current set enable_seqscan = off set jit = off as $$
declare
    v_figures jsonb := (select s.figures from snapshots s where s.at > clock() - interval '15 seconds' order by s.at desc limit 1);
    v_queue record; v_ready double precision; v_mean double precision;
begin
    if p_seconds is null or not p_seconds > 0 then
        raise exception 'wanted_workers needs a time above zero, got %', p_seconds using errcode = 'invalid_parameter_value';
    end if;
    select * into v_queue from jsonb_to_recordset(v_figures -> 'queues') as q(
        queue text, ready bigint, running bigint, ended double precision, run_seconds double precision) where q.queue = p_queue;
    v_ready := coalesce(v_queue.ready, (
        select count(*) from (select 1 from live l where l.queue = p_queue and l.token is null limit 10000) w));
    v_mean := coalesce(v_queue.run_seconds / nullif(v_queue.ended, 0), (
        select m.run_seconds / m.ended from minutes m
        where m.queue = p_queue and m.ended > 0 and m.minute > clock() - interval '1 hour' order by m.minute desc limit 1), 1);
    return ceil(least(greatest(
        v_ready * v_mean / p_seconds + coalesce(v_queue.ended, 0) * v_mean / 60,  -- the backlog, and what keeps coming
        case when v_ready > 0 or v_queue.running > 0 then 1 else 0 end), 1000000))::integer;
end $$;

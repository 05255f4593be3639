-- Return those of the given jobs that match a filter, in ascending order. p_before: jobs that were enqueued, or died,
-- later do not match.
create or replace function matching_jobs(p_where job_filter, p_before timestamptz, p_ids uuid[], p_tenant text,
    p_deliveries boolean) returns uuid[]
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_dead boolean := p_where.status && '{failed,dead}'; v_error text := '.' || p_where.error;
    v_begin text := case when p_where.task like '%*' then rtrim(p_where.task, '*') end;
begin
    return array(
        select j.id from (
            select true as ended, d.id, d.status, d.task, d.queue, d.tenant, d.batch, d.last_error, d.fingerprint, d.created_at,
                   d.finished_at, d.payload from dead d
            union all
            select false, l.id, case when l.token is not null then 'running'::job_status
                                     when l.attempt > 0 or l.last_error is not null then 'retrying' else 'queued' end,
                   l.task, l.queue, l.tenant, l.batch, l.last_error, null, l.created_at, null, l.payload from live l
            union all
            select false, t.id, case when t.waits_for is not null then 'waiting'::job_status
                                     when t.attempt > 0 or t.last_error is not null then 'retrying' else 'queued' end,
                   t.task, t.queue, t.tenant, t.batch, t.last_error, null, t.created_at, null, t.payload from later t) j
        where j.ended = v_dead and j.id = any (p_ids)
          and j.status = any (p_where.status) and coalesce(j.finished_at, j.created_at) <= p_before
          and (p_tenant is null or j.tenant = p_tenant) and (p_deliveries or j.task <> 'holdfast.webhook')
          and (p_where.task is null or j.task = p_where.task or starts_with(j.task, v_begin))
          and (p_where.queue is null or j.queue = p_where.queue)
          and (p_where.tenant is null or j.tenant = p_where.tenant)
          and (p_where.batch is null or j.batch = p_where.batch)
          -- Lists show only the last part of an error's type, so that part alone must match.
          and (v_error is null or right('.' || (j.last_error ->> 'type'), length(v_error)) = v_error
               or j.last_error ->> 'code' = p_where.error)
          and (p_where.error_group is null or j.fingerprint = p_where.error_group)
          and (p_where.since is null or j.created_at >= p_where.since)
          and (p_where.until is null or j.created_at < p_where.until)
          and (p_where.finished_since is null or j.finished_at >= p_where.finished_since)
          and (p_where.finished_until is null or j.finished_at < p_where.finished_until)
          and (p_where.args is null or has_args(j.payload, p_where.args))
        order by j.id);
end $$;

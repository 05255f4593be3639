-- Reads p_most jobs from an id on, those that are dead or those that have not ended, and returns the ids of those that
-- match, the last id read and the number read. One statement sees each job in exactly one table, so a scan in the order
-- of the ids meets none twice. p_except: the first id, where a scan continues. p_before: jobs that were enqueued, or
-- died, later do not match.
create or replace function scan_jobs(p_where job_filter, p_before timestamptz, p_from uuid, p_except uuid, p_to uuid,
    p_most integer, p_tenant text, p_deliveries boolean, out ids uuid[], out last_id uuid, out scanned integer)
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_sort = off as $$
declare
    v_dead boolean := p_where.status && '{failed,dead}'; v_error text := '.' || p_where.error;
    v_begin text := case when p_where.task like '%*' then rtrim(p_where.task, '*') end;
begin
    select array_agg(s.id) filter (where s.fits), (array_agg(s.id))[count(*)], count(*)
    into scan_jobs.ids, scan_jobs.last_id, scan_jobs.scanned
    from (
        select j.id, (
            j.status = any (p_where.status) and coalesce(j.finished_at, j.created_at) <= p_before
            and (p_tenant is null or j.tenant = p_tenant) and (p_deliveries or j.task <> 'holdfast.webhook')
            and (p_where.task is null or j.task = p_where.task or starts_with(j.task, v_begin))
            and (p_where.queue is null or j.queue = p_where.queue)
            and (p_where.tenant is null or j.tenant = p_where.tenant)
            and (p_where.batch is null or j.batch = p_where.batch)
            -- Lists show only the last part of an error's type, so that part alone must match.
            and (v_error is null or right('.' || (j.last_error ->> 'type'), length(v_error)) = v_error
                 or j.last_error ->> 'code' = p_where.error)
            and (p_where.since is null or j.created_at >= p_where.since)
            and (p_where.until is null or j.created_at < p_where.until)
            and (p_where.finished_since is null or j.finished_at >= p_where.finished_since)
            and (p_where.finished_until is null or j.finished_at < p_where.finished_until)
            and (p_where.args is null or has_args(j.payload, p_where.args))) is true as fits
        from (
            select true as ended, d.id, d.status, d.task, d.queue, d.tenant, d.batch, d.last_error, d.created_at, d.finished_at,
                   d.payload from dead d where p_where.error_group is null
            union all
            select true, d.id, d.status, d.task, d.queue, d.tenant, d.batch, d.last_error, d.created_at, d.finished_at, d.payload
            from dead d where d.fingerprint = p_where.error_group
            union all
            select false, l.id, case when l.token is not null then 'running'::job_status
                                     when l.attempt > 0 or l.last_error is not null then 'retrying' else 'queued' end,
                   l.task, l.queue, l.tenant, l.batch, l.last_error, l.created_at, null, l.payload from live l
            union all
            select false, t.id, case when t.attempt > 0 or t.last_error is not null then 'retrying'::job_status else 'queued' end,
                   t.task, t.queue, t.tenant, t.batch, t.last_error, t.created_at, null, t.payload from later t) j
        -- Outside the union: inside, a branch would lose its order and all of it would be sorted.
        where j.ended = v_dead and j.id >= p_from and j.id <= p_to and j.id is distinct from p_except
        order by j.id limit p_most) s;
    scan_jobs.ids := coalesce(scan_jobs.ids, '{}');
end $$;

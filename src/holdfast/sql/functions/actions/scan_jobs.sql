-- Read p_most jobs from an id on, those that are dead or those that have not ended, and return the ids of those that
-- match, the last id read and the number read. It is stable, so that its parts have one snapshot, which has each job in
-- exactly one table: a scan in the order of the ids meets none twice. Parameters: see next_jobs and matching_jobs.
create or replace function scan_jobs(p_where job_filter, p_before timestamptz, p_from uuid, p_except uuid, p_to uuid,
    p_most integer, p_tenant text, p_deliveries boolean, out ids uuid[], out last_id uuid, out scanned integer)
language plpgsql stable set search_path from current as $$
declare
    v_next uuid[] := next_jobs(p_where, p_from, p_except, p_to, p_most);
begin
    scan_jobs.ids := matching_jobs(p_where, p_before, v_next, p_tenant, p_deliveries);
    scan_jobs.scanned := cardinality(v_next);
    scan_jobs.last_id := v_next[scan_jobs.scanned];
end $$;

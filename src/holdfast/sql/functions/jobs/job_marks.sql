-- Return for each of the given jobs, in their order, a text that changes whenever the job does; for an ended job, only
-- its progress counts. The service polls it for all requests that wait for a job, and reads only the jobs that have
-- changed.
create or replace function job_marks(p_ids uuid[]) returns text[]
language plpgsql stable security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
begin
    return array(
        select coalesce(
                   (select concat_ws(' ', 'live', t.attempt, t.token, t.run_at) from live t where t.id = w.id),
                   (select concat_ws(' ', 'later', t.attempt, t.run_at) from later t where t.id = w.id),
                   '')
               || coalesce((select ' ' || t.updated_at from progress t where t.id = w.id), '')
        from unnest(p_ids) with ordinality as w(id, place) order by w.place);
end $$;

-- Create the groups of these failures that are missing, up to 200 for a task, and its group "other" if there are more.
-- The caller holds the lock of error groups.
create or replace function make_error_groups(p_failed failed[]) returns void
language sql set search_path from current set jit = off set enable_seqscan = off as $$
    insert into error_groups (fingerprint, task, type, code, message, frame, first_at, last_at)
    select n.fingerprint, n.task, n.type, n.code, n.message, n.frame, n.first_at, n.last_at from (
        select f.fingerprint, f.task, max(f.type) as type, max(f.code) as code, max(f.message) as message,
               max(f.frame) as frame, min(f.at) as first_at, max(f.at) as last_at,
               row_number() over (partition by f.task order by min(f.at), f.fingerprint) as place
        from unnest(p_failed) f
        where f.attempts > 0 and not exists (select 1 from error_groups g where g.fingerprint = f.fingerprint)
        group by f.fingerprint, f.task) n
    where n.place <= 200 - (select count(*) from error_groups g where g.task = n.task)
    on conflict do nothing;
    insert into error_groups (fingerprint, task, type, first_at, last_at)
    select other_errors(f.task), f.task, 'other', min(f.at), max(f.at) from unnest(p_failed) f
    where f.attempts > 0 and not exists (select 1 from error_groups g where g.fingerprint = f.fingerprint)
    group by f.task on conflict do nothing;
$$;

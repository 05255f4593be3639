-- Set the start of claimed jobs that waited for a child process, as seconds ago. The wait is not run time: an
-- attempt's duration and usage count from here. Workers call it on the connection on which they finish jobs, so it
-- never comes after a job's end.
-- Locks: the claims, against finish, which finds rows by ctid; then live rows. It waits for none: a job whose rows are
--   locked keeps its start.
create or replace function mark_started(p_ids uuid[], p_tokens bigint[], p_ago double precision[]) returns void
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_job record;
begin
    for v_job in select g.id, g.token, make_interval(secs => greatest(g.ago, 0)) as ago
        from unnest(p_ids, p_tokens, p_ago) as g(id, token, ago) order by g.token, g.id
    loop
        perform 1 from claims c where c.token = v_job.token for update skip locked;
        if found then
            update live l set claimed_at = greatest(l.claimed_at, clock() - v_job.ago) where l.ctid = (
                select k.ctid from live k where k.id = v_job.id and k.token = v_job.token for update skip locked);
        end if;
    end loop;
end $$;

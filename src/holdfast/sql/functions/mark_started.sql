-- Sets the start of claimed jobs that had to wait for a child process: so many seconds ago. What waited is no run time, and an
-- attempt's duration and usage count from here.
-- Called by: workers, on the connection on which they finish jobs, so that it never comes after a job's end.
-- Locks: the claims, against finish, which finds its rows by their place; then live rows. None is waited for: a job whose rows are
--   locked keeps the start it has.
-- Wakes: nobody.
create or replace function mark_started(p_ids uuid[], p_tokens bigint[], p_ago double precision[]) returns void
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off
as $$
declare
    v_job record;
begin
    for v_job in
        select g.id, g.token, make_interval(secs => greatest(g.ago, 0)) as ago
        from unnest(p_ids, p_tokens, p_ago) as g(id, token, ago) order by g.token, g.id
    loop
        perform 1 from claims c where c.token = v_job.token for update skip locked;
        if found then
            update live l set claimed_at = greatest(l.claimed_at, clock() - v_job.ago) where l.ctid = (
                select k.ctid from live k where k.id = v_job.id and k.token = v_job.token for update skip locked);
        end if;
    end loop;
end $$;

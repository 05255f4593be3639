-- Stores what handlers say of their progress: an array of {"id", "token", "done", "total", "message"}. What comes from a
-- worker that has lost the job is ignored.
-- Called by: workers, in batches, at most a few times a second.
-- Locks: progress rows in id order. One that another transaction holds is left out: a worker's ends come after its reports.
-- Wakes: nobody.
create or replace function report_progress(p_reports jsonb) returns void
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set lock_timeout = '50ms'
as $$
begin
    insert into progress as p (id, done, total, message, updated_at)
    select g.id, coalesce(g.done, 0), g.total, left(g.message, 1000), clock()
    from (select distinct on (r.id) r.* from rows from (jsonb_to_recordset(p_reports)
              as (id uuid, token bigint, done double precision, total double precision, message text))
              with ordinality as r(id, token, done, total, message, place)
          order by r.id, r.place desc) g
        cross join lateral (select 1 from live l where l.id = g.id and l.token = g.token offset 0) held
    on conflict (id) do update
        set done = excluded.done, total = excluded.total, message = excluded.message, updated_at = excluded.updated_at;
exception when lock_not_available then
    if jsonb_array_length(p_reports) > 1 then
        perform report_progress(jsonb_build_array(r)) from jsonb_array_elements(p_reports) r;
    end if;
end $$;

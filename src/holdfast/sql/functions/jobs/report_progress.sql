-- Store the progress that handlers report: an array of {"id", "token", "done", "total", "message"}. Reports from a
-- worker that has lost the job are ignored. Workers send them in batches, at most a few times a second.
-- Locks: progress rows in id order. A row that another transaction holds is omitted: a worker finishes jobs only after
--   its reports.
create or replace function report_progress(p_reports jsonb) returns void
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set lock_timeout = '50ms' as $$
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

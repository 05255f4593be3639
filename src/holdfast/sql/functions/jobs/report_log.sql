-- Store lines that handlers wrote with ctx.log: an array of {"id", "token", "attempt", "seconds" (since the attempt's
-- start), "lines": [{"n" (its number in the attempt), "at" (seconds after the start), "level", "text"}]}. The last 200
-- lines of an attempt are kept, and the logs of a job's last five attempts. A line that is sent twice is stored once.
-- Lines from a worker that has lost the job are ignored.
-- Locks: job_logs rows in order of id. A row that another transaction holds is omitted.
create or replace function report_log(p_reports jsonb) returns void
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set lock_timeout = '50ms' as $$
begin
    insert into job_logs as l (id, token, attempt, started_at, last_line, lines, updated_at)
    select g.id, g.token, coalesce(g.attempt, 1), clock() - make_interval(secs => least(greatest(coalesce(g.seconds, 0), 0), 1e9)),
           n.last_line, n.lines, clock()
    from (select distinct on (r.id, r.token) r.* from jsonb_to_recordset(p_reports)
              as r(id uuid, token bigint, attempt smallint, seconds double precision, lines jsonb)
          order by r.id, r.token) g
    cross join lateral (
        select max(e.n) as last_line, jsonb_agg(jsonb_build_object(
                   'n', e.n, 'at', e.at, 'level', left(e.level, 20), 'text', left(e.text, 1000)) order by e.n) as lines
        from (select * from jsonb_to_recordset(g.lines) as e(n integer, at double precision, level text, text text)
              where e.n is not null order by e.n desc limit 200) e) n
    where n.lines is not null and (
        exists (select 1 from live l where l.id = g.id and l.token = g.token)
        -- Finished by its handler's own transaction: lines may follow.
        or exists (select 1 from history h where h.id = g.id and h.status = 'succeeded'))
    on conflict (id, token) do update set
        lines = jsonb_path_query_array(
            l.lines || jsonb_path_query_array(excluded.lines, '$[*] ? (@.n > $n)', jsonb_build_object('n', l.last_line)),
            '$[last - 199 to last]'),
        last_line = greatest(l.last_line, excluded.last_line), updated_at = excluded.updated_at;
    delete from job_logs where ctid = any (array(
        select l.ctid from (select distinct r.id from jsonb_to_recordset(p_reports) as r(id uuid)) g
        cross join lateral (
            select l.ctid from job_logs l where l.id = g.id order by l.token desc offset 5 for update skip locked) l));
exception when lock_not_available then
    if jsonb_array_length(p_reports) > 1 then
        perform report_log(jsonb_build_array(r)) from jsonb_array_elements(p_reports) r;
    end if;
end $$;

-- Return true if a job follows this one, or a parent waits for it; else null, as in live.followed.
create or replace function is_followed(p_job uuid) returns boolean
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    return case when exists (select 1 from follows f where f.job = p_job)
                     or exists (select 1 from steps s where s.ref = p_job and s.finished_at is null) then true end;
end $$;

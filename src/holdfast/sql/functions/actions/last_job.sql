-- Return the greatest id of the jobs that are dead, or of those that have not ended; null if there are none.
create or replace function last_job(p_dead boolean) returns uuid
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_sort = off as $$
begin
    if p_dead then
        return (select d.id from dead d order by d.id desc limit 1);
    end if;
    return (select j.id from (select l.id from live l union all select t.id from later t) j order by j.id desc limit 1);
end $$;

-- Return the next p_most ids from p_from to p_to in ascending order: of dead jobs, of those of an error group, or of
-- jobs that have not ended. p_except: the first id, where a scan continues.
create or replace function next_jobs(p_where job_filter, p_from uuid, p_except uuid, p_to uuid, p_most integer) returns uuid[]
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set enable_sort = off as $$
begin
    if not p_where.status && '{failed,dead}' then
        return array(
            select j.id from (select l.id from live l union all select t.id from later t) j
            where j.id >= p_from and j.id <= p_to and j.id is distinct from p_except order by j.id limit p_most);
    elsif p_where.error_group is null then
        return array(
            select d.id from dead d where d.id >= p_from and d.id <= p_to and d.id is distinct from p_except
            order by d.id limit p_most);
    end if;
    -- Compared as rows: with "fingerprint = ..." a plan could walk all of dead by id.
    return array(
        select d.id from dead d
        where (d.fingerprint, d.id) >= (p_where.error_group, p_from) and (d.fingerprint, d.id) <= (p_where.error_group, p_to)
          and d.id is distinct from p_except
        order by d.fingerprint, d.id limit p_most);
end $$;

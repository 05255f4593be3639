-- Lock those of the given jobs that no other transaction holds, and return their ids: dead jobs, or jobs that have not
-- ended.
-- Locks: dead rows; or later rows, then live rows; each in id order, skipping locked ones.
create or replace function free_jobs(p_ids uuid[], p_dead boolean) returns uuid[]
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
begin
    if p_dead then
        return array(select d.id from dead d where d.id = any (p_ids) order by d.id for update skip locked);
    end if;
    return array(select t.id from later t where t.id = any (p_ids) order by t.id for update skip locked)
        || array(select l.id from live l where l.id = any (p_ids) order by l.id for update skip locked);
end $$;

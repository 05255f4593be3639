-- Return how a child ended, as {"status", "result", "error"}; null while it has not ended. A child that retention has
-- removed ended as unknown.
create or replace function child_result(p_job uuid) returns json
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_found json;
begin
    select json_build_object('status', j.status, 'result', j.result, 'error', j.error) into v_found from (
        select h.status::text as status, h.result, h.last_error - '{traceback,output}'::text[] as error from history h where h.id = p_job
        union all select d.status::text, null, d.last_error - '{traceback,output}'::text[] from dead d where d.id = p_job) j limit 1;
    if v_found is null and not exists (select 1 from live l where l.id = p_job) and not exists (select 1 from later t where t.id = p_job) then
        return json_build_object('status', 'unknown');
    end if;
    return v_found;
end $$;

-- Mark jobs that others are to follow, so that their end is noticed, and keep them from ending before the caller's
-- transaction has. Return those that have not ended, and those that have ended without success. Reject an unknown job.
-- Locks: later rows, then live rows, shared with other callers, each in id order.
create or replace function lock_predecessors(p_ids uuid[], out pending uuid[], out failed uuid[])
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_rest uuid[] := array(select distinct i from unnest(p_ids) i where i is not null order by i); v_held uuid[]; v_ended uuid[];
begin
    pending := '{}';
    failed := '{}';
    -- A job may move between the tables meanwhile, so those that were found nowhere are looked for again.
    for v_try in 1..100 loop
        v_held := array(select t.id from later t where t.id = any (v_rest) order by t.id for key share)
            || array(select l.id from live l where l.id = any (v_rest) order by l.id for key share);
        -- By id: a row that changed while it was waited for has a place that this snapshot does not show.
        update later set followed = true where id = any (v_held) and followed is not true;
        update live set followed = true where id = any (v_held) and followed is not true;
        pending := pending || v_held;
        v_rest := array(select r from unnest(v_rest) r where r <> all (v_held));
        exit when v_rest = '{}';
        select array_agg(e.id), failed || coalesce(array_agg(e.id) filter (where not e.well), '{}') into v_ended, failed from (
            select d.id, false as well from dead d where d.id = any (v_rest)
            union all select h.id, h.status = 'succeeded' or h.last_error ->> 'code' = 'SKIPPED' from history h where h.id = any (v_rest)) e;
        v_rest := array(select r from unnest(v_rest) r where (r = any (v_ended)) is not true);
        exit when v_rest = '{}' or not exists (
            select 1 from later t where t.id = any (v_rest) union all select 1 from live l where l.id = any (v_rest));
    end loop;
    if v_rest <> '{}' then
        raise exception 'a job can start after jobs that exist; there is no job %', v_rest[1]
            using errcode = 'invalid_parameter_value', hint = 'it was never accepted, or retention has removed it';
    end if;
end $$;

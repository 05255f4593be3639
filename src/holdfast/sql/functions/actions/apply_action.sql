-- Make the change of an action to those of the jobs that no other transaction holds. Return the jobs that it changed,
-- and those that were locked.
-- Locks: the jobs, skipping locked ones; then as make_change.
create or replace function apply_action(p_kind text, p_params jsonb, p_ids uuid[], out changed uuid[], out locked uuid[])
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_dead boolean := p_kind in ('retry', 'discard'); v_free uuid[] := free_jobs(p_ids, v_dead);
    v_rest uuid[] := array(select i from unnest(p_ids) i where i <> all (v_free));
begin
    changed := make_change(p_kind, p_params, v_free);
    locked := case when v_rest = '{}' then '{}'
        when v_dead then array(select d.id from dead d where d.id = any (v_rest))
        else array(select l.id from live l where l.id = any (v_rest) union select t.id from later t where t.id = any (v_rest)) end;
end $$;

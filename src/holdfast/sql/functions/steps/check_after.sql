-- Reject a job that is to start after others in an impossible way.
create or replace function check_after(p_id uuid, p_after uuid[], p_on_failure text, p_run_at timestamptz) returns void
language plpgsql immutable as $$
declare
    v_problem text := case
        when p_id = any (p_after) then format('a job cannot start after itself, got %s in its own after', p_id)
        when (p_on_failure in ('cancel', 'skip', 'run', 'hold')) is not true then
            format('on_failure must be cancel, skip, run or hold, got %s', coalesce(quote_literal(left(p_on_failure, 60)), 'null'))
        when p_run_at is not null then 'a job starts after other jobs, or at a time: give after, or delay or run_at, not both'
        when cardinality(p_after) > 1000 then format('a job can start after at most 1000 jobs, got %s; put them into a batch', cardinality(p_after)) end;
begin
    if v_problem is not null then raise exception '%', v_problem using errcode = 'invalid_parameter_value'; end if;
end $$;

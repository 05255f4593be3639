-- Formats a number of jobs that was counted up to a bound: 1 job, 12 jobs, more than 1,000 jobs.
create or replace function jobs_in_words(p_jobs bigint, p_most bigint) returns text
language sql immutable parallel safe
as $$
    select case when p_jobs = 1 then '1 job'
                when p_jobs < p_most then format('%s jobs', to_char(p_jobs, 'FM999,999,999'))
                else format('%s jobs or more', to_char(p_most, 'FM999,999,999')) end
$$;

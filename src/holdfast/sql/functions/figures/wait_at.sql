-- Return the wait, in seconds, that a share of the attempts did not exceed; null without attempts. p_counts has the
-- attempts of each step (wait_step). The value is the middle of a step, which is 41 % wide: it is at most 19 % off.
create or replace function wait_at(p_steps smallint[], p_counts double precision[], p_share double precision)
returns double precision language sql immutable parallel safe as $$
    select round((2 ^ ((min(w.step) - 0.5) / 2.0) / 1000)::numeric, 4)::double precision from (
        select e.step, sum(e.n) over (order by e.step) as below, sum(e.n) over () as every
        from unnest(p_steps, p_counts) as e(step, n) where e.n > 0) w
    where w.below >= w.every * p_share
$$;

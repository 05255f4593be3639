-- Every limit as it stands at this moment: `free_tokens` its rate allows, `room` for so many more jobs, and in how many
-- seconds (`wait`) a limit without room will have some by itself: when a token comes, a pause or an open breaker ends. wait is
-- null when only the end of a job or a person can tell. Exact for whoever holds the row: claims decide by this view.
create view limit_state as
select m.*, t.free_tokens,
       case when m.paused and coalesce(m.paused_until > clock(), true) then 0 else greatest(0, least(
           m.concurrency - m.running,
           floor(least(t.free_tokens + 1e-9, 2147483647))::integer,
           case when m.open_until is null then 2147483647
                when m.open_until > clock() or m.probe is not null then 0 else 1 end)) end as room,
       case when m.paused and m.paused_until is null or m.running >= m.concurrency
                 or m.probe is not null and m.open_until <= clock() then null
            else greatest(0, case when m.paused then extract(epoch from m.paused_until - clock()) end,
                          extract(epoch from m.open_until - clock()),
                          (1 - t.free_tokens) * m.per / m.rate)::double precision end as wait
from limits m cross join lateral (
    select least(m.burst, m.tokens + greatest(extract(epoch from clock() - m.tokens_at), 0) * m.rate / m.per)
    as free_tokens) t;

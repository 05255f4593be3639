-- How much waits and runs in each queue, and how long the oldest due job has waited.
create view queue_depth as
select queue,
       count(*) filter (where place = 'live' and not claimed) as ready,
       count(*) filter (where claimed) as running,
       count(*) filter (where place = 'later') as later,
       count(*) filter (where place = 'dead') as dead,
       max(clock() - run_at) filter (where place = 'live' and not claimed) as oldest_wait
from (select queue, 'live' as place, token is not null as claimed, run_at from live
      union all select queue, 'later', false, run_at from later
      union all select queue, 'dead', false, run_at from dead) j
group by queue;

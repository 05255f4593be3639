-- Attempts that ended in about the last minute, by how long they waited (wait_step): those of this minute, and as much
-- of the last one as makes 60 seconds.
create or replace view recent_attempts as
select c.queue, c.task, c.wait, sum(c.ended * w.weight) as ended, sum(c.failed * w.weight) as failed,
       sum(c.lost * w.weight) as lost, sum(c.run_seconds * w.weight) as run_seconds
from (select clock() as now) t
cross join lateral (values (date_trunc('minute', t.now), 1::double precision),
                           (date_trunc('minute', t.now) - interval '1 minute', 1 - date_part('second', t.now) / 60)) w(minute, weight)
cross join lateral (select * from attempt_counts c where c.minute = w.minute offset 0) c
group by c.queue, c.task, c.wait;

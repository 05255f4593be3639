-- The numbers of waiting and running jobs in each queue, and how long the oldest due job has waited. The cost does not
-- grow with the tables: for large ones some numbers are estimates, and `estimated` names their columns (count_jobs).
create or replace view queue_depth as
select queue, ready, running, later, dead, oldest_wait, estimated from count_jobs();

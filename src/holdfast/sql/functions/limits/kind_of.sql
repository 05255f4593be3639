-- Returns what a key limits: a whole queue, task or tenant, an order ("order:...": one job at a time, in sequence), or
-- the jobs that carry the key.
create or replace function kind_of(p_key text) returns text
language sql immutable parallel safe
return case when p_key like 'queue:%' then 'queue' when p_key like 'task:%' then 'task' when p_key like 'tenant:%' then 'tenant'
            when p_key like 'order:%' then 'order' else 'key' end;

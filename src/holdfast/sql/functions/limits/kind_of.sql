-- Return what a key limits: a whole queue, task or tenant, an order ("order:...": one job at a time, in sequence), or
-- the jobs that carry the key.
create or replace function kind_of(p_key text) returns text
language sql immutable parallel safe
return coalesce(substring(p_key from '^(queue|task|tenant|order):'), 'key');

-- The one clock of every function: the database's. Tests may replace it; production never does.
-- Called by: every other function.
-- Locks: none.
-- Wakes: nobody.
create or replace function clock() returns timestamptz
language sql stable parallel safe
return now();

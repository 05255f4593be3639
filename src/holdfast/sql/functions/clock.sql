-- The one clock of every function: the database's, read anew at each call. A transaction that was open for a while, a handler's own
-- for one, must not end its job, keep a key or take a lease as of the moment it began. Tests may replace it; production never does.
-- Declared stable although it moves: a query may then compare an indexed column with it. No statement needs two calls to be equal.
-- Called by: every other function.
-- Locks: none.
-- Wakes: nobody.
create or replace function clock() returns timestamptz
language plpgsql stable parallel safe cost 1
as $$
begin
    return clock_timestamp();
end $$;

-- Return the current time by the database's clock, the only one that functions use. It is read again at each call: a
-- transaction that has been open for a while must not end a job, keep a key or take a lease as of the moment it began.
-- Tests may replace it. Declared stable although it moves, so that a query can compare an indexed column with it. No
-- statement needs two calls to be equal.
create or replace function clock() returns timestamptz language plpgsql stable parallel safe cost 1 as $$
begin
    return clock_timestamp();
end $$;

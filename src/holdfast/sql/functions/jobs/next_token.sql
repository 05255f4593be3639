-- Return a fencing token for a new claim: the real time in microseconds, ahead by an hour for each promotion of a
-- standby (clock_lead), and in the lower ten bits a number that distinguishes claims of the same microsecond. A
-- sequence alone would go back with WAL lost in an asynchronous failover, and repeat tokens; so would the clock of
-- another machine.
create or replace function next_token() returns bigint
language sql volatile
return (((date_part('epoch', clock_timestamp()) * 1000000)::bigint + clock_lead()) << 10) | nextval('claim_number');

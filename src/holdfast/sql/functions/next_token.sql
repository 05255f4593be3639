-- A fencing token for a new claim: the real time in microseconds, and in the lower ten bits a number that tells apart what was claimed
-- in the same one. A sequence alone would go back with the WAL that an asynchronous failover loses, and hand out tokens twice.
-- Called by: claim.
-- Locks: none.
-- Wakes: nobody.
create or replace function next_token() returns bigint
language sql volatile
return ((date_part('epoch', clock_timestamp()) * 1000000)::bigint << 10) | nextval('claim_number');

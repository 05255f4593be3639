-- A time-ordered id (RFC 9562, version 7) for callers that bring none; random ids would scatter the heap.
-- Called by: enqueue, enqueue_many.
-- Locks: none.
-- Wakes: nobody.
create or replace function uuid7() returns uuid
language sql volatile
return encode(
    set_bit(set_bit(
        overlay(uuid_send(gen_random_uuid())
                placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
                from 1 for 6),
        52, 1), 53, 1), 'hex')::uuid;

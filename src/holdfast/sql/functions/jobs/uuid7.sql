-- Return a time-ordered id (RFC 9562, version 7) for callers that pass none; random ids would scatter the heap. The
-- twelve bits after the milliseconds are their fraction, so the ids of one connection grow.
create or replace function uuid7() returns uuid language plpgsql volatile as $$
declare
    v_now bigint := date_part('epoch', clock_timestamp()) * 1000000;
begin
    return encode(overlay(uuid_send(gen_random_uuid())
        placing int8send(((v_now / 1000) << 16) | 28672 | ((v_now % 1000) * 4096 / 1000)) from 1 for 8), 'hex')::uuid;
end $$;

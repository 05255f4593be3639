-- The id of an event's delivery to an endpoint: always the same, so that an event published again is not delivered again.
-- It begins as the event's does, with the time.
-- Called by: add_deliveries, publish_event.
-- Locks: none.
-- Wakes: nobody.
create or replace function delivery_id(p_event uuid, p_endpoint uuid) returns uuid
language sql immutable parallel safe
return encode(
    set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
        substring(uuid_send(p_event) for 6) || substring(sha256(uuid_send(p_event) || uuid_send(p_endpoint)) for 10),
        55, 0), 54, 1), 53, 1), 52, 1), 71, 1), 70, 0), 'hex')::uuid;

-- Return the id of an event's delivery to an endpoint. It is always the same, so an event published again is not
-- delivered again. It begins with the event's timestamp.
create or replace function delivery_id(p_event uuid, p_endpoint uuid) returns uuid
language sql immutable parallel safe
return encode(
    set_bit(set_bit(set_bit(set_bit(set_bit(set_bit(
        substring(uuid_send(p_event) for 6) || substring(sha256(uuid_send(p_event) || uuid_send(p_endpoint)) for 10),
        55, 0), 54, 1), 53, 1), 52, 1), 71, 1), 70, 0), 'hex')::uuid;

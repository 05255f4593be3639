-- Deliver an event of type holdfast.test to one endpoint, whatever its subscribed types. Return the delivery's id, or
-- null if the endpoint does not exist.
-- Locks: the delivery's own row. Wakes: sleepers of the queue.
create or replace function test_endpoint(p_id uuid, p_body text, p_event uuid default null) returns uuid
language plpgsql security definer set search_path from current as $$
declare
    v_tenant text; v_event uuid := coalesce(p_event, uuid7());
begin
    select e.tenant into v_tenant from webhook_endpoints e where e.id = p_id;
    if not found then return null; end if;
    -- One attempt, so that the result is known at once; a repeated call finds the same id.
    perform add_deliveries(v_event, 'holdfast.test', p_body, v_tenant, array[p_id], p_event is not null, 0, 1);
    return delivery_id(v_event, p_id);
end $$;

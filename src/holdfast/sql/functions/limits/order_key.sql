-- Returns the limit key that messages of one order share: "order:channel/tenant/order", or a hash if that is too long.
create or replace function order_key(p_channel text, p_tenant text, p_order text) returns text
language plpgsql immutable set search_path from current as $$
declare
    v_key text := 'order:' || idempotency_key(p_channel, p_tenant, p_order);
begin
    if length(p_order) not between 1 and 300 then
        raise exception 'the order of a message has 1 to 300 characters, got %', quote_literal(left(p_order, 60))
            using errcode = 'invalid_parameter_value';
    elsif length(v_key) > 300 then  -- one slash, so it equals no unhashed key
        return 'order:' || p_channel || '/sha256:' || encode(sha256(convert_to(v_key, 'UTF8')), 'hex');
    end if;
    return v_key;
end $$;

-- Put a message into the outbox: a job of the channel, which a worker delivers once this transaction has committed.
-- Return its id and the outcome: created, or existing (a message of this channel and tenant has this key). p_key
-- identifies what must not be sent twice ("invoice-42"). Messages of a channel and tenant with the same p_order are
-- delivered one at a time, in the order they were emitted. Parameters that are null default to the channel's
-- registration.
-- Locks: the message's key, then the job's own row. Wakes: sleepers of the queue.
create or replace function emit(p_channel text, p_payload jsonb, p_key text, p_tenant text default null,
    p_order text default null, p_queue text default null, p_priority integer default 2,
    p_max_attempts integer default null, p_retry jsonb default null, p_id uuid default null,
    p_headers json default null, p_keys text[] default null, out id uuid, out outcome text)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
#variable_conflict use_column
declare
    v_id uuid := coalesce(p_id, uuid7()); v_task text := 'channel:' || p_channel; v_queue text := p_queue;
    v_max integer := p_max_attempts; v_at timestamptz := clock(); v_keys text[]; v_lane bigint := 0;
    v_body json := jsonb_build_object('key', p_key, 'body', p_payload)::json; v_taken boolean; v_wake boolean;
begin
    if v_queue is null or v_max is null then
        select coalesce(p_queue, max(t.queue), 'outbox'), coalesce(p_max_attempts, max(t.max_attempts), 10)
        into v_queue, v_max from tasks t where t.name = v_task;
    end if;
    perform check_job(v_task, v_queue, p_tenant, p_priority, v_max, '{}', v_at);
    if starts_with(p_channel, 'holdfast.') then  -- reserved for the keys of events
        raise exception 'channel names that begin with "holdfast." are reserved, got %', quote_literal(left(p_channel, 60))
            using errcode = 'invalid_parameter_value';
    elsif p_payload is null then
        raise exception 'a message needs a payload, got null; use ''null'' for a JSON null' using errcode = 'invalid_parameter_value';
    end if;
    if p_order is not null then
        if length(p_order) not between 1 and 300 then
            raise exception 'the order of a message must have 1 to 300 characters, got %', quote_literal(left(p_order, 60))
                using errcode = 'invalid_parameter_value';
        end if;
        v_keys := array['order:' || idempotency_key(p_channel, p_tenant, p_order)];
        if length(v_keys[1]) > 300 then  -- one slash, so it equals no unhashed key
            v_keys := array['order:' || p_channel || '/sha256:' || encode(sha256(convert_to(v_keys[1], 'UTF8')), 'hex')];
        end if;
        v_body := jsonb_build_object('key', p_key, 'body', p_payload, 'order', p_order)::json;
    end if;
    if v_keys is not null or p_keys is not null then v_keys := check_keys(v_keys || p_keys); end if;
    if p_tenant is not null or v_keys is not null then v_lane := lane_of(p_tenant, v_keys); end if;
    select k.holder, k.taken into emit.id, v_taken from take_outbox_key(p_channel, p_tenant, p_key, v_id) k;
    if not v_taken then
        emit.outcome := 'existing';
        return;
    end if;
    insert into live (id, queue, priority, lane, run_at, created_at, max_attempts, task, tenant, payload, retry, headers, keys)
    values (v_id, v_queue, p_priority, v_lane, v_at, v_at, v_max, v_task, p_tenant, v_body, p_retry, p_headers, v_keys)
    returning exists (select 1 from sleepers s where s.queue = v_queue) into v_wake;
    emit.outcome := 'created';
    if v_wake then perform wake(v_queue); end if;
end $$;

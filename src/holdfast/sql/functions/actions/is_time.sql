-- Return whether a JSON value is a time with its zone, so that it means the same in each session.
create or replace function is_time(p_value jsonb) returns boolean
language plpgsql immutable set datestyle = 'ISO' as $$
declare
    v_text text := p_value #>> '{}';
begin
    return coalesce(jsonb_typeof(p_value) = 'string'
        and v_text ~ '^[0-9]{4}(-[0-9]{2}){2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)$'
        and v_text::timestamptz is not null, false);
exception when data_exception then
    return false;
end $$;

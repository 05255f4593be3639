-- Returns whether a JSON value is a time with its zone, so that it means the same in each session.
create or replace function is_time(p_value jsonb) returns boolean
language plpgsql immutable set datestyle = 'ISO' as $$
declare
    v_text text := p_value #>> '{}';
begin
    return coalesce(jsonb_typeof(p_value) = 'string'
        and v_text ~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)$' and v_text::timestamptz is not null, false);
exception when data_exception then
    return false;
end $$;

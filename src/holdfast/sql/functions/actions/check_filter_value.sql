-- Reject a value that a field of a filter cannot have, with a message that names both.
create or replace function check_filter_value(p_name text, p_value jsonb) returns void
language plpgsql immutable set search_path from current as $$
declare
    v_kind text := jsonb_typeof(p_value); v_text text := p_value #>> '{}'; v_wants text;
begin
    if p_name = 'args' then
        if v_kind <> 'object' or p_value = '{}' then v_wants := 'a JSON object of arguments, at least one'; end if;
    elsif p_name = 'status' then
        if v_kind not in ('string', 'array') or p_value = '[]' or exists (
            select 1 from jsonb_array_elements(case v_kind when 'array' then p_value else jsonb_build_array(p_value) end) s
            where jsonb_typeof(s) <> 'string' or s #>> '{}' <> all (enum_range(null::job_status)::text[])) then
            v_wants := 'one of, or a list of, ' || array_to_string(enum_range(null::job_status), ', ');
        end if;
    elsif v_kind <> 'string' or length(v_text) not between 1 and 300 then
        v_wants := 'a string of 1 to 300 characters';
    elsif p_name = 'batch' then
        if v_text !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' then v_wants := 'the id of a batch'; end if;
    elsif p_name = 'error_group' then
        if v_text !~ '^[0-9a-f]{16}$' then v_wants := 'the fingerprint of an error group, 16 hexadecimal digits'; end if;
    elsif p_name in ('since', 'until', 'finished_since', 'finished_until') then
        if not is_time(p_value) then v_wants := 'a time with its zone, such as 2026-01-31T12:00:00Z'; end if;
    end if;
    if v_wants is not null then
        raise exception '% of a filter must be %, got %', p_name, v_wants, left(p_value::text, 60)
            using errcode = 'invalid_parameter_value', constraint = 'action';
    end if;
end $$;

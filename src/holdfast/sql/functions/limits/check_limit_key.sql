-- Reject an invalid limit key, and a template that no worker has registered: it would be taken for a key.
create or replace function check_limit_key(p_key text) returns void
language plpgsql stable set search_path from current as $$
declare
    v_known text;
begin
    if (length(p_key) between 1 and 300) is not true or p_key in ('queue:', 'task:', 'tenant:') then
        raise exception 'a key must have 1 to 300 characters, as in domain:example.org, queue:NAME, task:NAME or tenant:NAME; got %',
            coalesce(quote_literal(left(p_key, 40)), 'null')
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    elsif strpos(p_key, '{') > 0 and not exists (select 1 from limit_rules r where r.template = p_key)
          and not exists (select 1 from limits m where m.key = p_key) then
        v_known := (select string_agg(r.template, ', ' order by r.template) from limit_rules r);
        raise exception 'there is no rule %; %', p_key,
            coalesce('workers have registered ' || v_known, 'workers register rules when they start, and none has yet')
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    end if;
end $$;

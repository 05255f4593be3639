-- Reject a dedupe key that is reserved: the keys of outbox messages, and "TASK::TENANT::TEXT", the form of keys made
-- by clients, for a job of another task or tenant. Such a key would suppress the jobs and messages that it belongs to.
create or replace function check_dedupe_key(p_key text, p_task text, p_tenant text) returns void
language plpgsql immutable as $$
begin
    if starts_with(p_key, 'outbox' || chr(31)) then
        raise exception 'dedupe keys that begin with "outbox" and the character 31 are reserved for messages, got %', quote_literal(left(p_key, 60))
            using errcode = 'invalid_parameter_value', hint = 'use emit() for a message';
    elsif p_key ~ '^[^:]+::[^:]+::' and not starts_with(p_key,
            -- As in model/payload.py: a task or tenant name that could be taken for another, or for the separator, is escaped.
            case when p_task ~ '[:%]' then '%' || replace(replace(p_task, '%', '%25'), ':', '%3A') else p_task end || '::'
            || case when p_tenant is null then 'global' when p_tenant ~ '[:%]' or p_tenant = 'global'
                    then '%' || replace(replace(p_tenant, '%', '%25'), ':', '%3A') else p_tenant end || '::') then
        raise exception 'dedupe key % begins with the name of another task or tenant than the job''s',
            quote_literal(left(p_key, 200))
            using errcode = 'invalid_parameter_value',
                  hint = 'begin it with TASK::TENANT:: of the job, or TASK::global:: without a tenant';
    end if;
end $$;

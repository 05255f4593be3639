-- Return the tasks that have a limit or a pause, or null. A claim adds the key "task:NAME" to their jobs.
create or replace function limited_tasks() returns text[] language plpgsql stable as $$
begin
    if not exists (select 1 from limit_settings s where s.kind = 'task') and not exists (select 1 from limits m where m.kind = 'task') then
        return null;
    end if;
    return (select array_agg(substr(t.key, 6)) from (
        select s.key from limit_settings s where s.kind = 'task' and (
            s.concurrency is not null or s.rate is not null or s.breaker_after is not null or s.paused and coalesce(s.paused_until > clock(), true))
        union select s.key from limit_state s where s.kind = 'task' and s.says) t);
end $$;

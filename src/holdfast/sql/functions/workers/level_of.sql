-- Return the level of a metric's value, good, warning or critical, by the thresholds in settings; null without a value
-- or a threshold.
create or replace function level_of(p_metric text, p_value double precision) returns text
language plpgsql stable security definer set search_path from current as $$
declare
    v_from jsonb := (select s.value -> p_metric from settings s where s.name = 'thresholds');
begin
    return case when p_value is null or v_from is null then null
                when p_value > (v_from ->> 'critical')::double precision then 'critical'
                when p_value >= (v_from ->> 'warning')::double precision then 'warning'
                else 'good' end;
end $$;

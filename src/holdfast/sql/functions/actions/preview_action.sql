-- Count the jobs that an action would change now, up to 10,001, and return ten of them as examples. It reads for
-- p_within: complete says whether it has read all jobs, or counted enough.
create or replace function preview_action(p_kind text, p_filter jsonb, p_params jsonb default '{}', p_tenant text default null,
    p_deliveries boolean default true, p_within interval default '1 s', out matching integer, out complete boolean,
    out examples uuid[])
language plpgsql stable security definer set search_path from current as $$
declare
    v_where job_filter := check_action(p_kind, coalesce(p_filter, 'null'), p_params, p_tenant); v_scan record;
    v_until timestamptz := clock_timestamp() + p_within; v_now timestamptz := clock();
    v_from uuid := '00000000-0000-0000-0000-000000000000'; v_to uuid := last_job(v_where.status && '{failed,dead}');
    v_most integer := case when v_where.args is null then 2000 else 100 end;
begin
    matching := 0;
    examples := '{}';
    complete := v_to is null;
    while not complete and clock_timestamp() < v_until loop
        v_scan := scan_jobs(v_where, v_now, v_from, nullif(v_from, '00000000-0000-0000-0000-000000000000'), v_to, v_most, p_tenant, p_deliveries);
        matching := least(matching + cardinality(v_scan.ids), 10001);
        examples := (examples || v_scan.ids)[:10];
        complete := v_scan.scanned < v_most or matching > 10000;
        v_from := coalesce(v_scan.last_id, v_from);
    end loop;
end $$;

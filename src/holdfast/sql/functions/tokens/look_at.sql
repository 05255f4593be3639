-- Return the requested jobs, in whichever table they are, each with its position in the lists. Omit jobs that the
-- caller may not see: another tenant's, and webhook deliveries where p_deliveries is not true. Show what a tenant may
-- know: no keys, no leases, and errors without traceback and output. One call serves many requests. It is a function so
-- that its plan does not depend on how full the tables were.
create or replace function look_at(p_ids uuid[], p_everyone boolean[], p_who text[], p_deliveries boolean[],
    out place bigint, out id uuid, out task text, out tenant text, out queue text, out priority smallint,
    out payload json, out status text, out attempts smallint, out max_attempts smallint, out run_at timestamptz,
    out created_at timestamptz, out started_at timestamptz, out finished_at timestamptz, out error jsonb,
    out result jsonb, out batch uuid, out deadline timestamptz, out progress jsonb, out waits_for text) returns setof record
language plpgsql stable security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
#variable_conflict use_column
begin
    return query select w.place, f.*
        from unnest(p_ids, p_everyone, p_who, p_deliveries) with ordinality as w(id, everyone, who, deliveries, place)
        cross join lateral (
            select j.id, j.task::text, j.tenant::text, j.queue::text, j.priority::smallint, j.payload::json, j.status::text, j.attempts,
                   j.max_attempts::smallint, j.run_at, j.created_at, j.started_at, j.finished_at, j.last_error - 'traceback' - 'output', j.result,
                   j.batch, j.deadline, j.progress, j.waits_for
            from jobs j where j.id = w.id and may_see(w.everyone, w.who, j.tenant)
              and (w.deliveries or j.task <> 'holdfast.webhook') offset 0) f;
end $$;

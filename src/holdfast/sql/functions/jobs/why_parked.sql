-- Return what a parked job waits for, as a reason for why.
create or replace function why_parked(p_id uuid, p_waits_for text, p_until timestamptz) returns jsonb
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_kind text := split_part(p_waits_for, ' ', 1); v_name text := substr(p_waits_for, length(split_part(p_waits_for, ' ', 1)) + 2);
    v_step steps; v_jobs uuid[]; v_text text; v_facts jsonb := '{}';
    v_ends boolean := p_until < clock() + interval '9 years';  -- else it waits without end
begin
    select * into v_step from steps s where s.job = p_id and s.name = v_name;
    case v_kind
        when 'sleep' then v_text := format('it sleeps in %s, for another %s', quote_literal(v_name), in_words(greatest(p_until - clock(), '0')));
        when 'signal' then v_text := format('it has waited for the signal %s for %s', quote_literal(v_name), in_words(clock() - v_step.started_at))
            || case when v_ends then format(', and will for another %s at most', in_words(greatest(p_until - clock(), '0'))) else '' end;
        when 'batch' then
            v_facts := (select jsonb_build_object('batch', b.id, 'total', b.total, 'processed', b.processed) from batch_progress b where b.id = v_step.ref);
            v_text := format('it waits for its batch %s: %s of %s jobs have ended', quote_literal(v_name), v_facts ->> 'processed', v_facts ->> 'total');
        when 'call' then
            v_facts := jsonb_build_object('job', v_step.ref);
            v_text := format('it waits for its child %s, job %s', quote_literal(v_name), v_step.ref);
        else
            v_jobs := array(select f.job from follows f where f.follower = p_id order by f.job limit 6);
            v_facts := jsonb_build_object('jobs', v_jobs[:5]);
            v_text := format('it starts after job %s', array_to_string(v_jobs[:3], ', ')) || case when cardinality(v_jobs) > 3 then ', ...' else '' end;
    end case;
    return jsonb_build_array(jsonb_strip_nulls(v_facts || jsonb_build_object(
        'kind', 'waits', 'rank', 5, 'short', 'what it waits for', 'for', v_kind, 'name', nullif(v_name, ''), 'since', v_step.started_at,
        'until', case when v_ends then p_until end, 'text', v_text)));
end $$;

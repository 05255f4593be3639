-- The application's tables, and two views that show Holdfast's jobs under the names of the design.
create schema if not exists passports;

create table if not exists passports.snapshots (
    tenant_id uuid not null,
    snapshot_id uuid not null default gen_random_uuid(),
    status text not null default 'BUILDING' check (status in ('BUILDING', 'SEALED')),
    sealed_at timestamptz check ((status = 'SEALED') = (sealed_at is not null)),
    primary key (tenant_id, snapshot_id)
);

create table if not exists passports.document_versions (
    tenant_id uuid not null,
    document_version_id uuid not null default gen_random_uuid(),
    snapshot_id uuid not null,
    format text not null check (format in ('csv', 'json')),
    content text not null,
    primary key (tenant_id, document_version_id),
    foreign key (tenant_id, snapshot_id) references passports.snapshots
);

create table if not exists passports.facts (
    tenant_id uuid not null,
    fact_id uuid not null default gen_random_uuid(),
    fact_type text not null,
    fact_key text not null,
    schema_version text not null,
    payload_hash bytea not null,
    payload jsonb not null,
    primary key (tenant_id, fact_id),
    unique (tenant_id, fact_type, fact_key, schema_version, payload_hash)
);

create table if not exists passports.snapshot_facts (
    tenant_id uuid not null,
    snapshot_id uuid not null,
    fact_id uuid not null,
    primary key (tenant_id, snapshot_id, fact_id),
    foreign key (tenant_id, snapshot_id) references passports.snapshots,
    foreign key (tenant_id, fact_id) references passports.facts
);

create table if not exists passports.rule_packages (
    tenant_id uuid not null,
    rules_id uuid not null default gen_random_uuid(),
    status text not null default 'DRAFT' check (status in ('DRAFT', 'PUBLISHED')),
    package jsonb not null,
    primary key (tenant_id, rules_id)
);

create table if not exists passports.passport_versions (
    tenant_id uuid not null,
    passport_version_id uuid not null,
    passport_id uuid not null,
    snapshot_id uuid not null,
    rules_id uuid not null,
    build_id text not null,
    issued_at timestamptz not null,
    payload text not null,
    payload_hash bytea not null,
    proof_root_hash bytea not null,
    receipt_hash bytea not null,
    status text not null default 'COMPILED' check (status in ('COMPILED', 'SIGNED')),
    key_id text,
    signature bytea check ((status = 'SIGNED') = (signature is not null)),
    qr_payload text,
    qr_png bytea check (qr_png is null or status = 'SIGNED'),
    primary key (tenant_id, passport_version_id),
    unique (tenant_id, passport_id, snapshot_id, rules_id, build_id, issued_at),
    foreign key (tenant_id, snapshot_id) references passports.snapshots,
    foreign key (tenant_id, rules_id) references passports.rule_packages
);

create table if not exists passports.events (
    event_id uuid primary key default gen_random_uuid(),
    tenant_id uuid not null,
    event_type text not null,
    aggregate_type text not null,
    aggregate_id uuid not null,
    occurred_at timestamptz not null default now(),
    payload jsonb not null
);

-- `holdfast migrate` recreates its own views when they change, and drops views that depend on them: so these are created each time.
drop view if exists passports.jobs, passports.webhook_deliveries;

-- What Holdfast calls the errors of deliveries and of payloads, as the design does.
create or replace function passports.in_document_words(p_error jsonb) returns jsonb language sql immutable as $$
    select case
        when p_error ->> 'type' = 'InvalidPayload' then p_error || '{"code": "VALIDATION_ERROR"}'
        when p_error ->> 'type' not in ('NotDelivered', 'Postponed') then p_error
        when p_error ->> 'code' like 'HTTP\_%' then p_error || '{"code": "WebhookNon2xx"}'
        when p_error ->> 'code' = 'TIMEOUT' then p_error || '{"code": "WebhookTimeout"}'
        else p_error || '{"code": "HttpException"}' end
$$;

create view passports.jobs as
select id as job_id,
       tenant::uuid as tenant_id,
       case task when 'holdfast.webhook' then 'DELIVER_WEBHOOK' else task end as type,
       case status when 'queued' then 'QUEUED' when 'retrying' then 'QUEUED' when 'dead' then 'DEAD_LETTER'
                   else upper(status::text) end as status,
       payload, attempts, max_attempts, priority,
       run_at as scheduled_at,
       case when status = 'running' then locked_by end as lease_owner,
       lease_expires_at, started_at,
       passports.in_document_words(last_error) as last_error
from holdfast.jobs
where task in ('PARSE_FACTS', 'COMPILE_PASSPORT', 'SIGN_PASSPORT', 'GENERATE_QR', 'holdfast.webhook');

-- The way to retry dead letters, UPDATE jobs SET status = 'QUEUED', attempts = 0. Jobs that have not failed stay
-- as they are, and anything else that an UPDATE says is refused.
create or replace function passports.requeue() returns trigger language plpgsql as $$
begin
    if (new.status, new.attempts) is distinct from ('QUEUED', 0)
       or to_jsonb(new) - '{status,attempts}'::text[] is distinct from to_jsonb(old) - '{status,attempts}'::text[] then
        raise exception 'of a job only this may be said here: status = ''QUEUED'', attempts = 0';
    end if;
    if exists (select from holdfast.retry_dead(array[old.job_id])) then
        return new;
    end if;
    return null;
end $$;

create trigger requeue instead of update on passports.jobs for each row execute function passports.requeue();

create view passports.webhook_deliveries as
select webhook_delivery_id, tenant_id::uuid as tenant_id, webhook_endpoint_id, event_id, status, http_status,
       response_headers, response_body, delivered_at, error_message, created_at
from holdfast.webhook_deliveries;

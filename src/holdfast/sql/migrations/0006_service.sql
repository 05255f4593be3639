-- The service: who may call it, and what it has answered.

-- Who may call the service. Of a token its SHA-256 is kept, and how it begins, for people.
create table api_tokens (
    id           uuid        primary key,
    name         text        not null check (length(name) between 1 and 200),
    digest       bytea       not null unique check (length(digest) = 32),
    shown        text        not null check (length(shown) between 1 and 20),
    tenant       tenant_name,  -- null: of all tenants
    scopes       text[]      not null check (cardinality(scopes) > 0),
    priority     smallint    not null default 0 check (priority between 0 and 3),  -- the best that its jobs may have
    rate         double precision check (rate > 0),  -- requests a second that each service lets through; null: no limit
    created_at   timestamptz not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
) with (fillfactor = 70);

-- What was answered to a request that came with an Idempotency-Key, written in the transaction of what it did.
create table answers (
    owner       text        not null,  -- whose keys they are: a tenant's, or those of tokens without one
    key         text        not null check (length(key) between 1 and 200),
    fingerprint bytea       not null,  -- of the method, the path and the body
    status      smallint,
    body        text,
    created_at  timestamptz not null,
    primary key (owner, key)
);
create index answers_by_time on answers (created_at);

insert into settings (name, value) values ('answers_hours', '24');

-- Seals the cursors of lists: a cursor may stand on another tenant's job, whose id tells when it was made.
create table cursor_keys (
    key text not null check (length(key) >= 64)
);
insert into cursor_keys (key) values (replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

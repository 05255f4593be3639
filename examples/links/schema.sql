-- The application's own tables, and Holdfast's jobs under the names of the design. Run after `holdfast migrate`. Each start of
-- the example recreates them, so a second run begins with an empty shelf.
drop schema if exists links cascade;
create schema links;

-- One row for each page, however many people have it in however many folders. Of the page itself nothing is kept but what
-- its head says: no text, no screenshot.
create table links.canonical_links (
    id           uuid        primary key default holdfast.uuid7(),
    url          text        not null unique,
    domain       text        not null,
    title        text,
    description  text,
    icon         text,
    og_image     text,
    content_type text,
    redirects_to uuid        references links.canonical_links,  -- a page of another host, enriched by a job of its own
    created_at   timestamptz not null default now(),
    enriched_at  timestamptz
);

-- A bookmark: where a user has put a link.
create table links.link_instances (
    id                uuid        primary key default holdfast.uuid7(),
    user_id           text        not null,
    import_job_id     uuid        not null,
    folder            text        not null,
    title             text        not null,
    link_canonical_id uuid        not null references links.canonical_links,
    added_at          timestamptz,
    unique (user_id, folder, link_canonical_id)
);

-- An import is a batch. Its jobs place some bookmarks each and count them here, in the same transaction.
create table links.imports (
    id          uuid   primary key,
    total_items bigint not null
);
create table links.import_parts (
    import_job_id   uuid   references links.imports,
    part            bigint,
    processed_items bigint not null,
    failed_items    bigint not null,
    last_error      text,
    primary key (import_job_id, part)
);

create view links.import_jobs as
select b.id, b.tenant as user_id, b.name as source_type, b.status, i.total_items,
       p.processed_items, p.failed_items, b.created_at, b.started_at, b.finished_at, p.last_error
from links.imports i
join holdfast.batch_progress b on b.id = i.id
cross join lateral (
    select coalesce(sum(processed_items), 0)::bigint as processed_items,
           coalesce(sum(failed_items), 0)::bigint as failed_items,
           (array_agg(last_error order by part desc) filter (where last_error is not null))[1] as last_error
    from links.import_parts where import_job_id = i.id) p;

-- failed: waits for its second attempt, until run_after. Holdfast calls that retrying.
create view links.enrichment_jobs as
select j.id, (j.payload ->> 'link')::uuid as link_canonical_id,
       case j.status when 'retrying' then 'failed' when 'failed' then 'dead' else j.status::text end as status,
       j.attempts, j.max_attempts, j.run_at as run_after, j.locked_at, j.locked_by,
       concat_ws(': ', j.last_error ->> 'code', j.last_error ->> 'message') as last_error,
       j.created_at, greatest(j.created_at, j.started_at, j.heartbeat_at, j.finished_at) as updated_at,
       j.payload ->> 'domain' as domain
from holdfast.jobs j
where j.task = 'links.enrich' and exists (select 1 from links.canonical_links c where c.id = (j.payload ->> 'link')::uuid);

-- Domains that refuse us (403, robots.txt, captcha), for a person to decide about.
create view links.block_candidates as
select key as domain, reason, count, first_seen, last_seen from holdfast.blocks;

-- What a user sees. A link that leads to another host shows what is said there, five steps away at most.
create view links.shelf as
select i.user_id, i.folder, i.title as bookmark, c.url, p.title, p.description, p.icon, p.og_image, i.import_job_id
from links.link_instances i
join links.canonical_links c on c.id = i.link_canonical_id
cross join lateral (
    with recursive hop as (
        select c.id, c.redirects_to, c.title, c.description, c.icon, c.og_image, 0 as steps
        union all
        select n.id, n.redirects_to, n.title, n.description, n.icon, n.og_image, h.steps + 1
        from hop h join links.canonical_links n on n.id = h.redirects_to where h.steps < 5)
    select * from hop order by steps desc limit 1) p;

-- What the run shows at its end.
create view links.domains as
select domain, count(*) as links, count(*) filter (where status = 'succeeded') as succeeded,
       count(*) filter (where attempts > 1) as tried_twice, count(*) filter (where status = 'dead') as dead
from links.enrichment_jobs group by domain order by domain;

create view links.dead_links as
select split_part(last_error, ':', 1) as error, count(*) as links, min(attempts) as least_attempts,
       max(attempts) as most_attempts, array_to_string(array_agg(distinct domain), ', ') as domains
from links.enrichment_jobs where status = 'dead' group by 1 order by 1;

-- +goose Up

-- Leases and expiries are decided by this clock: microseconds since 1970 in UTC.
-- STABLE, so that conditions on it can use an index.
-- +goose StatementBegin
CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
$$;
-- +goose StatementEnd

-- An id of version 7 of a moment, with the random part of another id: n orders
-- those of one moment, each a quarter of a microsecond after the one before.
-- +goose StatementBegin
CREATE FUNCTION stamp(id uuid, us bigint, n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT encode(int8send(((us * 4 + n) / 4000 << 16) | 28672 | ((us * 4 + n) % 4000)) || substr(uuid_send(id), 9), 'hex')::uuid
$$;
-- +goose StatementEnd

-- The least id of a moment: what came before it has a lesser one.
-- +goose StatementBegin
CREATE FUNCTION id_at(us bigint) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT (lpad(to_hex(greatest(us, 0) / 1000 << 16), 16, '0') || '0000000000000000')::uuid
$$;
-- +goose StatementEnd

-- The day of the time in an id, in days since 1970.
-- +goose StatementBegin
CREATE FUNCTION day_of(id uuid) RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ('x' || translate(substr(id::text, 1, 13), '-', ''))::bit(48)::bigint / 86400000
$$;
-- +goose StatementEnd

-- A list of one id, an empty one of the zero id.
-- +goose StatementBegin
CREATE FUNCTION id_list(id uuid) RETURNS uuid[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN id = '00000000-0000-0000-0000-000000000000' THEN '{}'::uuid[] ELSE ARRAY[id] END
$$;
-- +goose StatementEnd

-- The oldest migration whose release still works on this schema. A migration
-- that contracts raises it.
CREATE TABLE schema_compat (
    id smallint PRIMARY KEY CHECK (id = 1),
    oldest bigint NOT NULL
);
INSERT INTO schema_compat (id, oldest) VALUES (1, 1);

-- The hash of all migrations up to a version, as they were applied.
CREATE TABLE schema_fingerprints (
    version bigint PRIMARY KEY,
    fingerprint text NOT NULL
);

-- The one sequence that orders beginnings and activations of deployments.
CREATE TABLE ordinals (
    id smallint PRIMARY KEY CHECK (id = 1),
    value bigint NOT NULL
);
INSERT INTO ordinals (id, value) VALUES (1, 0);

-- Which cluster the store serves: one at a time.
CREATE TABLE cluster_lease (
    id smallint PRIMARY KEY CHECK (id = 1),
    cluster_uid text NOT NULL CHECK (cluster_uid <> ''),
    platform_id uuid NOT NULL,
    renewed_at bigint NOT NULL,
    adopting boolean NOT NULL
);

-- All else belongs to a project: its id comes first in every key, and in the
-- condition of every statement.

-- The ids of a project and the objects that hold them. adopted: by an object of
-- the cluster that had the store before, until one of this cluster takes over.
CREATE TABLE object_ids (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    cluster_uid text NOT NULL,
    namespace text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    object_uid text NOT NULL,
    generation bigint NOT NULL,
    writes bigint NOT NULL CHECK (writes > 0),
    adopted boolean NOT NULL,
    PRIMARY KEY (project_id, id),
    UNIQUE (project_id, kind, name),
    CHECK (NOT adopted OR object_uid = '')
);

-- Objects that went, and what they have left stays as long as history does.
CREATE TABLE departed (
    project_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('Project', 'Environment', 'Deployment', 'Connector')),
    id uuid NOT NULL,
    gone_at bigint NOT NULL,
    -- What an environment was called; '' of other kinds.
    name text NOT NULL DEFAULT '',
    PRIMARY KEY (project_id, kind, id)
);
CREATE INDEX departed_gone ON departed (gone_at);

CREATE TABLE projects (
    project_id uuid PRIMARY KEY,
    display_name text NOT NULL,
    -- 0 is any number.
    backlog_runs bigint NOT NULL,
    backlog_input bigint NOT NULL,
    storage bigint NOT NULL,
    -- 0 is the usual number.
    requests_per_minute bigint NOT NULL,
    -- For how long history is kept; 0 is as long as the platform keeps it.
    history_us bigint NOT NULL,
    -- The export of traces as JSON, NULL without one; its sealed headers and the key that sealed them.
    telemetry text,
    telemetry_sealed bytea,
    telemetry_key text NOT NULL DEFAULT '',
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);

CREATE TABLE environments (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    display_name text NOT NULL,
    wanted_slug text NOT NULL,
    slug text NOT NULL CHECK (slug IN ('', wanted_slug)),
    kind text NOT NULL,
    object_created_at bigint NOT NULL,
    is_default boolean NOT NULL,
    live_deployment_id uuid,
    live_rank bigint NOT NULL,
    live_activated_at bigint,
    wanted_bundle_digest text NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (project_id, id),
    CHECK ((live_deployment_id IS NULL) = (live_activated_at IS NULL))
);
CREATE UNIQUE INDEX environments_default ON environments (project_id) WHERE is_default;
CREATE UNIQUE INDEX environments_slug ON environments (project_id, slug) WHERE slug <> '';

-- The order in which a project's environments were claimed; those beyond its
-- limit have a place here and no row in environments.
CREATE TABLE environment_places (
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (project_id, environment_id)
);

-- shadowed: another connector of the environment has the name now; the row only
-- keeps the secrets.
CREATE TABLE connectors (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    mode text NOT NULL,
    enabled boolean NOT NULL,
    retired boolean NOT NULL,
    shadowed boolean NOT NULL,
    defined_in_code boolean NOT NULL,
    config text NOT NULL,
    sealed bytea,
    require_authentication boolean NOT NULL,
    timeout_seconds bigint NOT NULL,
    files_required boolean NOT NULL,
    -- How callers sign, empty where they send the secret; and the headers that runs see, as JSON.
    signature text NOT NULL,
    context_headers text NOT NULL,
    secret_version bigint NOT NULL,
    secret_key text NOT NULL,
    sealed_key text NOT NULL,
    secrets text NOT NULL,
    secret_grace_us bigint NOT NULL,
    -- Whose file of connectors/ it is, where an activation brought it.
    deployment_id uuid,
    version bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (project_id, id)
);
CREATE UNIQUE INDEX connectors_name ON connectors (project_id, environment_id, name) WHERE NOT retired AND NOT shadowed;
CREATE INDEX connectors_environment ON connectors (project_id, environment_id);

-- What connectors refused lately: numbers and samples as JSON of bounded size. news_at is from
-- when on there is something in it that somebody is to be told.
CREATE TABLE rejections (
    project_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    document text NOT NULL,
    last_at bigint NOT NULL,
    news_at bigint,
    PRIMARY KEY (project_id, connector_id)
) WITH (fillfactor = 50);
CREATE INDEX rejections_last ON rejections (last_at);
CREATE INDEX rejections_news ON rejections (news_at) WHERE news_at IS NOT NULL;

-- The projects whose repositories are to be looked at, as their Git providers say.
CREATE TABLE looks (
    project_id uuid PRIMARY KEY,
    asked_at bigint NOT NULL
) WITH (fillfactor = 50);

-- Replays of many connector runs at once, and how far each has come.
CREATE TABLE replays (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    connector_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('running', 'completed', 'cancelled', 'failed')),
    -- What is replayed: statuses as a JSON list, the cause or '', and the window by the time in ids.
    statuses text NOT NULL,
    trigger_type text NOT NULL,
    since bigint NOT NULL,
    until bigint NOT NULL,
    per_minute bigint NOT NULL CHECK (per_minute > 0),
    -- How many matched at first; more: or more than that.
    matched bigint NOT NULL,
    more boolean NOT NULL,
    -- The last one that was dealt with, or was none to replay.
    position uuid NOT NULL,
    -- How often the next one was tried that could not be read or written.
    tries bigint NOT NULL DEFAULT 0,
    replayed bigint NOT NULL,
    -- How many could not be replayed by reason, as JSON.
    refused text NOT NULL CHECK (octet_length(refused) <= 4096),
    -- Why it waits at the moment, or has failed.
    reason text NOT NULL,
    detail text NOT NULL CHECK (octet_length(detail) <= 4096),
    fingerprint bytea NOT NULL,
    -- When it goes on.
    due_at bigint NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    PRIMARY KEY (project_id, id),
    CHECK ((status = 'running') = (ended_at IS NULL))
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX replays_running ON replays (project_id, connector_id) WHERE status = 'running';
CREATE INDEX replays_connector ON replays (project_id, connector_id, created_at, id);
CREATE INDEX replays_due ON replays (due_at) WHERE status = 'running';
CREATE INDEX replays_ended ON replays (ended_at) WHERE ended_at IS NOT NULL;

-- When cron connectors are due, of those that are active. Unless it is planned, the next
-- tick is the first one after due_at by the schedule.
CREATE TABLE cron_ticks (
    project_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    schedule text NOT NULL,
    time_zone text NOT NULL,
    active boolean NOT NULL,
    planned boolean NOT NULL,
    due_at bigint NOT NULL,
    -- The newest that was run or skipped.
    last_tick_at bigint,
    PRIMARY KEY (project_id, connector_id)
) WITH (fillfactor = 80,
    -- Whoever takes the next row walks over the dead ones before it until they are
    -- vacuumed.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX cron_ticks_due ON cron_ticks (due_at) WHERE active;

CREATE TABLE links (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    connector_id uuid NOT NULL,
    agent_name text NOT NULL,
    files_required boolean NOT NULL,
    outbound text,
    -- Whether it sends word of deliveries that fail.
    tells_failures boolean NOT NULL,
    object_created_at bigint NOT NULL,
    defined_in_code boolean NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (project_id, id),
    UNIQUE (project_id, connector_id, agent_name)
);

-- Of those that may send what runs of their agent end with.
CREATE INDEX links_outbound ON links (project_id, agent_name) WHERE outbound IS NOT NULL;
CREATE INDEX links_telling ON links (project_id) WHERE tells_failures;

CREATE TABLE deployments (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    namespace text NOT NULL,
    name text NOT NULL,
    object_uid text NOT NULL,
    generation bigint NOT NULL,
    fingerprint text NOT NULL,
    source_type text NOT NULL,
    branch text NOT NULL,
    commit_wanted text NOT NULL,
    skip_tests boolean NOT NULL,
    skip_failed_connectors boolean NOT NULL,
    redeploy_of uuid,
    -- Of what source_type says was uploaded, else ''.
    upload_digest text NOT NULL,
    sequence bigint NOT NULL UNIQUE,
    status text NOT NULL CHECK (status IN ('pending', 'building', 'deployed', 'failed', 'cancelled')),
    phase text NOT NULL DEFAULT '',
    -- The phase in which it failed or was cancelled.
    end_phase text NOT NULL DEFAULT '',
    failure_reason text NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '',
    built boolean NOT NULL DEFAULT FALSE,
    -- The folder of the repository that is built; NULL before that begins.
    path text,
    resolved_commit text NOT NULL DEFAULT '',
    commit_message text NOT NULL DEFAULT '',
    author text NOT NULL DEFAULT '',
    -- The bundle that its build has stored, whether or not it ends with it.
    put_digest text NOT NULL DEFAULT '',
    bundle_digest text NOT NULL DEFAULT '',
    bundle_size bigint NOT NULL DEFAULT 0,
    agents text,
    test_results text,
    failed_test_count bigint NOT NULL DEFAULT 0,
    -- The files of connectors/ as JSON, NULL without any; and what became of them.
    connector_files text,
    connector_results text,
    -- What of it counts as stored by the project: its log, and what its build ended with.
    log_size bigint NOT NULL DEFAULT 0,
    result_size bigint NOT NULL DEFAULT 0,
    activation_rank bigint NOT NULL DEFAULT 0,
    -- When the last request to activate was made that was carried out.
    activation_requested_at bigint,
    created_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    activated_at bigint,
    PRIMARY KEY (project_id, id),
    CHECK ((ended_at IS NOT NULL) = (status IN ('deployed', 'failed', 'cancelled'))),
    CHECK (phase = '' OR status = 'building'),
    CHECK (NOT built OR bundle_digest <> '')
);
CREATE INDEX deployments_environment ON deployments (project_id, environment_id, sequence);
-- Whose a bundle is.
CREATE INDEX deployments_bundle ON deployments (project_id, bundle_digest);

CREATE TABLE deployment_agents (
    project_id uuid NOT NULL,
    deployment_id uuid NOT NULL,
    name text NOT NULL,
    config text,
    -- 0 means no limit.
    max_concurrent_runs bigint NOT NULL,
    -- '' where its runs have no concurrency key.
    concurrency_expression text NOT NULL,
    concurrency_drop boolean NOT NULL,
    -- The agent of which it is a variant, '' of none, and the variant's name: no run is its own.
    variant_of text NOT NULL,
    test_name text NOT NULL,
    PRIMARY KEY (project_id, deployment_id, name),
    FOREIGN KEY (project_id, deployment_id) REFERENCES deployments (project_id, id) ON DELETE CASCADE
);

CREATE TABLE build_log (
    project_id uuid NOT NULL,
    deployment_id uuid NOT NULL,
    number bigint NOT NULL CHECK (number >= 0),
    chunk text NOT NULL,
    PRIMARY KEY (project_id, deployment_id, number),
    FOREIGN KEY (project_id, deployment_id) REFERENCES deployments (project_id, id) ON DELETE CASCADE
);

-- Whose a token is, is what it is asked for: so it is found by itself alone.
CREATE TABLE tokens (
    sha256 bytea PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('runner', 'build')),
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    deployment_id uuid,
    created_at bigint NOT NULL,
    CHECK ((kind = 'build') = (deployment_id IS NOT NULL))
);
CREATE INDEX tokens_environment ON tokens (project_id, environment_id);
CREATE INDEX tokens_deployment ON tokens (project_id, deployment_id) WHERE deployment_id IS NOT NULL;

CREATE TABLE runners (
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    id text NOT NULL,
    seen_at bigint NOT NULL,
    places bigint NOT NULL,
    digests text NOT NULL,
    PRIMARY KEY (project_id, environment_id, id)
);

CREATE TABLE blobs (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    size bigint NOT NULL,
    complete boolean NOT NULL,
    -- What it is kept for; '' is swept after a day.
    mark text NOT NULL CHECK (mark IN ('', 'history', 'bundle', 'upload')),
    created_at bigint NOT NULL,
    PRIMARY KEY (project_id, id)
) WITH (fillfactor = 80,
    -- Each blob that is kept leaves a dead entry where the sweep of loose ones begins.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
-- Of those that nothing keeps alone.
CREATE INDEX blobs_loose ON blobs (created_at) WHERE mark = '';
-- Of those that go with history.
CREATE INDEX blobs_history ON blobs (created_at) WHERE mark = 'history';

CREATE TABLE blob_chunks (
    project_id uuid NOT NULL,
    blob_id uuid NOT NULL,
    number bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (project_id, blob_id, number),
    FOREIGN KEY (project_id, blob_id) REFERENCES blobs (project_id, id)
) WITH (
    -- It is not parted, and nearly all of it lies in its TOAST table: a fifth of that, the default, is
    -- too much to be dead.
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02, toast.autovacuum_vacuum_cost_delay = 0);

-- What builds made. From kept_until on one goes, unless something needs it: then that is moved on.
CREATE TABLE bundles (
    project_id uuid NOT NULL,
    digest text NOT NULL,
    size bigint NOT NULL,
    blob_id uuid NOT NULL,
    created_at bigint NOT NULL,
    kept_until bigint NOT NULL,
    PRIMARY KEY (project_id, digest),
    FOREIGN KEY (project_id, blob_id) REFERENCES blobs (project_id, id)
);
CREATE INDEX bundles_kept ON bundles (kept_until);

-- What was uploaded to be deployed. kept_until is moved on by each deployment of it that begins.
CREATE TABLE uploads (
    project_id uuid NOT NULL,
    digest text NOT NULL,
    size bigint NOT NULL,
    blob_id uuid NOT NULL,
    created_at bigint NOT NULL,
    kept_until bigint NOT NULL,
    PRIMARY KEY (project_id, digest)
);
CREATE INDEX uploads_kept ON uploads (kept_until);

-- What is open lives whole in small hot tables: no foreign keys, no index that
-- nothing needs, and room on the page for the updates that touch no index
-- (heartbeats, journal lengths). What ended is inserted once into history, which is
-- never updated and has no unique constraint but its key: its tables are
-- partitioned by the day of the time in their ids.

-- Where claiming of an environment's runs stands: how many were claimed, and the
-- agent that had its turn last, by class. version rises with each claim.
CREATE TABLE pools (
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    version bigint NOT NULL,
    served bigint NOT NULL,
    turns text NOT NULL,
    PRIMARY KEY (project_id, environment_id)
) WITH (fillfactor = 50);

CREATE TABLE open_connector_runs (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'running')),
    trigger_type text NOT NULL CHECK (trigger_type IN ('webhook', 'cron', 'outbound')),
    content_type text NOT NULL,
    input_size bigint NOT NULL,
    -- In the order of the links, oldest first.
    run_ids uuid[] NOT NULL,
    runs_left bigint NOT NULL CHECK (runs_left >= 0),
    runs_failed bigint NOT NULL CHECK (runs_failed >= 0),
    runs_completed bigint NOT NULL CHECK (runs_completed >= 0),
    -- The one of which it is a replay.
    replay_of uuid,
    started_at bigint NOT NULL,
    PRIMARY KEY (project_id, id)
) WITH (fillfactor = 50,
    -- Its rows come and go as those of open_runs.
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
-- With all that a backlog is counted by.
CREATE INDEX open_connector_runs_connector ON open_connector_runs (project_id, connector_id, id) INCLUDE (status, trigger_type);

-- A run is claimed by what stands here: class 0 is sync, 1 inbound, 2 cron and
-- replays; one that is not fresh was handed back or resumed. Its first token is 0;
-- each claim gives it another. runner_id of a queued run is that of the runner which
-- lost it and may still revive its claim.
CREATE TABLE open_runs (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    connector_id uuid,
    connector_run_id uuid,
    link_id uuid,
    agent_name text NOT NULL,
    input_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('scheduled', 'queued', 'running', 'awaiting_approval')),
    class bigint NOT NULL CHECK (class IN (0, 1, 2)),
    fresh boolean NOT NULL DEFAULT TRUE,
    not_before bigint NOT NULL DEFAULT 0,
    deployment_id uuid,
    token bigint NOT NULL DEFAULT 0,
    attempt bigint NOT NULL DEFAULT 0,
    losses bigint NOT NULL DEFAULT 0,
    runner_id text NOT NULL DEFAULT '',
    lease_until bigint,
    wake_at bigint,
    journal_length bigint NOT NULL DEFAULT 0,
    journal_size bigint NOT NULL DEFAULT 0,
    open_tools bigint NOT NULL DEFAULT 0 CHECK (open_tools >= 0),
    -- '' without one, NULL while nobody knows it. blocked: another open run has it.
    concurrency_key text COLLATE "C" DEFAULT '' CHECK (octet_length(concurrency_key) <= 256),
    blocked boolean NOT NULL DEFAULT FALSE,
    -- The A/B variant that executes it; '' of the agent itself, and while that is not known.
    test_name text NOT NULL DEFAULT '' CHECK (octet_length(test_name) <= 63),
    queued_at bigint NOT NULL,
    started_at bigint,
    PRIMARY KEY (project_id, id),
    CHECK (NOT blocked OR status = 'queued' AND COALESCE(concurrency_key, '') <> ''),
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK ((status = 'awaiting_approval') = (wake_at IS NOT NULL)),
    CHECK (status <> 'running' OR (deployment_id IS NOT NULL AND attempt > 0)),
    -- Those are counted by an index that has nothing else of them.
    CHECK (status <> 'queued' OR NOT fresh OR (deployment_id IS NULL AND test_name = '' AND started_at IS NULL))
) WITH (fillfactor = 80,
    -- Whoever takes the next row walks over the dead ones before it until they are
    -- vacuumed.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX open_runs_queued ON open_runs (project_id, environment_id, class, agent_name, fresh, id) WHERE status = 'queued' AND blocked = FALSE;
CREATE INDEX open_runs_blocked ON open_runs (project_id, environment_id, agent_name COLLATE "C", concurrency_key, id) WHERE blocked;
-- Not on lease_until: what runs is little, and so heartbeats touch no index.
CREATE INDEX open_runs_running ON open_runs (project_id, environment_id, id) WHERE status = 'running';
CREATE INDEX open_runs_waiting ON open_runs (project_id, environment_id, wake_at) WHERE status = 'awaiting_approval';

-- Whose a concurrency key is: of the first open run that has it. The texts compare as
-- bytes do, for slots are locked in one order.
CREATE TABLE concurrency_slots (
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    agent_name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    run_id uuid NOT NULL,
    PRIMARY KEY (project_id, environment_id, agent_name, key),
    UNIQUE (project_id, run_id)
) WITH (fillfactor = 80,
    -- Whoever takes the next row walks over the dead ones before it until they are
    -- vacuumed.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

CREATE TABLE idempotency_keys (
    project_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    key text NOT NULL CHECK (length(key) <= 300),
    fingerprint bytea,
    -- Those of the first event: who repeats it is answered from this row alone.
    connector_run_id uuid NOT NULL,
    run_ids uuid[] NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (project_id, connector_id, key)
) WITH (fillfactor = 80,
    -- Whoever takes the next row walks over the dead ones before it until they are
    -- vacuumed.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

-- What is still to be done for what has ended, by consumer: of 'storage' a row for each
-- project, day and transaction, of 'deliveries' one for each run whose agent has a link to an
-- outbound connector, or which has sent something, of 'failures' one for each connector of which
-- deliveries have failed, where a link tells of these. Whoever does the work deletes the row in
-- that transaction; of a connector it stays for a minute, for what fails until then.
CREATE TABLE outbox (
    project_id uuid NOT NULL,
    consumer text NOT NULL CHECK (consumer IN ('storage', 'deliveries', 'failures')),
    -- One of the runs and connector runs that the row is about, or the connector.
    ended_id uuid NOT NULL,
    bytes bigint NOT NULL,
    -- From when on it may be consumed: a row that could not be is set aside for a while, the
    -- longer the more often that was.
    posted_at bigint NOT NULL,
    failures bigint NOT NULL DEFAULT 0,
    -- How many deliveries of the connector ended_id have failed of which nobody was told, and
    -- the last of them.
    failed bigint NOT NULL DEFAULT 0,
    last_failed uuid,
    PRIMARY KEY (project_id, consumer, ended_id)
) WITH (fillfactor = 80,
    -- Whoever takes the next row walks over the dead ones before it until they are
    -- vacuumed.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX outbox_next ON outbox (consumer, posted_at);
CREATE INDEX outbox_turns ON outbox (project_id, posted_at) WHERE consumer IN ('deliveries', 'failures');
CREATE INDEX outbox_aside ON outbox (failures) WHERE failures > 0;

-- The outbox of the consumer of ended runs and connector runs that adds up numbers: a row for each
-- project and transaction, by the first of them, which names the row also where some of it are
-- consumed before the others. One that cannot be consumed is halved, or set aside as of the outbox.
CREATE TABLE outbox_rollups (
    project_id uuid NOT NULL,
    ended_id uuid NOT NULL,
    run_ids uuid[] NOT NULL DEFAULT '{}',
    connector_run_ids uuid[] NOT NULL DEFAULT '{}',
    posted_at bigint NOT NULL,
    failures bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, ended_id)
) WITH (fillfactor = 80,
    -- As of the outbox.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX outbox_rollups_turns ON outbox_rollups (project_id, posted_at);
CREATE INDEX outbox_rollups_aside ON outbox_rollups (failures) WHERE failures > 0;

-- The outbox of the consumer that indexes the words of ended runs: likewise.
CREATE TABLE outbox_words (
    project_id uuid NOT NULL,
    ended_id uuid NOT NULL,
    run_ids uuid[] NOT NULL,
    posted_at bigint NOT NULL,
    failures bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, ended_id)
) WITH (fillfactor = 80,
    -- As of the outbox.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX outbox_words_turns ON outbox_words (project_id, posted_at);
CREATE INDEX outbox_words_aside ON outbox_words (failures) WHERE failures > 0;

-- Ended runs of projects that export traces. A claim makes a row due again at the end of its lease.
CREATE TABLE outbox_traces (
    project_id uuid NOT NULL,
    run_id uuid NOT NULL,
    ended_at bigint NOT NULL,
    due_at bigint NOT NULL,
    PRIMARY KEY (project_id, run_id)
) WITH (fillfactor = 80,
    -- As of the outbox.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX outbox_traces_due ON outbox_traces (project_id, due_at);
CREATE INDEX outbox_traces_ended ON outbox_traces (ended_at);

-- Results on their way to where outbound connectors send: connector runs with the trigger
-- outbound. A claim counts the attempt and makes it due again at the end of its lease.
CREATE TABLE deliveries (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    link_id uuid NOT NULL,
    run_id uuid NOT NULL,
    -- What it carries: of a result the run has it, of the others the input of the same id. A
    -- test has neither link nor run: both are the zero id.
    kind text NOT NULL DEFAULT 'result' CHECK (kind IN ('result', 'payload', 'delivery_failed', 'test')),
    attempt bigint NOT NULL CHECK (attempt >= 0),
    -- How many attempts count: those that the platform could not make do not.
    tries bigint NOT NULL DEFAULT 0,
    -- Why the platform could not make the last attempt; '' where it could.
    waits_for text NOT NULL DEFAULT '',
    due_at bigint NOT NULL,
    lease_until bigint,
    -- One more than what started the run has come by.
    hops bigint NOT NULL DEFAULT 1,
    -- The traceparent of the event that started the run, NULL without one.
    traceparent text CHECK (length(traceparent) = 55),
    replay_of uuid,
    started_at bigint NOT NULL,
    PRIMARY KEY (project_id, id)
) WITH (fillfactor = 80,
    -- Whoever takes the next row walks over the dead ones before it until they are
    -- vacuumed.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX deliveries_due ON deliveries (project_id, connector_id, due_at, id);
CREATE INDEX deliveries_connector ON deliveries (project_id, connector_id, id);
CREATE INDEX deliveries_leased ON deliveries (project_id, connector_id, lease_until) WHERE lease_until IS NOT NULL;
-- The deliveries of a run. Whether history is to stay for the sake of some is asked of all projects
-- at once.
CREATE INDEX deliveries_run ON deliveries (run_id, project_id);

-- Where they go, by connector: when a claim may find one that is due, NULL where none waits,
-- and how many attempts have failed in a row. It is paused for as long as the connector's
-- object has that generation.
CREATE TABLE destinations (
    project_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    due_at bigint,
    failures bigint NOT NULL,
    paused_generation bigint,
    paused_reason text NOT NULL,
    -- How many deliveries have ended failed in a row, and why the last one.
    rejected bigint NOT NULL DEFAULT 0,
    rejected_reason text NOT NULL DEFAULT '',
    PRIMARY KEY (project_id, connector_id)
) WITH (fillfactor = 50,
    -- As of the others.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);
CREATE INDEX destinations_due ON destinations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX destinations_troubled ON destinations (project_id, connector_id) WHERE failures >= 5 OR rejected > 0 OR paused_generation IS NOT NULL;

-- What open runs have sent, by the journal entry that announced it, so that it is sent once:
-- the deliveries, and why one was skipped. Whoever consumes the run's row of the outbox for
-- deliveries deletes these.
CREATE TABLE sends (
    project_id uuid NOT NULL,
    run_id uuid NOT NULL,
    position bigint NOT NULL CHECK (position > 0),
    delivery_id uuid NOT NULL,
    skipped text NOT NULL,
    -- Of the payload.
    bytes bigint NOT NULL,
    PRIMARY KEY (project_id, run_id, position)
) WITH (fillfactor = 80,
    -- As of the others.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000);

-- How many bytes a project has stored: the consumer 'storage' counts them.
CREATE TABLE stored_bytes (
    project_id uuid PRIMARY KEY,
    bytes bigint NOT NULL,
    -- Its days before this one have gone, in days since 1970: what is left of these has ended after
    -- that, or stays for a delivery.
    gone_until bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- How many of these bytes are history's, by the day of the time in the ids, in days since 1970:
-- so what goes with a day is known without a look at it. Each day that a project has history of
-- has a row here once what ended on it is counted. The audit log has audit_days.
CREATE TABLE stored_days (
    project_id uuid NOT NULL,
    day bigint NOT NULL,
    bytes bigint NOT NULL,
    -- Whether rows of it may be gone already.
    going boolean NOT NULL DEFAULT FALSE,
    PRIMARY KEY (project_id, day)
) WITH (fillfactor = 50);
CREATE INDEX stored_days_day ON stored_days (day);

-- The numbers of ended runs, by the hour, the day and the month in UTC in which they were queued.
-- They are kept for ever. An id says what a row is of: all that comes before its numbers. The
-- zero id stands for no deployment, or no connector.
CREATE TABLE run_rollups (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    agent_name text NOT NULL,
    grain text NOT NULL CHECK (grain IN ('hour', 'day', 'month')),
    begins_at bigint NOT NULL,
    test_name text NOT NULL,
    deployment_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    status text NOT NULL,
    guardrail_outcome text NOT NULL,
    runs bigint NOT NULL CHECK (runs > 0),
    -- Of those that had started: how many, their durations together, and a sketch of these.
    timed bigint NOT NULL,
    duration_us bigint NOT NULL,
    durations bytea NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    thinking_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    total_tokens bigint NOT NULL,
    PRIMARY KEY (project_id, id)
) WITH (fillfactor = 80);
CREATE INDEX run_rollups_agent ON run_rollups (project_id, environment_id, agent_name, grain, begins_at);
-- Of those that are counted anew.
CREATE INDEX run_rollups_time ON run_rollups (project_id, grain, begins_at);

-- What calls of models cost that ended runs have made: by what run_rollups tells runs apart by, the
-- model, the day in UTC of the calls in days since 1970, and the currency of their price, '' without
-- any. They are kept for ever. An id says what a row is of: all that comes before its numbers.
CREATE TABLE usage_rollups (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    agent_name text NOT NULL,
    grain text NOT NULL CHECK (grain IN ('hour', 'day', 'month')),
    begins_at bigint NOT NULL,
    test_name text NOT NULL,
    deployment_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    status text NOT NULL,
    guardrail_outcome text NOT NULL,
    model text NOT NULL,
    day bigint NOT NULL,
    currency text NOT NULL,
    calls bigint NOT NULL CHECK (calls > 0),
    cost_nanos bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    thinking_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    total_tokens bigint NOT NULL,
    PRIMARY KEY (project_id, id)
) WITH (fillfactor = 80);
CREATE INDEX usage_rollups_agent ON usage_rollups (project_id, environment_id, agent_name, grain, begins_at);
CREATE INDEX usage_rollups_time ON usage_rollups (project_id, grain, begins_at);

-- The central bank's reference rates: how many millionths of a currency a euro was on a day, in days
-- since 1970. They are of the whole platform.
CREATE TABLE exchange_rates (
    currency text NOT NULL,
    day bigint NOT NULL,
    micros bigint NOT NULL CHECK (micros > 0),
    PRIMARY KEY (currency, day)
);

-- The numbers of ended connector runs, by the hour, the day and the month in UTC in which they
-- started: likewise.
CREATE TABLE connector_rollups (
    project_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    grain text NOT NULL CHECK (grain IN ('hour', 'day', 'month')),
    begins_at bigint NOT NULL,
    trigger_type text NOT NULL,
    status text NOT NULL,
    runs bigint NOT NULL CHECK (runs > 0),
    -- How long they took together.
    duration_us bigint NOT NULL,
    PRIMARY KEY (project_id, connector_id, grain, begins_at, trigger_type, status)
) WITH (fillfactor = 80);
CREATE INDEX connector_rollups_time ON connector_rollups (project_id, grain, begins_at);

-- How many runs of agents and of their A/B variants have ended, and when the last one did.
CREATE TABLE agent_totals (
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    agent_name text NOT NULL,
    test_name text NOT NULL,
    runs bigint NOT NULL,
    last_ended_at bigint NOT NULL,
    PRIMARY KEY (project_id, environment_id, agent_name, test_name)
) WITH (fillfactor = 50,
    -- Whoever looks for those that ended last meets the dead ones first.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX agent_totals_last ON agent_totals (project_id, environment_id, last_ended_at);

-- History.

-- What is larger than 64 KiB lies in a blob that the row names: so no transaction that many
-- share, no page and no list carries it. The blob is written before, in transactions of its
-- own, and marked 'history' by the one that inserts the row. Whether a blob is kept is never
-- told by whether a row names it: no statement looks through history for that, but of the few
-- results that are on their way when they are too old.

-- The input of a connector run, or of a run that has one of its own, by its id.
CREATE TABLE inputs (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    content_type text NOT NULL,
    data bytea CHECK (length(data) <= 65536),
    blob_id uuid,
    -- Its attachments, accepted or omitted, as JSON; NULL without any. Their bytes are blobs.
    files text CHECK (octet_length(files) <= 262144),
    -- The headers that its runs see, as JSON; NULL without any.
    headers text CHECK (octet_length(headers) <= 65536),
    -- How many deliveries of platforms it has come by, as far as is known.
    hops bigint NOT NULL DEFAULT 0,
    -- The W3C traceparent of the request, NULL without a valid one.
    traceparent text CHECK (length(traceparent) = 55),
    PRIMARY KEY (project_id, id)
) PARTITION BY RANGE (id);

CREATE TABLE ended_connector_runs (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('completed', 'failed', 'skipped', 'cancelled')),
    trigger_type text NOT NULL,
    content_type text NOT NULL,
    run_ids uuid[] NOT NULL,
    -- What a delivery carried, as in deliveries; '' of what is none.
    kind text NOT NULL DEFAULT '' CHECK (kind IN ('', 'result', 'payload', 'delivery_failed', 'test')),
    -- By how many deliveries one that was sent came, as in deliveries; 0 of the others.
    hops bigint NOT NULL DEFAULT 0,
    error text NOT NULL,
    replay_of uuid,
    started_at bigint NOT NULL,
    ended_at bigint NOT NULL,
    PRIMARY KEY (project_id, id)
) PARTITION BY RANGE (id);
CREATE INDEX ended_connector_runs_connector ON ended_connector_runs (project_id, connector_id, id);
CREATE INDEX ended_connector_runs_failed ON ended_connector_runs (project_id, connector_id, id) WHERE status <> 'completed';
-- The deliveries of a run.
CREATE INDEX ended_connector_runs_sent ON ended_connector_runs (project_id, (run_ids[1]), id) WHERE kind <> '';

CREATE TABLE ended_runs (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    environment_id uuid NOT NULL,
    connector_id uuid,
    connector_run_id uuid,
    link_id uuid,
    agent_name text NOT NULL,
    input_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    deployment_id uuid,
    token bigint NOT NULL,
    attempt bigint NOT NULL,
    runner_id text NOT NULL,
    error_code text NOT NULL,
    error text NOT NULL,
    -- '' where it is in the blob.
    output text NOT NULL CHECK (octet_length(output) <= 65536),
    output_blob_id uuid,
    -- What scripts set, a JSON object; '' where they set nothing.
    context text NOT NULL DEFAULT '' CHECK (octet_length(context) <= 65536),
    -- Whether no outbound link sends the result.
    unpublished boolean NOT NULL DEFAULT FALSE,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    thinking_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    total_tokens bigint NOT NULL,
    test_name text NOT NULL DEFAULT '',
    -- What guardrails made of it; '' where none did anything.
    guardrail_outcome text NOT NULL DEFAULT '' CHECK (guardrail_outcome IN ('', 'warned', 'blocked', 'redacted')),
    queued_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint NOT NULL,
    -- When somebody erased what it was about: then it is numbers alone, and nobody reads the run.
    erased_at bigint,
    PRIMARY KEY (project_id, id),
    CHECK (output = '' OR output_blob_id IS NULL)
) PARTITION BY RANGE (id);
CREATE INDEX ended_runs_agent ON ended_runs (project_id, agent_name, id);
CREATE INDEX ended_runs_failed ON ended_runs (project_id, id) WHERE status <> 'completed';
CREATE INDEX ended_runs_agent_failed ON ended_runs (project_id, agent_name, id) WHERE status <> 'completed';

-- By which words an ended run is found, and by which fields. A term is a hash of one of them and
-- of the project, so that one project's words are no other's, and an index of another size.
CREATE TABLE run_words (
    project_id uuid NOT NULL,
    run_id uuid NOT NULL,
    terms bigint[] NOT NULL,
    -- Of runs of an event and day that share their terms: the run whose row has them. NULL for other runs.
    shared uuid,
    -- How much the row counts as stored, with its terms.
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, run_id)
) PARTITION BY RANGE (run_id);
CREATE INDEX run_words_terms ON run_words USING gin (terms);
CREATE INDEX run_words_shared ON run_words (project_id, shared) WHERE shared IS NOT NULL;

-- Entries that the platform writes have the token 0.
CREATE TABLE journal (
    project_id uuid NOT NULL,
    run_id uuid NOT NULL,
    sequence bigint NOT NULL CHECK (sequence > 0),
    token bigint NOT NULL,
    kind text NOT NULL,
    -- NULL where it is in the blob, or nothing.
    data text CHECK (octet_length(data) <= 65536),
    blob_id uuid,
    unsafe boolean NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (project_id, run_id, sequence),
    CHECK (data IS NULL OR blob_id IS NULL)
) PARTITION BY RANGE (run_id);

-- What each call of a model cost, by the journal entry that holds its answer.
CREATE TABLE model_calls (
    project_id uuid NOT NULL,
    run_id uuid NOT NULL,
    sequence bigint NOT NULL,
    model text NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    thinking_tokens bigint NOT NULL,
    cached_input_tokens bigint NOT NULL,
    total_tokens bigint NOT NULL,
    at bigint NOT NULL,
    -- What it cost, in billionths of the currency; '' where no price is known.
    currency text NOT NULL DEFAULT '',
    cost_nanos bigint NOT NULL DEFAULT 0 CHECK (cost_nanos >= 0),
    PRIMARY KEY (project_id, run_id, sequence)
) PARTITION BY RANGE (run_id);

-- What was seen of each attempt to deliver. status_code is 0 where nothing was answered.
CREATE TABLE delivery_attempts (
    project_id uuid NOT NULL,
    delivery_id uuid NOT NULL,
    number bigint NOT NULL CHECK (number > 0),
    at bigint NOT NULL,
    duration_us bigint NOT NULL,
    status_code bigint NOT NULL,
    error_class text NOT NULL,
    error text NOT NULL,
    response text NOT NULL CHECK (octet_length(response) <= 65536),
    PRIMARY KEY (project_id, delivery_id, number)
) PARTITION BY RANGE (delivery_id);

-- Who changed what: an act before its effect, and what became of it. Rows are
-- inserted and never changed; both tables are history.

CREATE TABLE audit_log (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    at bigint NOT NULL,
    actor_kind text NOT NULL CHECK (actor_kind IN ('api_key', 'command', 'kubernetes')),
    actor_name text NOT NULL,
    key_id text NOT NULL,
    owner_kind text NOT NULL,
    owner_name text NOT NULL,
    operation text NOT NULL CHECK (operation <> ''),
    method text NOT NULL,
    route text NOT NULL,
    object_kind text NOT NULL,
    object_id text NOT NULL,
    object_name text NOT NULL,
    request_id text NOT NULL,
    remote_addr text NOT NULL,
    idempotency_key text NOT NULL,
    PRIMARY KEY (project_id, id)
) PARTITION BY RANGE (id);

CREATE TABLE audit_outcomes (
    project_id uuid NOT NULL,
    id uuid NOT NULL,
    at bigint NOT NULL,
    status bigint NOT NULL,
    code text NOT NULL,
    object_kind text NOT NULL,
    object_id text NOT NULL,
    object_name text NOT NULL,
    before text CHECK (octet_length(before) <= 16384),
    after text CHECK (octet_length(after) <= 16384),
    PRIMARY KEY (project_id, id)
) PARTITION BY RANGE (id);

-- The days of a project's audit log, in days since 1970. An entry and its day are inserted in one
-- transaction, and the row is deleted after the entries of the day.
CREATE TABLE audit_days (
    project_id uuid NOT NULL,
    day bigint NOT NULL,
    PRIMARY KEY (project_id, day)
);
CREATE INDEX audit_days_day ON audit_days (day);

CREATE INDEX connectors_secret_key ON connectors (secret_key);

-- What the store knows of the platform's keys: a fingerprint, never the key.
CREATE TABLE platform_keys (
    id text PRIMARY KEY,
    ring text NOT NULL CHECK (ring IN ('derivation', 'sealing')),
    fingerprint text NOT NULL,
    rank bigint NOT NULL UNIQUE,
    current boolean NOT NULL DEFAULT FALSE,
    used boolean NOT NULL DEFAULT FALSE,
    revoked_at bigint,
    ends_at bigint,
    retired_at bigint,
    CHECK (used OR NOT current),
    CHECK ((revoked_at IS NULL) = (ends_at IS NULL)),
    CHECK (retired_at IS NULL OR revoked_at IS NOT NULL)
);
CREATE UNIQUE INDEX platform_keys_current ON platform_keys (ring) WHERE current;

-- Processes that use keys, and which they hold.
CREATE TABLE key_holders (
    process text PRIMARY KEY,
    keys text NOT NULL,
    seen_at bigint NOT NULL
);

-- Which key derived which version of a connector's secret. It outlives the
-- connector: one that is made again has its secrets again.
CREATE TABLE derivations (
    project_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    version bigint NOT NULL,
    key_id text NOT NULL,
    PRIMARY KEY (project_id, connector_id, version)
);

-- The requests to the REST API that count at present, by project: the moments in
-- microseconds at which they were let through, oldest first. Not logged, so that
-- no request waits for the disk; a crash of the server empties it.
CREATE UNLOGGED TABLE request_windows (
    project_id uuid PRIMARY KEY,
    taken bigint[] NOT NULL,
    allowed boolean NOT NULL,
    at bigint NOT NULL
) WITH (fillfactor = 50);

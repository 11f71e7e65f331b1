-- +goose Up

-- Times are microseconds since 1970 in UTC; now_us() is a function of the driver.
-- Ids are lower-case TEXT.

-- The oldest migration whose release still works on this schema. A migration
-- that contracts raises it.
CREATE TABLE schema_compat (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    oldest INTEGER NOT NULL
);
INSERT INTO schema_compat (id, oldest) VALUES (1, 1);

-- The hash of all migrations up to a version, as they were applied.
CREATE TABLE schema_fingerprints (
    version INTEGER PRIMARY KEY,
    fingerprint TEXT NOT NULL
);

-- The one sequence that orders beginnings and activations of deployments.
CREATE TABLE ordinals (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    value INTEGER NOT NULL
);
INSERT INTO ordinals (id, value) VALUES (1, 0);

-- Which cluster the store serves: one at a time.
CREATE TABLE cluster_lease (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    cluster_uid TEXT NOT NULL CHECK (cluster_uid <> ''),
    platform_id TEXT NOT NULL,
    renewed_at INTEGER NOT NULL,
    adopting BOOLEAN NOT NULL
);

-- All else belongs to a project: its id comes first in every key, and in the
-- condition of every statement.

-- The ids of a project and the objects that hold them. adopted: by an object of
-- the cluster that had the store before, until one of this cluster takes over.
CREATE TABLE object_ids (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    cluster_uid TEXT NOT NULL,
    namespace TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    object_uid TEXT NOT NULL,
    generation INTEGER NOT NULL,
    writes INTEGER NOT NULL CHECK (writes > 0),
    adopted BOOLEAN NOT NULL,
    PRIMARY KEY (project_id, id),
    UNIQUE (project_id, kind, name),
    CHECK (NOT adopted OR object_uid = '')
);

-- Objects that went, and what they have left stays as long as history does.
CREATE TABLE departed (
    project_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('Project', 'Environment', 'Deployment', 'Connector')),
    id TEXT NOT NULL,
    gone_at INTEGER NOT NULL,
    -- What an environment was called; '' of other kinds.
    name TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (project_id, kind, id)
);
CREATE INDEX departed_gone ON departed (gone_at);

CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    display_name TEXT NOT NULL,
    -- 0 is any number.
    backlog_runs INTEGER NOT NULL,
    backlog_input INTEGER NOT NULL,
    storage INTEGER NOT NULL,
    -- 0 is the usual number.
    requests_per_minute INTEGER NOT NULL,
    -- For how long history is kept; 0 is as long as the platform keeps it.
    history_us INTEGER NOT NULL,
    -- The export of traces as JSON, NULL without one; its sealed headers and the key that sealed them.
    telemetry TEXT,
    telemetry_sealed BLOB,
    telemetry_key TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE environments (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    display_name TEXT NOT NULL,
    wanted_slug TEXT NOT NULL,
    slug TEXT NOT NULL CHECK (slug IN ('', wanted_slug)),
    kind TEXT NOT NULL,
    object_created_at INTEGER NOT NULL,
    is_default BOOLEAN NOT NULL,
    live_deployment_id TEXT,
    live_rank INTEGER NOT NULL,
    live_activated_at INTEGER,
    wanted_bundle_digest TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id),
    CHECK ((live_deployment_id IS NULL) = (live_activated_at IS NULL))
);
CREATE UNIQUE INDEX environments_default ON environments (project_id) WHERE is_default;
CREATE UNIQUE INDEX environments_slug ON environments (project_id, slug) WHERE slug <> '';

-- The order in which a project's environments were claimed; those beyond its
-- limit have a place here and no row in environments.
CREATE TABLE environment_places (
    project_id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (project_id, environment_id)
);

-- shadowed: another connector of the environment has the name now; the row only
-- keeps the secrets.
CREATE TABLE connectors (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    mode TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    retired BOOLEAN NOT NULL,
    shadowed BOOLEAN NOT NULL,
    defined_in_code BOOLEAN NOT NULL,
    config TEXT NOT NULL,
    sealed BLOB,
    require_authentication BOOLEAN NOT NULL,
    timeout_seconds INTEGER NOT NULL,
    files_required BOOLEAN NOT NULL,
    -- How callers sign, empty where they send the secret; and the headers that runs see, as JSON.
    signature TEXT NOT NULL,
    context_headers TEXT NOT NULL,
    secret_version INTEGER NOT NULL,
    secret_key TEXT NOT NULL,
    sealed_key TEXT NOT NULL,
    secrets TEXT NOT NULL,
    secret_grace_us INTEGER NOT NULL,
    -- Whose file of connectors/ it is, where an activation brought it.
    deployment_id TEXT,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
CREATE UNIQUE INDEX connectors_name ON connectors (project_id, environment_id, name) WHERE NOT retired AND NOT shadowed;
CREATE INDEX connectors_environment ON connectors (project_id, environment_id);

-- What connectors refused lately: numbers and samples as JSON of bounded size. news_at is from
-- when on there is something in it that somebody is to be told.
CREATE TABLE rejections (
    project_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    document TEXT NOT NULL,
    last_at INTEGER NOT NULL,
    news_at INTEGER,
    PRIMARY KEY (project_id, connector_id)
);
CREATE INDEX rejections_last ON rejections (last_at);
CREATE INDEX rejections_news ON rejections (news_at) WHERE news_at IS NOT NULL;

-- The projects whose repositories are to be looked at, as their Git providers say.
CREATE TABLE looks (
    project_id TEXT PRIMARY KEY,
    asked_at INTEGER NOT NULL
);

-- Replays of many connector runs at once, and how far each has come.
CREATE TABLE replays (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('running', 'completed', 'cancelled', 'failed')),
    -- What is replayed: statuses as a JSON list, the cause or '', and the window by the time in ids.
    statuses TEXT NOT NULL,
    trigger_type TEXT NOT NULL,
    since INTEGER NOT NULL,
    until INTEGER NOT NULL,
    per_minute INTEGER NOT NULL CHECK (per_minute > 0),
    -- How many matched at first; more: or more than that.
    matched INTEGER NOT NULL,
    more BOOLEAN NOT NULL,
    -- The last one that was dealt with, or was none to replay.
    position TEXT NOT NULL,
    -- How often the next one was tried that could not be read or written.
    tries INTEGER NOT NULL DEFAULT 0,
    replayed INTEGER NOT NULL,
    -- How many could not be replayed by reason, as JSON.
    refused TEXT NOT NULL CHECK (octet_length(refused) <= 4096),
    -- Why it waits at the moment, or has failed.
    reason TEXT NOT NULL,
    detail TEXT NOT NULL CHECK (octet_length(detail) <= 4096),
    fingerprint BLOB NOT NULL,
    -- When it goes on.
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (project_id, id),
    CHECK ((status = 'running') = (ended_at IS NULL))
);
CREATE UNIQUE INDEX replays_running ON replays (project_id, connector_id) WHERE status = 'running';
CREATE INDEX replays_connector ON replays (project_id, connector_id, created_at, id);
CREATE INDEX replays_due ON replays (due_at) WHERE status = 'running';
CREATE INDEX replays_ended ON replays (ended_at) WHERE ended_at IS NOT NULL;

-- When cron connectors are due, of those that are active. Unless it is planned, the next
-- tick is the first one after due_at by the schedule.
CREATE TABLE cron_ticks (
    project_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    schedule TEXT NOT NULL,
    time_zone TEXT NOT NULL,
    active BOOLEAN NOT NULL,
    planned BOOLEAN NOT NULL,
    due_at INTEGER NOT NULL,
    -- The newest that was run or skipped.
    last_tick_at INTEGER,
    PRIMARY KEY (project_id, connector_id)
);
CREATE INDEX cron_ticks_due ON cron_ticks (due_at) WHERE active;

CREATE TABLE links (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    files_required BOOLEAN NOT NULL,
    outbound TEXT,
    -- Whether it sends word of deliveries that fail.
    tells_failures BOOLEAN NOT NULL,
    object_created_at INTEGER NOT NULL,
    defined_in_code BOOLEAN NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id),
    UNIQUE (project_id, connector_id, agent_name)
);

-- Of those that may send what runs of their agent end with.
CREATE INDEX links_outbound ON links (project_id, agent_name) WHERE outbound IS NOT NULL;
CREATE INDEX links_telling ON links (project_id) WHERE tells_failures;

CREATE TABLE deployments (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    object_uid TEXT NOT NULL,
    generation INTEGER NOT NULL,
    fingerprint TEXT NOT NULL,
    source_type TEXT NOT NULL,
    branch TEXT NOT NULL,
    commit_wanted TEXT NOT NULL,
    skip_tests BOOLEAN NOT NULL,
    skip_failed_connectors BOOLEAN NOT NULL,
    redeploy_of TEXT,
    -- Of what source_type says was uploaded, else ''.
    upload_digest TEXT NOT NULL,
    sequence INTEGER NOT NULL UNIQUE,
    status TEXT NOT NULL CHECK (status IN ('pending', 'building', 'deployed', 'failed', 'cancelled')),
    phase TEXT NOT NULL DEFAULT '',
    -- The phase in which it failed or was cancelled.
    end_phase TEXT NOT NULL DEFAULT '',
    failure_reason TEXT NOT NULL DEFAULT '',
    message TEXT NOT NULL DEFAULT '',
    built BOOLEAN NOT NULL DEFAULT FALSE,
    -- The folder of the repository that is built; NULL before that begins.
    path TEXT,
    resolved_commit TEXT NOT NULL DEFAULT '',
    commit_message TEXT NOT NULL DEFAULT '',
    author TEXT NOT NULL DEFAULT '',
    -- The bundle that its build has stored, whether or not it ends with it.
    put_digest TEXT NOT NULL DEFAULT '',
    bundle_digest TEXT NOT NULL DEFAULT '',
    bundle_size INTEGER NOT NULL DEFAULT 0,
    agents TEXT,
    test_results TEXT,
    failed_test_count INTEGER NOT NULL DEFAULT 0,
    -- The files of connectors/ as JSON, NULL without any; and what became of them.
    connector_files TEXT,
    connector_results TEXT,
    -- What of it counts as stored by the project: its log, and what its build ended with.
    log_size INTEGER NOT NULL DEFAULT 0,
    result_size INTEGER NOT NULL DEFAULT 0,
    activation_rank INTEGER NOT NULL DEFAULT 0,
    -- When the last request to activate was made that was carried out.
    activation_requested_at INTEGER,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    activated_at INTEGER,
    PRIMARY KEY (project_id, id),
    CHECK ((ended_at IS NOT NULL) = (status IN ('deployed', 'failed', 'cancelled'))),
    CHECK (phase = '' OR status = 'building'),
    CHECK (NOT built OR bundle_digest <> '')
);
CREATE INDEX deployments_environment ON deployments (project_id, environment_id, sequence);
-- Whose a bundle is.
CREATE INDEX deployments_bundle ON deployments (project_id, bundle_digest);

CREATE TABLE deployment_agents (
    project_id TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    name TEXT NOT NULL,
    config TEXT,
    -- 0 means no limit.
    max_concurrent_runs INTEGER NOT NULL,
    -- '' where its runs have no concurrency key.
    concurrency_expression TEXT NOT NULL,
    concurrency_drop BOOLEAN NOT NULL,
    -- The agent of which it is a variant, '' of none, and the variant's name: no run is its own.
    variant_of TEXT NOT NULL,
    test_name TEXT NOT NULL,
    PRIMARY KEY (project_id, deployment_id, name),
    FOREIGN KEY (project_id, deployment_id) REFERENCES deployments (project_id, id) ON DELETE CASCADE
);

CREATE TABLE build_log (
    project_id TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number >= 0),
    chunk TEXT NOT NULL,
    PRIMARY KEY (project_id, deployment_id, number),
    FOREIGN KEY (project_id, deployment_id) REFERENCES deployments (project_id, id) ON DELETE CASCADE
);

-- Whose a token is, is what it is asked for: so it is found by itself alone.
CREATE TABLE tokens (
    sha256 BLOB PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('runner', 'build')),
    project_id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    deployment_id TEXT,
    created_at INTEGER NOT NULL,
    CHECK ((kind = 'build') = (deployment_id IS NOT NULL))
);
CREATE INDEX tokens_environment ON tokens (project_id, environment_id);
CREATE INDEX tokens_deployment ON tokens (project_id, deployment_id) WHERE deployment_id IS NOT NULL;

CREATE TABLE runners (
    project_id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    id TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    places INTEGER NOT NULL,
    digests TEXT NOT NULL,
    PRIMARY KEY (project_id, environment_id, id)
);

CREATE TABLE blobs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    size INTEGER NOT NULL,
    complete BOOLEAN NOT NULL,
    -- What it is kept for; '' is swept after a day.
    mark TEXT NOT NULL CHECK (mark IN ('', 'history', 'bundle', 'upload')),
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
-- Of those that nothing keeps alone: that one is kept does not age the index.
CREATE INDEX blobs_loose ON blobs (created_at) WHERE mark = '';
-- Of those that go with history.
CREATE INDEX blobs_history ON blobs (created_at) WHERE mark = 'history';

CREATE TABLE blob_chunks (
    project_id TEXT NOT NULL,
    blob_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (project_id, blob_id, number),
    FOREIGN KEY (project_id, blob_id) REFERENCES blobs (project_id, id)
);

-- What builds made. From kept_until on one goes, unless something needs it: then that is moved on.
CREATE TABLE bundles (
    project_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    blob_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    kept_until INTEGER NOT NULL,
    PRIMARY KEY (project_id, digest),
    FOREIGN KEY (project_id, blob_id) REFERENCES blobs (project_id, id)
);
CREATE INDEX bundles_kept ON bundles (kept_until);

-- What was uploaded to be deployed. kept_until is moved on by each deployment of it that begins.
CREATE TABLE uploads (
    project_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    blob_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    kept_until INTEGER NOT NULL,
    PRIMARY KEY (project_id, digest)
);
CREATE INDEX uploads_kept ON uploads (kept_until);

-- What is open lives whole in small hot tables: no foreign keys, no index that
-- nothing needs, and room on the page for the updates that touch no index
-- (heartbeats, journal lengths). What ended is inserted once into history, which is
-- never updated and has no unique constraint but its key: it is
-- deleted by the time in its ids.

-- Where claiming of an environment's runs stands: how many were claimed, and the
-- agent that had its turn last, by class. version rises with each claim.
CREATE TABLE pools (
    project_id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    served INTEGER NOT NULL,
    turns TEXT NOT NULL,
    PRIMARY KEY (project_id, environment_id)
);

CREATE TABLE open_connector_runs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'running')),
    trigger_type TEXT NOT NULL CHECK (trigger_type IN ('webhook', 'cron', 'outbound')),
    content_type TEXT NOT NULL,
    input_size INTEGER NOT NULL,
    -- In the order of the links, oldest first.
    run_ids TEXT NOT NULL,
    runs_left INTEGER NOT NULL CHECK (runs_left >= 0),
    runs_failed INTEGER NOT NULL CHECK (runs_failed >= 0),
    runs_completed INTEGER NOT NULL CHECK (runs_completed >= 0),
    -- The one of which it is a replay.
    replay_of TEXT,
    started_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
-- With all that a backlog is counted by.
CREATE INDEX open_connector_runs_connector ON open_connector_runs (project_id, connector_id, id, status, trigger_type);

-- A run is claimed by what stands here: class 0 is sync, 1 inbound, 2 cron and
-- replays; one that is not fresh was handed back or resumed. Its first token is 0;
-- each claim gives it another. runner_id of a queued run is that of the runner which
-- lost it and may still revive its claim.
CREATE TABLE open_runs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    connector_id TEXT,
    connector_run_id TEXT,
    link_id TEXT,
    agent_name TEXT NOT NULL,
    input_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('scheduled', 'queued', 'running', 'awaiting_approval')),
    class INTEGER NOT NULL CHECK (class IN (0, 1, 2)),
    fresh BOOLEAN NOT NULL DEFAULT TRUE,
    not_before INTEGER NOT NULL DEFAULT 0,
    deployment_id TEXT,
    token INTEGER NOT NULL DEFAULT 0,
    attempt INTEGER NOT NULL DEFAULT 0,
    losses INTEGER NOT NULL DEFAULT 0,
    runner_id TEXT NOT NULL DEFAULT '',
    lease_until INTEGER,
    wake_at INTEGER,
    journal_length INTEGER NOT NULL DEFAULT 0,
    journal_size INTEGER NOT NULL DEFAULT 0,
    open_tools INTEGER NOT NULL DEFAULT 0 CHECK (open_tools >= 0),
    -- '' without one, NULL while nobody knows it. blocked: another open run has it.
    concurrency_key TEXT DEFAULT '' CHECK (octet_length(concurrency_key) <= 256),
    blocked BOOLEAN NOT NULL DEFAULT FALSE,
    -- The A/B variant that executes it; '' of the agent itself, and while that is not known.
    test_name TEXT NOT NULL DEFAULT '' CHECK (octet_length(test_name) <= 63),
    queued_at INTEGER NOT NULL,
    started_at INTEGER,
    PRIMARY KEY (project_id, id),
    CHECK (NOT blocked OR status = 'queued' AND COALESCE(concurrency_key, '') <> ''),
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK ((status = 'awaiting_approval') = (wake_at IS NOT NULL)),
    CHECK (status <> 'running' OR (deployment_id IS NOT NULL AND attempt > 0)),
    -- Those are counted by an index that has nothing else of them.
    CHECK (status <> 'queued' OR NOT fresh OR (deployment_id IS NULL AND test_name = '' AND started_at IS NULL))
);
-- Of a column that equals a constant SQLite knows what entries have, which it does not of NOT
-- blocked: so to count them it reads no row.
CREATE INDEX open_runs_queued ON open_runs (project_id, environment_id, class, agent_name, fresh, id) WHERE status = 'queued' AND blocked = FALSE;
CREATE INDEX open_runs_blocked ON open_runs (project_id, environment_id, agent_name, concurrency_key, id) WHERE blocked;
-- Not on lease_until: what runs is little, and so heartbeats touch no index.
CREATE INDEX open_runs_running ON open_runs (project_id, environment_id, id) WHERE status = 'running';
CREATE INDEX open_runs_waiting ON open_runs (project_id, environment_id, wake_at) WHERE status = 'awaiting_approval';

-- Whose a concurrency key is: of the first open run that has it.
CREATE TABLE concurrency_slots (
    project_id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    PRIMARY KEY (project_id, environment_id, agent_name, key),
    UNIQUE (project_id, run_id)
);

CREATE TABLE idempotency_keys (
    project_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    key TEXT NOT NULL CHECK (length(key) <= 300),
    fingerprint BLOB,
    -- Those of the first event: who repeats it is answered from this row alone.
    connector_run_id TEXT NOT NULL,
    run_ids TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, connector_id, key)
);
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

-- What is still to be done for what has ended, by consumer: of 'storage' a row for each
-- project, day and transaction, of 'deliveries' one for each run whose agent has a link to an
-- outbound connector, or which has sent something, of 'failures' one for each connector of which
-- deliveries have failed, where a link tells of these. Whoever does the work deletes the row in
-- that transaction; of a connector it stays for a minute, for what fails until then.
CREATE TABLE outbox (
    project_id TEXT NOT NULL,
    consumer TEXT NOT NULL CHECK (consumer IN ('storage', 'deliveries', 'failures')),
    -- One of the runs and connector runs that the row is about, or the connector.
    ended_id TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    -- From when on it may be consumed: a row that could not be is set aside for a while, the
    -- longer the more often that was.
    posted_at INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    -- How many deliveries of the connector ended_id have failed of which nobody was told, and
    -- the last of them.
    failed INTEGER NOT NULL DEFAULT 0,
    last_failed TEXT,
    PRIMARY KEY (project_id, consumer, ended_id)
);
CREATE INDEX outbox_next ON outbox (consumer, posted_at);
CREATE INDEX outbox_turns ON outbox (project_id, posted_at) WHERE consumer IN ('deliveries', 'failures');
CREATE INDEX outbox_aside ON outbox (failures) WHERE failures > 0;

-- The outbox of the consumer of ended runs and connector runs that adds up numbers: a row for each
-- project and transaction, by the first of them, which names the row also where some of it are
-- consumed before the others. One that cannot be consumed is halved, or set aside as of the outbox.
CREATE TABLE outbox_rollups (
    project_id TEXT NOT NULL,
    ended_id TEXT NOT NULL,
    run_ids TEXT NOT NULL DEFAULT '[]',
    connector_run_ids TEXT NOT NULL DEFAULT '[]',
    posted_at INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, ended_id)
);
CREATE INDEX outbox_rollups_turns ON outbox_rollups (project_id, posted_at);
CREATE INDEX outbox_rollups_aside ON outbox_rollups (failures) WHERE failures > 0;

-- The outbox of the consumer that indexes the words of ended runs: likewise.
CREATE TABLE outbox_words (
    project_id TEXT NOT NULL,
    ended_id TEXT NOT NULL,
    run_ids TEXT NOT NULL,
    posted_at INTEGER NOT NULL,
    failures INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (project_id, ended_id)
);
CREATE INDEX outbox_words_turns ON outbox_words (project_id, posted_at);
CREATE INDEX outbox_words_aside ON outbox_words (failures) WHERE failures > 0;

-- Ended runs of projects that export traces. A claim makes a row due again at the end of its lease.
CREATE TABLE outbox_traces (
    project_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    ended_at INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, run_id)
);
CREATE INDEX outbox_traces_due ON outbox_traces (project_id, due_at);
CREATE INDEX outbox_traces_ended ON outbox_traces (ended_at);

-- Results on their way to where outbound connectors send: connector runs with the trigger
-- outbound. A claim counts the attempt and makes it due again at the end of its lease.
CREATE TABLE deliveries (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    link_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    -- What it carries: of a result the run has it, of the others the input of the same id. A
    -- test has neither link nor run: both are the zero id.
    kind TEXT NOT NULL DEFAULT 'result' CHECK (kind IN ('result', 'payload', 'delivery_failed', 'test')),
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    -- How many attempts count: those that the platform could not make do not.
    tries INTEGER NOT NULL DEFAULT 0,
    -- Why the platform could not make the last attempt; '' where it could.
    waits_for TEXT NOT NULL DEFAULT '',
    due_at INTEGER NOT NULL,
    lease_until INTEGER,
    -- One more than what started the run has come by.
    hops INTEGER NOT NULL DEFAULT 1,
    -- The traceparent of the event that started the run, NULL without one.
    traceparent TEXT CHECK (length(traceparent) = 55),
    replay_of TEXT,
    started_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
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
    project_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    due_at INTEGER,
    failures INTEGER NOT NULL,
    paused_generation INTEGER,
    paused_reason TEXT NOT NULL,
    -- How many deliveries have ended failed in a row, and why the last one.
    rejected INTEGER NOT NULL DEFAULT 0,
    rejected_reason TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (project_id, connector_id)
);
CREATE INDEX destinations_due ON destinations (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX destinations_troubled ON destinations (project_id, connector_id) WHERE failures >= 5 OR rejected > 0 OR paused_generation IS NOT NULL;

-- What open runs have sent, by the journal entry that announced it, so that it is sent once:
-- the deliveries, and why one was skipped. Whoever consumes the run's row of the outbox for
-- deliveries deletes these.
CREATE TABLE sends (
    project_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    position INTEGER NOT NULL CHECK (position > 0),
    delivery_id TEXT NOT NULL,
    skipped TEXT NOT NULL,
    -- Of the payload.
    bytes INTEGER NOT NULL,
    PRIMARY KEY (project_id, run_id, position)
);

-- How many bytes a project has stored: the consumer 'storage' counts them.
CREATE TABLE stored_bytes (
    project_id TEXT PRIMARY KEY,
    bytes INTEGER NOT NULL,
    -- Its days before this one have gone, in days since 1970: what is left of these has ended after
    -- that, or stays for a delivery.
    gone_until INTEGER NOT NULL DEFAULT 0
);

-- How many of these bytes are history's, by the day of the time in the ids, in days since 1970:
-- so what goes with a day is known without a look at it. Each day that a project has history of
-- has a row here once what ended on it is counted. The audit log has audit_days.
CREATE TABLE stored_days (
    project_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    -- Whether rows of it may be gone already.
    going BOOLEAN NOT NULL DEFAULT FALSE,
    PRIMARY KEY (project_id, day)
);
CREATE INDEX stored_days_day ON stored_days (day);

-- The numbers of ended runs, by the hour, the day and the month in UTC in which they were queued.
-- They are kept for ever. An id says what a row is of: all that comes before its numbers. The
-- zero id stands for no deployment, or no connector.
CREATE TABLE run_rollups (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    grain TEXT NOT NULL CHECK (grain IN ('hour', 'day', 'month')),
    begins_at INTEGER NOT NULL,
    test_name TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    status TEXT NOT NULL,
    guardrail_outcome TEXT NOT NULL,
    runs INTEGER NOT NULL CHECK (runs > 0),
    -- Of those that had started: how many, their durations together, and a sketch of these.
    timed INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    durations BLOB NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    thinking_tokens INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    total_tokens INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
CREATE INDEX run_rollups_agent ON run_rollups (project_id, environment_id, agent_name, grain, begins_at);
-- Of those that are counted anew.
CREATE INDEX run_rollups_time ON run_rollups (project_id, grain, begins_at);

-- What calls of models cost that ended runs have made: by what run_rollups tells runs apart by, the
-- model, the day in UTC of the calls in days since 1970, and the currency of their price, '' without
-- any. They are kept for ever. An id says what a row is of: all that comes before its numbers.
CREATE TABLE usage_rollups (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    grain TEXT NOT NULL CHECK (grain IN ('hour', 'day', 'month')),
    begins_at INTEGER NOT NULL,
    test_name TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    status TEXT NOT NULL,
    guardrail_outcome TEXT NOT NULL,
    model TEXT NOT NULL,
    day INTEGER NOT NULL,
    currency TEXT NOT NULL,
    calls INTEGER NOT NULL CHECK (calls > 0),
    cost_nanos INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    thinking_tokens INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    total_tokens INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
CREATE INDEX usage_rollups_agent ON usage_rollups (project_id, environment_id, agent_name, grain, begins_at);
CREATE INDEX usage_rollups_time ON usage_rollups (project_id, grain, begins_at);

-- The central bank's reference rates: how many millionths of a currency a euro was on a day, in days
-- since 1970. They are of the whole platform.
CREATE TABLE exchange_rates (
    currency TEXT NOT NULL,
    day INTEGER NOT NULL,
    micros INTEGER NOT NULL CHECK (micros > 0),
    PRIMARY KEY (currency, day)
);

-- The numbers of ended connector runs, by the hour, the day and the month in UTC in which they
-- started: likewise.
CREATE TABLE connector_rollups (
    project_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    grain TEXT NOT NULL CHECK (grain IN ('hour', 'day', 'month')),
    begins_at INTEGER NOT NULL,
    trigger_type TEXT NOT NULL,
    status TEXT NOT NULL,
    runs INTEGER NOT NULL CHECK (runs > 0),
    -- How long they took together.
    duration_us INTEGER NOT NULL,
    PRIMARY KEY (project_id, connector_id, grain, begins_at, trigger_type, status)
);
CREATE INDEX connector_rollups_time ON connector_rollups (project_id, grain, begins_at);

-- How many runs of agents and of their A/B variants have ended, and when the last one did.
CREATE TABLE agent_totals (
    project_id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    test_name TEXT NOT NULL,
    runs INTEGER NOT NULL,
    last_ended_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, environment_id, agent_name, test_name)
);
CREATE INDEX agent_totals_last ON agent_totals (project_id, environment_id, last_ended_at);

-- History.

-- What is larger than 64 KiB lies in a blob that the row names: so no transaction that many
-- share, no page and no list carries it. The blob is written before, in transactions of its
-- own, and marked 'history' by the one that inserts the row. Whether a blob is kept is never
-- told by whether a row names it: no statement looks through history for that, but of the few
-- results that are on their way when they are too old.

-- The input of a connector run, or of a run that has one of its own, by its id.
CREATE TABLE inputs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    content_type TEXT NOT NULL,
    data BLOB CHECK (length(data) <= 65536),
    blob_id TEXT,
    -- Its attachments, accepted or omitted, as JSON; NULL without any. Their bytes are blobs.
    files TEXT CHECK (octet_length(files) <= 262144),
    -- The headers that its runs see, as JSON; NULL without any.
    headers TEXT CHECK (octet_length(headers) <= 65536),
    -- How many deliveries of platforms it has come by, as far as is known.
    hops INTEGER NOT NULL DEFAULT 0,
    -- The W3C traceparent of the request, NULL without a valid one.
    traceparent TEXT CHECK (length(traceparent) = 55),
    PRIMARY KEY (project_id, id)
);

CREATE TABLE ended_connector_runs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('completed', 'failed', 'skipped', 'cancelled')),
    trigger_type TEXT NOT NULL,
    content_type TEXT NOT NULL,
    run_ids TEXT NOT NULL,
    -- What a delivery carried, as in deliveries; '' of what is none.
    kind TEXT NOT NULL DEFAULT '' CHECK (kind IN ('', 'result', 'payload', 'delivery_failed', 'test')),
    -- By how many deliveries one that was sent came, as in deliveries; 0 of the others.
    hops INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL,
    replay_of TEXT,
    started_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
CREATE INDEX ended_connector_runs_connector ON ended_connector_runs (project_id, connector_id, id);
CREATE INDEX ended_connector_runs_failed ON ended_connector_runs (project_id, connector_id, id) WHERE status <> 'completed';
-- The deliveries of a run.
CREATE INDEX ended_connector_runs_sent ON ended_connector_runs (project_id, json_extract(run_ids, '$[0]'), id) WHERE kind <> '';

CREATE TABLE ended_runs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    connector_id TEXT,
    connector_run_id TEXT,
    link_id TEXT,
    agent_name TEXT NOT NULL,
    input_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    deployment_id TEXT,
    token INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    runner_id TEXT NOT NULL,
    error_code TEXT NOT NULL,
    error TEXT NOT NULL,
    -- '' where it is in the blob.
    output TEXT NOT NULL CHECK (octet_length(output) <= 65536),
    output_blob_id TEXT,
    -- What scripts set, a JSON object; '' where they set nothing.
    context TEXT NOT NULL DEFAULT '' CHECK (octet_length(context) <= 65536),
    -- Whether no outbound link sends the result.
    unpublished INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    thinking_tokens INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    total_tokens INTEGER NOT NULL,
    test_name TEXT NOT NULL DEFAULT '',
    -- What guardrails made of it; '' where none did anything.
    guardrail_outcome TEXT NOT NULL DEFAULT '' CHECK (guardrail_outcome IN ('', 'warned', 'blocked', 'redacted')),
    queued_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER NOT NULL,
    -- When somebody erased what it was about: then it is numbers alone, and nobody reads the run.
    erased_at INTEGER,
    PRIMARY KEY (project_id, id),
    CHECK (output = '' OR output_blob_id IS NULL)
);
CREATE INDEX ended_runs_agent ON ended_runs (project_id, agent_name, id);
CREATE INDEX ended_runs_failed ON ended_runs (project_id, id) WHERE status <> 'completed';
CREATE INDEX ended_runs_agent_failed ON ended_runs (project_id, agent_name, id) WHERE status <> 'completed';

-- By which words an ended run is found, and by which fields: the terms of its entry in run_terms,
-- which goes with the row. A term is a hash of one of them and of the project, so that one
-- project's words are no other's.
CREATE TABLE run_words (
    entry INTEGER PRIMARY KEY,
    project_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    -- Of runs of an event and day that share their terms: the run whose row has them. NULL for other runs.
    shared TEXT,
    -- How much the row counts as stored, with its terms.
    bytes INTEGER NOT NULL DEFAULT 0,
    UNIQUE (project_id, run_id)
);
CREATE INDEX run_words_shared ON run_words (project_id, shared) WHERE shared IS NOT NULL;
CREATE VIRTUAL TABLE run_terms USING fts5 (terms, content = '', contentless_delete = 1, detail = 'none', tokenize = 'ascii');
-- What was deleted goes when parts of the index are merged for the sake of what was added: to merge
-- one because much of it was deleted reads all of it at once, seconds in which nobody else writes.
INSERT INTO run_terms (run_terms, rank) VALUES ('deletemerge', 0);
-- +goose StatementBegin
CREATE TRIGGER run_words_gone AFTER DELETE ON run_words BEGIN
    DELETE FROM run_terms WHERE rowid = old.entry;
END;
-- +goose StatementEnd

-- Entries that the platform writes have the token 0.
CREATE TABLE journal (
    project_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    token INTEGER NOT NULL,
    kind TEXT NOT NULL,
    -- NULL where it is in the blob, or nothing.
    data TEXT CHECK (octet_length(data) <= 65536),
    blob_id TEXT,
    unsafe BOOLEAN NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (project_id, run_id, sequence),
    CHECK (data IS NULL OR blob_id IS NULL)
);

-- What each call of a model cost, by the journal entry that holds its answer.
CREATE TABLE model_calls (
    project_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    model TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    thinking_tokens INTEGER NOT NULL,
    cached_input_tokens INTEGER NOT NULL,
    total_tokens INTEGER NOT NULL,
    at INTEGER NOT NULL,
    -- What it cost, in billionths of the currency; '' where no price is known.
    currency TEXT NOT NULL DEFAULT '',
    cost_nanos INTEGER NOT NULL DEFAULT 0 CHECK (cost_nanos >= 0),
    PRIMARY KEY (project_id, run_id, sequence)
);

-- What was seen of each attempt to deliver. status_code is 0 where nothing was answered.
CREATE TABLE delivery_attempts (
    project_id TEXT NOT NULL,
    delivery_id TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    at INTEGER NOT NULL,
    duration_us INTEGER NOT NULL,
    status_code INTEGER NOT NULL,
    error_class TEXT NOT NULL,
    error TEXT NOT NULL,
    response TEXT NOT NULL CHECK (octet_length(response) <= 65536),
    PRIMARY KEY (project_id, delivery_id, number)
);

-- Who changed what: an act before its effect, and what became of it. Rows are
-- inserted and never changed; both tables are history.

CREATE TABLE audit_log (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    actor_kind TEXT NOT NULL CHECK (actor_kind IN ('api_key', 'command', 'kubernetes')),
    actor_name TEXT NOT NULL,
    key_id TEXT NOT NULL,
    owner_kind TEXT NOT NULL,
    owner_name TEXT NOT NULL,
    operation TEXT NOT NULL CHECK (operation <> ''),
    method TEXT NOT NULL,
    route TEXT NOT NULL,
    object_kind TEXT NOT NULL,
    object_id TEXT NOT NULL,
    object_name TEXT NOT NULL,
    request_id TEXT NOT NULL,
    remote_addr TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    PRIMARY KEY (project_id, id)
);

CREATE TABLE audit_outcomes (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    at INTEGER NOT NULL,
    status INTEGER NOT NULL,
    code TEXT NOT NULL,
    object_kind TEXT NOT NULL,
    object_id TEXT NOT NULL,
    object_name TEXT NOT NULL,
    before TEXT CHECK (octet_length(before) <= 16384),
    after TEXT CHECK (octet_length(after) <= 16384),
    PRIMARY KEY (project_id, id)
);

-- The days of a project's audit log, in days since 1970. An entry and its day are inserted in one
-- transaction, and the row is deleted after the entries of the day.
CREATE TABLE audit_days (
    project_id TEXT NOT NULL,
    day INTEGER NOT NULL,
    PRIMARY KEY (project_id, day)
);
CREATE INDEX audit_days_day ON audit_days (day);

CREATE INDEX connectors_secret_key ON connectors (secret_key);

-- What the store knows of the platform's keys: a fingerprint, never the key.
CREATE TABLE platform_keys (
    id TEXT PRIMARY KEY,
    ring TEXT NOT NULL CHECK (ring IN ('derivation', 'sealing')),
    fingerprint TEXT NOT NULL,
    rank INTEGER NOT NULL UNIQUE,
    current BOOLEAN NOT NULL DEFAULT FALSE,
    used BOOLEAN NOT NULL DEFAULT FALSE,
    revoked_at INTEGER,
    ends_at INTEGER,
    retired_at INTEGER,
    CHECK (used OR NOT current),
    CHECK ((revoked_at IS NULL) = (ends_at IS NULL)),
    CHECK (retired_at IS NULL OR revoked_at IS NOT NULL)
);
CREATE UNIQUE INDEX platform_keys_current ON platform_keys (ring) WHERE current;

-- Processes that use keys, and which they hold.
CREATE TABLE key_holders (
    process TEXT PRIMARY KEY,
    keys TEXT NOT NULL,
    seen_at INTEGER NOT NULL
);

-- Which key derived which version of a connector's secret. It outlives the
-- connector: one that is made again has its secrets again.
CREATE TABLE derivations (
    project_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    PRIMARY KEY (project_id, connector_id, version)
);

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

CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    display_name TEXT NOT NULL,
    requests_per_minute INTEGER NOT NULL,
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
    secret_version INTEGER NOT NULL,
    secret_key TEXT NOT NULL,
    sealed_key TEXT NOT NULL,
    secrets TEXT NOT NULL,
    secret_grace_us INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
CREATE UNIQUE INDEX connectors_name ON connectors (project_id, environment_id, name) WHERE NOT retired AND NOT shadowed;
CREATE INDEX connectors_environment ON connectors (project_id, environment_id);

CREATE TABLE links (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    files_required BOOLEAN NOT NULL,
    outbound TEXT,
    object_created_at INTEGER NOT NULL,
    defined_in_code BOOLEAN NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id),
    UNIQUE (project_id, connector_id, agent_name)
);

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
    sequence INTEGER NOT NULL UNIQUE,
    status TEXT NOT NULL CHECK (status IN ('pending', 'building', 'deployed', 'failed', 'cancelled')),
    phase TEXT NOT NULL DEFAULT '',
    failure_reason TEXT NOT NULL DEFAULT '',
    message TEXT NOT NULL DEFAULT '',
    built BOOLEAN NOT NULL DEFAULT FALSE,
    resolved_commit TEXT NOT NULL DEFAULT '',
    commit_message TEXT NOT NULL DEFAULT '',
    author TEXT NOT NULL DEFAULT '',
    bundle_digest TEXT NOT NULL DEFAULT '',
    bundle_size INTEGER NOT NULL DEFAULT 0,
    agents TEXT,
    test_results TEXT,
    failed_test_count INTEGER NOT NULL DEFAULT 0,
    connector_results TEXT,
    log_size INTEGER NOT NULL DEFAULT 0,
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

CREATE TABLE deployment_agents (
    project_id TEXT NOT NULL,
    deployment_id TEXT NOT NULL,
    name TEXT NOT NULL,
    config TEXT,
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
    digests TEXT NOT NULL,
    PRIMARY KEY (project_id, environment_id, id)
);

CREATE TABLE blobs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    size INTEGER NOT NULL,
    complete BOOLEAN NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, id)
);
CREATE INDEX blobs_created ON blobs (created_at);

CREATE TABLE blob_chunks (
    project_id TEXT NOT NULL,
    blob_id TEXT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (project_id, blob_id, number),
    FOREIGN KEY (project_id, blob_id) REFERENCES blobs (project_id, id)
);

CREATE TABLE bundles (
    project_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    size INTEGER NOT NULL,
    blob_id TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, digest),
    FOREIGN KEY (project_id, blob_id) REFERENCES blobs (project_id, id)
);
CREATE INDEX bundles_blob ON bundles (project_id, blob_id);

-- Hot tables: no foreign keys, no index that nothing needs.

CREATE TABLE connector_runs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'completed', 'failed', 'skipped', 'cancelled')),
    trigger_type TEXT NOT NULL CHECK (trigger_type IN ('webhook', 'cron', 'outbound')),
    input BLOB CHECK (length(input) <= 65536),
    input_blob TEXT,
    content_type TEXT NOT NULL,
    open_runs INTEGER NOT NULL CHECK (open_runs >= 0),
    failed_runs INTEGER NOT NULL CHECK (failed_runs >= 0),
    error TEXT NOT NULL DEFAULT '',
    started_at INTEGER NOT NULL,
    ended_at INTEGER,
    PRIMARY KEY (project_id, id),
    CHECK ((ended_at IS NULL) = (status IN ('pending', 'running'))),
    CHECK (open_runs = 0 OR ended_at IS NULL)
);
CREATE INDEX connector_runs_connector ON connector_runs (project_id, connector_id, id);
CREATE INDEX connector_runs_blob ON connector_runs (project_id, input_blob) WHERE input_blob IS NOT NULL;

CREATE TABLE agent_runs (
    project_id TEXT NOT NULL,
    id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    connector_id TEXT,
    connector_run_id TEXT,
    link_id TEXT,
    position INTEGER NOT NULL,
    agent_name TEXT NOT NULL,
    deployment_id TEXT,
    status TEXT NOT NULL CHECK (status IN
        ('scheduled', 'queued', 'running', 'awaiting_approval', 'completed', 'failed', 'cancelled')),
    error_code TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    output TEXT NOT NULL DEFAULT '',
    fencing_token INTEGER NOT NULL DEFAULT 0,
    completion_token INTEGER,
    runner_id TEXT NOT NULL DEFAULT '',
    lease_until INTEGER,
    journal_length INTEGER NOT NULL DEFAULT 0,
    open_tools INTEGER NOT NULL DEFAULT 0 CHECK (open_tools >= 0),
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    thinking_tokens INTEGER NOT NULL DEFAULT 0,
    cached_input_tokens INTEGER NOT NULL DEFAULT 0,
    total_tokens INTEGER NOT NULL DEFAULT 0,
    queued_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    PRIMARY KEY (project_id, id),
    UNIQUE (project_id, connector_run_id, link_id),
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK (status <> 'running' OR (deployment_id IS NOT NULL AND fencing_token > 0)),
    CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled')))
);
CREATE INDEX agent_runs_queued ON agent_runs (project_id, environment_id, id) WHERE status = 'queued';
-- Not on lease_until: what runs is little, and so heartbeats touch no index.
CREATE INDEX agent_runs_running ON agent_runs (project_id, id) WHERE status = 'running';
CREATE INDEX agent_runs_agent ON agent_runs (project_id, environment_id, agent_name, id);

CREATE TABLE journal (
    project_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    token INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data TEXT,
    unsafe BOOLEAN NOT NULL,
    PRIMARY KEY (project_id, run_id, sequence)
);

CREATE TABLE idempotency_keys (
    project_id TEXT NOT NULL,
    connector_id TEXT NOT NULL,
    key TEXT NOT NULL CHECK (length(key) <= 300),
    fingerprint BLOB,
    connector_run_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, connector_id, key)
);
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

-- Who changed what: an act before its effect, and what became of it. Rows are
-- inserted and never changed; an id is by the database's time, so that both
-- tables can be partitioned by it. No foreign key and no unique but the key.

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

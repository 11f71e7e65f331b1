-- The tables of the yardstick, as the store's were before it kept what is open apart from
-- what ended, and nothing beside them.

CREATE TABLE environments (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
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
    CHECK ((live_deployment_id IS NULL) = (live_activated_at IS NULL))
);
CREATE INDEX environments_project ON environments (project_id);
CREATE UNIQUE INDEX environments_default ON environments (project_id) WHERE is_default;
CREATE UNIQUE INDEX environments_slug ON environments (project_id, slug) WHERE slug <> '';

CREATE TABLE connectors (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    mode TEXT NOT NULL,
    enabled BOOLEAN NOT NULL,
    retired BOOLEAN NOT NULL,
    defined_in_code BOOLEAN NOT NULL,
    config TEXT NOT NULL,
    sealed BLOB,
    require_authentication BOOLEAN NOT NULL,
    timeout_seconds INTEGER NOT NULL,
    files_required BOOLEAN NOT NULL,
    secrets TEXT NOT NULL,
    secret_grace_us INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);
CREATE INDEX connectors_environment ON connectors (environment_id);

CREATE TABLE deployments (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    environment_id TEXT NOT NULL,
    cluster_uid TEXT NOT NULL,
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
    connector_results TEXT,
    activation_rank INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    ended_at INTEGER,
    activated_at INTEGER,
    CHECK ((ended_at IS NOT NULL) = (status IN ('deployed', 'failed', 'cancelled'))),
    CHECK (phase = '' OR status = 'building'),
    CHECK (NOT built OR bundle_digest <> '')
);
CREATE INDEX deployments_environment ON deployments (environment_id, sequence);

CREATE TABLE deployment_agents (
    deployment_id TEXT NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    PRIMARY KEY (deployment_id, name)
);

CREATE TABLE runners (
    environment_id TEXT NOT NULL,
    id TEXT NOT NULL,
    seen_at INTEGER NOT NULL,
    digests TEXT NOT NULL,
    PRIMARY KEY (environment_id, id)
);

CREATE TABLE blobs (
    id TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    complete BOOLEAN NOT NULL,
    created_at INTEGER NOT NULL
);
CREATE INDEX blobs_created ON blobs (created_at);

CREATE TABLE connector_runs (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
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
    CHECK ((ended_at IS NULL) = (status IN ('pending', 'running'))),
    CHECK (open_runs = 0 OR ended_at IS NULL)
);
CREATE INDEX connector_runs_connector ON connector_runs (connector_id, id);
CREATE INDEX connector_runs_blob ON connector_runs (input_blob) WHERE input_blob IS NOT NULL;

CREATE TABLE agent_runs (
    id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
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
    UNIQUE (connector_run_id, link_id),
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK (status <> 'running' OR (deployment_id IS NOT NULL AND fencing_token > 0)),
    CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled')))
);
CREATE INDEX agent_runs_queued ON agent_runs (environment_id, id) WHERE status = 'queued';
-- Not on lease_until: what runs is little, and so heartbeats touch no index.
CREATE INDEX agent_runs_running ON agent_runs (id) WHERE status = 'running';
CREATE INDEX agent_runs_project ON agent_runs (project_id, id);
CREATE INDEX agent_runs_agent ON agent_runs (environment_id, agent_name, id);

CREATE TABLE journal (
    run_id TEXT NOT NULL,
    sequence INTEGER NOT NULL CHECK (sequence > 0),
    token INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data TEXT,
    unsafe BOOLEAN NOT NULL,
    PRIMARY KEY (run_id, sequence)
);

CREATE TABLE idempotency_keys (
    connector_id TEXT NOT NULL,
    key TEXT NOT NULL CHECK (length(key) <= 300),
    fingerprint BLOB,
    connector_run_id TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (connector_id, key)
);
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

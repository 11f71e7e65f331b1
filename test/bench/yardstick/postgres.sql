-- The tables of the yardstick, as the store's were before it kept what is open apart from
-- what ended, and nothing beside them.

-- Microseconds since 1970 in UTC.
CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint
$$;

CREATE TABLE environments (
    id uuid PRIMARY KEY,
    project_id uuid NOT NULL,
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
    CHECK ((live_deployment_id IS NULL) = (live_activated_at IS NULL))
);
CREATE INDEX environments_project ON environments (project_id);
CREATE UNIQUE INDEX environments_default ON environments (project_id) WHERE is_default;
CREATE UNIQUE INDEX environments_slug ON environments (project_id, slug) WHERE slug <> '';

CREATE TABLE connectors (
    id uuid PRIMARY KEY,
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    mode text NOT NULL,
    enabled boolean NOT NULL,
    retired boolean NOT NULL,
    defined_in_code boolean NOT NULL,
    config text NOT NULL,
    sealed bytea,
    require_authentication boolean NOT NULL,
    timeout_seconds bigint NOT NULL,
    files_required boolean NOT NULL,
    secrets text NOT NULL,
    secret_grace_us bigint NOT NULL,
    version bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE INDEX connectors_environment ON connectors (environment_id);

CREATE TABLE deployments (
    id uuid PRIMARY KEY,
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    cluster_uid text NOT NULL,
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
    sequence bigint NOT NULL UNIQUE,
    status text NOT NULL CHECK (status IN ('pending', 'building', 'deployed', 'failed', 'cancelled')),
    phase text NOT NULL DEFAULT '',
    failure_reason text NOT NULL DEFAULT '',
    message text NOT NULL DEFAULT '',
    built boolean NOT NULL DEFAULT FALSE,
    resolved_commit text NOT NULL DEFAULT '',
    commit_message text NOT NULL DEFAULT '',
    author text NOT NULL DEFAULT '',
    bundle_digest text NOT NULL DEFAULT '',
    bundle_size bigint NOT NULL DEFAULT 0,
    agents text,
    test_results text,
    connector_results text,
    activation_rank bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    activated_at bigint,
    CHECK ((ended_at IS NOT NULL) = (status IN ('deployed', 'failed', 'cancelled'))),
    CHECK (phase = '' OR status = 'building'),
    CHECK (NOT built OR bundle_digest <> '')
);
CREATE INDEX deployments_environment ON deployments (environment_id, sequence);

CREATE TABLE deployment_agents (
    deployment_id uuid NOT NULL REFERENCES deployments (id) ON DELETE CASCADE,
    name text NOT NULL,
    PRIMARY KEY (deployment_id, name)
);

CREATE TABLE runners (
    environment_id uuid NOT NULL,
    id text NOT NULL,
    seen_at bigint NOT NULL,
    digests text NOT NULL,
    PRIMARY KEY (environment_id, id)
);

CREATE TABLE blobs (
    id uuid PRIMARY KEY,
    size bigint NOT NULL,
    complete boolean NOT NULL,
    created_at bigint NOT NULL
);
CREATE INDEX blobs_created ON blobs (created_at);

CREATE TABLE connector_runs (
    id uuid PRIMARY KEY,
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    connector_id uuid NOT NULL,
    status text NOT NULL CHECK (status IN ('pending', 'running', 'completed', 'failed', 'skipped', 'cancelled')),
    trigger_type text NOT NULL CHECK (trigger_type IN ('webhook', 'cron', 'outbound')),
    input bytea CHECK (length(input) <= 65536),
    input_blob uuid,
    content_type text NOT NULL,
    open_runs bigint NOT NULL CHECK (open_runs >= 0),
    failed_runs bigint NOT NULL CHECK (failed_runs >= 0),
    error text NOT NULL DEFAULT '',
    started_at bigint NOT NULL,
    ended_at bigint,
    CHECK ((ended_at IS NULL) = (status IN ('pending', 'running'))),
    CHECK (open_runs = 0 OR ended_at IS NULL)
) WITH (fillfactor = 85);
CREATE INDEX connector_runs_connector ON connector_runs (connector_id, id);
CREATE INDEX connector_runs_blob ON connector_runs (input_blob) WHERE input_blob IS NOT NULL;

CREATE TABLE agent_runs (
    id uuid PRIMARY KEY,
    project_id uuid NOT NULL,
    environment_id uuid NOT NULL,
    connector_id uuid,
    connector_run_id uuid,
    link_id uuid,
    position bigint NOT NULL,
    agent_name text NOT NULL,
    deployment_id uuid,
    status text NOT NULL CHECK (status IN
        ('scheduled', 'queued', 'running', 'awaiting_approval', 'completed', 'failed', 'cancelled')),
    error_code text NOT NULL DEFAULT '',
    error text NOT NULL DEFAULT '',
    output text NOT NULL DEFAULT '',
    fencing_token bigint NOT NULL DEFAULT 0,
    completion_token bigint,
    runner_id text NOT NULL DEFAULT '',
    lease_until bigint,
    journal_length bigint NOT NULL DEFAULT 0,
    open_tools bigint NOT NULL DEFAULT 0 CHECK (open_tools >= 0),
    input_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    thinking_tokens bigint NOT NULL DEFAULT 0,
    cached_input_tokens bigint NOT NULL DEFAULT 0,
    total_tokens bigint NOT NULL DEFAULT 0,
    queued_at bigint NOT NULL,
    started_at bigint,
    ended_at bigint,
    UNIQUE (connector_run_id, link_id),
    CHECK ((status = 'running') = (lease_until IS NOT NULL)),
    CHECK (status <> 'running' OR (deployment_id IS NOT NULL AND fencing_token > 0)),
    CHECK ((ended_at IS NOT NULL) = (status IN ('completed', 'failed', 'cancelled')))
) WITH (fillfactor = 80,
    -- Claims walk over the dead entries of the index of queued runs until they
    -- are vacuumed.
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX agent_runs_queued ON agent_runs (environment_id, id) WHERE status = 'queued';
-- Not on lease_until: what runs is little, and so heartbeats touch no index.
CREATE INDEX agent_runs_running ON agent_runs (id) WHERE status = 'running';
CREATE INDEX agent_runs_project ON agent_runs (project_id, id);
CREATE INDEX agent_runs_agent ON agent_runs (environment_id, agent_name, id);

CREATE TABLE journal (
    run_id uuid NOT NULL,
    sequence bigint NOT NULL CHECK (sequence > 0),
    token bigint NOT NULL,
    kind text NOT NULL,
    data text,
    unsafe boolean NOT NULL,
    PRIMARY KEY (run_id, sequence)
);

CREATE TABLE idempotency_keys (
    connector_id uuid NOT NULL,
    key text NOT NULL CHECK (length(key) <= 300),
    fingerprint bytea,
    connector_run_id uuid NOT NULL,
    expires_at bigint NOT NULL,
    PRIMARY KEY (connector_id, key)
);
CREATE INDEX idempotency_keys_expires ON idempotency_keys (expires_at);

// SPDX-License-Identifier: Apache-2.0

// Manages a project with a generated client. AGENTPLATFORM_SERVER, AGENTPLATFORM_PROJECT and
// AGENTPLATFORM_API_KEY name the project, the argument is a folder to deploy. The default
// environment has a live agent and runs.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { randomUUID } from "node:crypto";
import createClient from "openapi-fetch";
import type { components, paths } from "./agentplatform.js";

type Problem = components["schemas"]["Problem"];
type RunList = components["schemas"]["RunList"];

const project_id = process.env["AGENTPLATFORM_PROJECT"]!;
const api = createClient<paths>({
  baseUrl: process.env["AGENTPLATFORM_SERVER"]!,
  headers: { Authorization: `Bearer ${process.env["AGENTPLATFORM_API_KEY"]}` },
});

/** What an answer holds, which must be a success. */
function ok<T>(answer: { data?: T; error?: Problem; response: Response }): T {
  if (answer.data === undefined) throw new Error(`${answer.response.url}: ${JSON.stringify(answer.error)}`);
  return answer.data;
}

/** The problem that an answer must be. */
function refused(answer: { error?: Problem; response: Response }, status: number, code: string): Problem {
  assert.equal(answer.response.status, status, JSON.stringify(answer.error));
  assert.equal(answer.error?.code, code);
  assert.equal(answer.error.status, status);
  return answer.error;
}

// Read environments and their agents.
const environments = ok(await api.GET("/v1/projects/{project_id}/environments", { params: { path: { project_id } } }));
const standard = environments.find((e) => e.is_default);
assert.ok(standard, "there is no default environment");
const agents = ok(await api.GET("/v1/projects/{project_id}/agents", {
  params: { path: { project_id }, query: { environment_id: standard.id } },
}));
const agent = agents[0];
assert.ok(agent, "no agent is live");
const details = ok(await api.GET("/v1/projects/{project_id}/agents/{agent_name}", {
  params: { path: { project_id, agent_name: agent.name }, query: { environment_id: standard.id } },
}));
assert.equal(details.name, agent.name);

// Create an environment once per idempotency key.
const name = `TypeScript ${randomUUID().slice(0, 8)}`;
const creation = {
  params: { path: { project_id }, header: { "Idempotency-Key": randomUUID() } },
  body: { name, git_branch: "main", settings: { runner: { min_replicas: 1, max_replicas: null } } },
};
const environment = ok(await api.POST("/v1/projects/{project_id}/environments", creation));
const again = ok(await api.POST("/v1/projects/{project_id}/environments", creation));
assert.equal(again.id, environment.id);
assert.equal(environment.settings.runner.max_replicas, null);
const inEnvironment = { path: { project_id, environment_id: environment.id } };
const changed = ok(await api.PATCH("/v1/projects/{project_id}/environments/{environment_id}", {
  params: inEnvironment, body: { git_branch: null },
}));
assert.equal(changed.git_branch, null);

// Write variables, read them without secrets, and send them back.
const variables = "/v1/projects/{project_id}/environments/{environment_id}/variables";
ok(await api.PUT(variables, {
  params: inEnvironment,
  body: [{ name: "REGION", value: "eu-west-1", sensitive: false }, { name: "TOKEN", value: "hush", sensitive: true }],
}));
const read = ok(await api.GET(variables, { params: inEnvironment }));
assert.deepEqual(read.map((v) => [v.name, v.value, v.sensitive, v.secret_ref]), [
  ["REGION", "eu-west-1", false, null], ["TOKEN", "********", true, null],
]);
ok(await api.PUT(variables, { params: inEnvironment, body: read }));
const misnamed = refused(await api.PUT(variables, { params: inEnvironment, body: [{ name: "lower", value: "", sensitive: false }] }), 422, "invalid_request");
assert.equal(misnamed.errors[0]?.location, "body[0].name");

// Create a connector with a link, and check its config.
const created = await api.POST("/v1/projects/{project_id}/connectors", {
  params: { path: { project_id }, query: { environment_id: environment.id } },
  body: { name: "Tickets", type: "webhook", mode: "sync", config: { timeout_seconds: 30 } },
});
const connector = ok(created);
const tag = created.response.headers.get("ETag");
assert.ok(tag);
assert.ok(connector.mode === "sync" && "timeout_seconds" in connector.config);
assert.equal(connector.config.timeout_seconds, 30);
assert.ok(connector.webhook_url?.includes(connector.id));
assert.match(connector.secret ?? "", /^whs_/);
const ofConnector = { path: { project_id, connector_id: connector.id } };
const link = ok(await api.POST("/v1/projects/{project_id}/connectors/{connector_id}/links", {
  params: ofConnector, body: { agent_name: agent.name },
}));
assert.equal(link.outbound, null);
ok(await api.PATCH("/v1/projects/{project_id}/connectors/{connector_id}", { params: ofConnector, body: { enabled: false } }));
refused(await api.PATCH("/v1/projects/{project_id}/connectors/{connector_id}", {
  params: { ...ofConnector, header: { "If-Match": tag } }, body: { enabled: true },
}), 412, "precondition_failed");
const nowhere = refused(await api.GET("/v1/projects/{project_id}/connectors/{connector_id}", {
  params: { path: { project_id, connector_id: randomUUID() } },
}), 404, "not_found");
assert.equal(nowhere.detail, "this project has no such connector");

// Read runs page by page, and cancel one.
const runs: RunList["items"] = [];
let cursor: string | null = null;
do {
  const page: RunList = ok(await api.GET("/v1/projects/{project_id}/runs", {
    params: { path: { project_id }, query: { environment_id: standard.id, limit: 1, ...(cursor === null ? {} : { cursor }) } },
  }));
  runs.push(...page.items);
  cursor = page.next_cursor;
} while (cursor !== null && runs.length < 2);
assert.equal(new Set(runs.map((r) => r.id)).size, 2);
const run_id = runs[0]!.id;
const run = ok(await api.GET("/v1/projects/{project_id}/runs/{run_id}", { params: { path: { project_id, run_id } } }));
assert.notEqual(run.input, null);
const end = await api.POST("/v1/projects/{project_id}/runs/{run_id}/cancel", { params: { path: { project_id, run_id } } });
if (end.data) assert.equal(end.data.status, "cancelled");
refused(await api.POST("/v1/projects/{project_id}/runs/{run_id}/cancel", { params: { path: { project_id, run_id } } }), 409, "conflict");

// Deploy the folder.
const archive = execFileSync("tar", ["-czf", "-", "-C", process.argv[2]!, "."]);
const deployment = ok(await api.POST("/v1/projects/{project_id}/deployments/upload", {
  params: { path: { project_id }, query: { environment_id: environment.id, skip_tests: true } },
  headers: { "Content-Type": "application/gzip" }, body: archive, bodySerializer: () => archive,
}));
assert.equal(deployment.source.type, "upload");
const deployments = ok(await api.GET("/v1/projects/{project_id}/deployments", {
  params: { path: { project_id }, query: { environment_id: environment.id } },
}));
assert.deepEqual(deployments.map((d) => d.id), [deployment.id]);
ok(await api.POST("/v1/projects/{project_id}/deployments/{deployment_id}/cancel", {
  params: { path: { project_id, deployment_id: deployment.id } },
}));

// Delete all objects. The audit log has the last call.
ok(await api.DELETE("/v1/projects/{project_id}/connectors/{connector_id}/links/{link_id}", {
  params: { path: { project_id, connector_id: connector.id, link_id: link.id } },
}));
ok(await api.DELETE("/v1/projects/{project_id}/connectors/{connector_id}", { params: ofConnector }));
ok(await api.DELETE("/v1/projects/{project_id}/environments/{environment_id}", { params: inEnvironment }));
const log = ok(await api.GET("/v1/projects/{project_id}/audit-log", { params: { path: { project_id }, query: { limit: 1 } } }));
assert.equal(log.items[0]?.operation, "deleteEnvironment");
assert.equal(log.items[0].object.id, environment.id);
console.log("done");

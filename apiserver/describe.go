// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"github.com/danielgtaylor/huma/v2"
)

// What a caller should know of each endpoint.
const (
	aboutListEnvironments  = "The default environment first, then by name. A key that is limited to some environments sees only those."
	aboutGetEnvironment    = "The environment with its settings, and what the caller may do in it."
	aboutCreateEnvironment = "The first standard environment of a project becomes its default. Beyond the plan's number of environments, or with resources beyond the plan, it is answered 403; " +
		"resources that Kubernetes refuses, 422; a name whose slug another environment has, 400. With copy_from_environment_id it gets the variables of that environment, those that are sealed too. Answers once the platform has taken the environment up, or after two seconds."
	aboutUpdateEnvironment = "What is left out stays as it is; requests and limits are each replaced whole. With another name the slug changes: 400 where another environment has it. " +
		"Where every head of the branch is deployed by itself, another git_branch needs deployments.create too. " +
		"The default environment, and the last standard one, are answered 400 where kind asks for one for tests; one in which somebody tests, 409."
	aboutDeleteEnvironment = "As soon as the platform sees that, which the call waits two seconds for, its open runs are cancelled, its deployment is no longer live, and its connectors are disabled; what is past stays until its retention ends. " +
		"The default environment, and the last standard one, are answered 400; a test environment in which somebody tests, 409."
	aboutGetVariables     = "By name. The value of a sensitive one, which is sealed or in a Secret, is ********."
	aboutReplaceVariables = "The environment has these variables from then on, and no others. Names that are new need variables.create, too, and names that are left out variables.delete; without variables.view the answer shows no value. A value that is left out or ******** stays as it is, as does that of a sensitive one where it is empty; where none is stored it is answered 422. " +
		"What was sensitive becomes readable with a new value alone. All values together have at most 256 KiB. They reach the agents with new runner pods, which take the place of those of before one by one; runs go on there. " +
		"Variables that a GitOps controller owns are answered 409. The audit log has names alone."
	aboutHoldTestSession = "Says that somebody tests in a test environment, which is not deleted by this API meanwhile; its holder renews it by the same call before it ends. " +
		"It is answered 409 where somebody else tests there, or where the environment is a standard one."
	aboutEndTestSession        = "Ends the session of that holder before its time; where nobody tests nothing is left to do. That of somebody else is answered 409."
	aboutSetDefaultEnvironment = "The environment that was the default before is it no more. One that is being deleted, or made one for tests, is answered 409."
	aboutListAgents            = "Agents of the live deployment and of the twenty that were deployed last, and names that have had runs in the environment: of those that are in none of these deployments, and of which nothing is open, the 1000 that ran last."
	aboutGetAgent              = "The agent's configuration in the live deployment of the environment, and the connectors that are linked to it. " +
		"Of an agent that is in another environment of the project only, config and deployment_id are null. " +
		"Statistics, tokens and durations are of the runs that were queued in the window, as the parameters narrow them, exactly and as of now; p95_duration_ms is within 1 %. " +
		"Where the window begins or ends within an hour that is older than the project's retention, or the platform's, the runs of that hour are not counted. " +
		"With search each run is counted as it stands when it is looked at; where more than 20,000 would have to be, or that takes longer than two seconds, it is answered 422, search_too_broad; 503, busy, where it has waited for other searches for most of these. Of searches that go on at once a project has four a replica, or as many as it may read lists at once where these are fewer; more wait for a while and are answered 429. " +
		"guardrail_outcome is answered 422 in this release."
	aboutListDeployments  = "Newest first, at most 500. Items have neither build logs nor test results nor commit_status. Those of an environment that was deleted are listed for keys that reach all environments."
	aboutGetDeployment    = "The deployment with its build log and all results. While it is open, message says what it waits for or is at."
	aboutCreateDeployment = "Builds a commit and makes it live: the one of the body, else the latest of the environment's git_branch, or of the repository's default branch. " +
		"Deployments of the environment that are pending or building are cancelled. Answers once the platform has begun it, or after two seconds; read it, or follow its log, to see what becomes of it: a branch that is not there makes it fail, " +
		"and in an environment that is suspended it stays pending until that is over. A project without a git repository is answered 400; an environment that is not in effect, 409; one whose tests are run with the variables of another one that the key does not reach, 403. skip_tests is for uploads."
	aboutUploadDeployment = "Builds the folder that the body holds, tests it and makes it live, as a commit is: for projects without a git repository, and to try something out. What lies outside the folders of a repository's layout is passed over; a link in them, and a path outside, make the build fail, as does a body that is no such archive. " +
		"Deployments of the environment that are pending or building are cancelled. What is uploaded counts among the bytes that the project has stored, and is kept for 30 days after a deployment of it last began, and for as long as one of it is live: for that long it can be deployed again. What no deployment has begun of goes after a day. " +
		"Beyond what the project may store, and beyond as many uploads at once as it may have, it is answered 429. An environment whose tests are run with the variables of another one that the key does not reach is answered 403, but with skip_tests."
	aboutListTestRuns         = "The results of the deployment's test phase, by agent and test name; none where it has not run. What models that mocks stand in for answer has no price."
	aboutStreamDeploymentLogs = "The log as a stream of server-sent events, from its beginning, while it is written. Each event log has data {\"text\": \"…\"}; the last event, end, has {\"status\": \"deployed\"} or what else has become of it, and ends the stream. " +
		"With Last-Event-ID, the id of the last event that was read, it goes on from there. Without news a comment comes every fifteen seconds. A stream lasts fifteen minutes at most, and ends when the service stops or the key is revoked or changed: whoever gets no end connects again. " +
		"Beyond as many streams as a project may have it is answered 429."
	aboutCancelDeployment = "Stops a deployment that is building: ok says whether it was cancelled, or will be. Any other stays as it is, and ok is false. A deployment that is pending is waited for, for two seconds, to begin; one that is pending then, as in a suspended environment, stays so: " +
		"another deployment takes its place. A repetition under the same Idempotency-Key is answered as the first call."
	aboutActivateDeployment = "Makes a deployment that was deployed before the live one of its environment again: a roll back, or forward. Connectors that its code defines become as its files say; where one cannot, nothing changes and it is answered 409, connectors_failed, unless force is true: those stay as they are. " +
		"Answers once it is live. One that is not deployed is answered 409, not_deployed; one whose bundle is not stored any more, bundle_gone; where another deployment was activated later meanwhile, superseded. " +
		"Where the platform has not done it after two seconds the answer is 503, not_in_effect, and it is done as soon as it can be: send the same request again, which waits for that one. A repetition under the same Idempotency-Key does nothing once that was answered with 200."
	aboutRedeploy     = "A new deployment, to the same environment, of the commit that this one was built from, or of what it was asked to build where it never came to that; or of the same upload, and 409, upload_gone, where that is not stored any more. skip_tests and skip_failed_connectors are those of this one. It names this one in redeploy_of. Otherwise as a deployment is created."
	aboutDeployAnyway = "For a deployment that failed its tests (tests_failed), or whose connectors could not be applied (connectors_failed); any other is answered 400. A new deployment of the same code, which leaves the test phase out, or lets connectors that fail be as they are. " +
		"What was overridden for this one is for the new one too. It names this one in redeploy_of."
	aboutCreateConnector = "Answers once the platform has taken up the connector, and the link where agent_name asks for one, or after two seconds. " +
		"Where not all of it can be created nothing is. A name that another connector of the environment has is answered 409."
	aboutListConnectors  = "By name of their objects. Generated secrets are shown, credentials of the project's own are ********. Those that an environment which was deleted has left behind are listed for keys that reach all environments."
	aboutGetConnector    = "The connector with its URL and its secret. Generated secrets are shown, credentials of the project's own are ********."
	aboutUpdateConnector = "Changes what the request names; config is replaced whole. Answers once the platform has taken up the change, or after two seconds. " +
		"Type, mode and environment never change. Of a connector that the project's code defines only enabled can be changed. " +
		"A name that another connector of the environment has, and a field that a GitOps controller owns, are answered 409."
	aboutRotateSecret = "Makes a new secret and answers the connector with it once it is in effect. The secrets before stay valid for grace_seconds. " +
		"It is done once under an Idempotency-Key; where the new secret is not in effect after two seconds the answer is 503, and a repetition answers it. " +
		"A connector without authentication, and one with a secret of the project's own, are answered 409."
	aboutTestConnector = "Makes a delivery of an example to the destination of an outbound connector, now: with the headers and the signatures of every delivery, X-Service-Event test, and type test in the body. " +
		"It needs no agent and no run. It is a connector run of kind test, with attempts like others: read it to see whether the destination has taken it. Replays of many leave it out, and no link tells of one that fails. " +
		"A connector that is disabled, retired or paused, or whose mode is not outbound, is answered 409 with a code that says so; a project that has stored as much as it may, 429. An Idempotency-Key is remembered for a day, of each connector."
	aboutDeleteConnector = "Deletes the connector for good, with its links; what it has received stays in the history of runs. A connector that " +
		"the project's code defines is answered 409: remove it there and deploy. A repetition under the same Idempotency-Key is answered as the first call."
	aboutCreateLink = "Events of the connector start the agent from then on, or the agent's results are sent. Answers once the platform has taken up the link, or after two seconds; " +
		"ready and message say whether it is in effect. Links of connectors that the project's code defines are answered 409."
	aboutListLinks         = "Oldest first."
	aboutGetLink           = "The link, and whether it is in effect."
	aboutUpdateLink        = "Settings that the request leaves out get their defaults. The agent never changes: create another link. Links of connectors that the project's code defines are answered 409."
	aboutDeleteLink        = "Events of the connector start the agent no more; runs that were started go on. Links of connectors that the project's code defines are answered 409."
	aboutListConnectorRuns = "Events that the connector received, or its schedule made, and deliveries of an outbound one; newest first, without outputs and attempts. A connector that was deleted has its runs as long as they are stored."
	aboutGetConnectorRun   = "The event with its outcome; output is that of the run of the oldest link. Of an outbound connector the delivery, with its attempts."
	aboutGetConnectorStats = "How many events and deliveries of the connector started in the window, with those that have not ended, exactly and as of one moment; of an hour at the beginning of the window that is older than the retention none is counted, and last_run_status is that of the newest that is still kept."
	aboutListRejections    = "Requests to a webhook's URL that were refused and are no run: how many of the last seven days by the code of their answer, and the newest " +
		"twenty. It is never more than was refused, and may be less: what a gateway could not record is left out. Nothing of a body, a query or a secret is kept."
	aboutReplayConnectorRun = "Makes a new connector run, whose replay_of names this one; this one does not change. An event, with the same input and attachments, starts a run of each agent that is linked now, " +
		"by the deployment that is live when the run starts, after runs that were started by new events. Of an outbound connector the same result is sent once more, now, as a delivery of its own. " +
		"A delivery that has not ended and waits for its next attempt is answered 200, and stays the same one: that attempt is due now, as one of its schedule, before what else is due to that connector. While an attempt is under way it is answered 409, in_progress. " +
		"Where the input or the result is not stored any more it is answered 409, gone; where the connector is disabled, retired, paused or has no agent, 409 with a code that says so; " +
		"where the environment has as many open runs as it may, 429. An Idempotency-Key is remembered for a day, of each connector."
	aboutCreateReplay = "Replays connector runs that have ended so in that window, each as POST .../runs/{run_id}/replay does, oldest first, at that rate. Those that are replays themselves are left out, and tests. " +
		"It answers at once, and goes on until all are done: read it to see how far it has come. Where the project has no room, or the connector is disabled, paused or has no agent, it waits, for 30 days at most, and says why in reason. " +
		"Each is replayed once, and those that cannot be, such as one whose input is not stored any more, are counted. More than 100,000 that match are answered 422; while the connector has a replay that has not ended, 409. " +
		"With dry_run it is answered 200 with how many match."
	aboutListReplays  = "Newest first, at most 100. One is kept for 30 days after its end, at most the newest 100 of a connector."
	aboutGetReplay    = "How far the replay has come. The connector runs that it has made name their originals in replay_of."
	aboutCancelReplay = "Ends the replay; what it has replayed stays. One that has ended is answered 409. A repetition under the same Idempotency-Key is answered as the first call."
	aboutListRuns     = "Newest first, without inputs and outputs; also of an environment that was deleted, to keys that reach all. A run that comes in while pages are read shifts none of them. " +
		"A page looks at 20,000 runs at most, and with search for two seconds, so where a filter fits few of many it may be short, or empty: next_cursor says whether there are more. " +
		"A search that has come nowhere in that time is answered 422, search_too_broad; 503, busy, where it has waited for other searches for most of it. Of searches that go on at once a project has four a replica, or as many as it may read lists at once where these are fewer; more wait for a while and are answered 429. " +
		"A search is a condition in CEL where it is one on input, output, error, error_code, status, context, agent_name, test_name, deployment_id, connector_id, attempt and duration_ms; any other text are words. " +
		"Searched are the first 64 KiB of an output and of an input, and the error. A run on which a condition cannot be told, or costs too much, is not found."
	aboutGetRun      = "The run with its input and output."
	aboutReadRunFile = "The bytes of a file that was accepted with the event of the run, counted from 0 as `files` in the run's input lists them. " +
		"The type is the one that its content was found to have. A file is sent as long as its reader takes 64 KiB a second."
	aboutCancelRun = "Ends a run that has not ended, whether it waits or a runner works on it: the model request or the tool that is under way is broken off. " +
		"Answers the run as it is then. A run that has ended is answered 409. A repetition under the same Idempotency-Key is answered as the first call."
	aboutEraseRun = "Erases what a run that has ended was about: its output and error, its journal with all answers of models and results of tools, what it has sent through outbound connectors and what their receivers answered; and, with the last run of its event that is there, the event's input, attachments and headers, so that the event cannot be replayed any more. " +
		"The run is answered 404 from then on and is in no list. What stays: that the run was, in which agent, environment and deployment, its status, error code, times and tokens, which statistics go on counting; the connector run and the deliveries, with statuses and times; and the call in the audit log. Replays of its event are runs of their own, and what somebody received is with them. " +
		"A delivery that is open ends without being sent, but for an attempt that is under way. A run that has not ended is answered 409: cancel it first. Copies in backups of the database go when those do. A repetition under the same Idempotency-Key is answered as the first call."
	aboutListAuditLog = "Calls of this API that may change something, refused or not, but for those over the limit of requests; API keys that were made or revoked; and what operators did to the project. Newest first. It is answered 403 to keys that are limited to some environments."
)

const aboutAPI = "Observe and manage a project of Agent Platform: its environments, agents, deployments, connectors and runs.\n\n" +
	"Every call needs an API key of the project: `Authorization: Bearer ap_…`. A key may do what its permissions and its owner's rights both allow; " +
	"each operation names its permission as `x-permission`.\n\n" +
	"Every error is a problem (RFC 9457), with a `code` for programs. A project may make 120 requests in any 60 seconds, or as many as its plan says; `RateLimit-Policy` says how many, and `RateLimit` what is left."

// describedConfig is the description before routes are mounted.
func describedConfig() huma.Config {
	config := huma.DefaultConfig("Agent Platform", apiVersion)
	// The document is served as serveDocument makes it, without pages and $schema.
	config.OpenAPIPath, config.DocsPath, config.SchemasPath, config.CreateHooks = "", "", "", nil
	config.Formats = map[string]huma.Format{"application/json": jsonFormat, "json": jsonFormat}
	config.DefaultFormat = "application/json"
	config.Info.Description = aboutAPI
	config.Info.License = &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	config.Info.Contact = &huma.Contact{Name: "The Agent Platform authors", URL: "https://github.com/agentplatform/agentplatform"}
	config.Servers = []*huma.Server{{URL: "/", Description: "The installation that serves this document."}}
	config.Tags = []*huma.Tag{
		{Name: tagEnvironments, Description: "Where agents are deployed to and run."},
		{Name: tagAgents, Description: "What the project's code defines, as each environment has it."},
		{Name: tagDeployments, Description: "Commits that were built for an environment, and what became of them."},
		{Name: tagConnectors, Description: "Webhooks and schedules, the agents that their events start, and the events."},
		{Name: tagRuns, Description: "Runs of agents."},
		{Name: tagAuditLog, Description: "Who changed what."},
	}
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"apiKey": {Type: "http", Scheme: "bearer", Description: "An API key of the project, ap_…"},
	}
	return config
}

// aboutSchemas say what the objects of requests and answers are; enumerations and
// configs say it themselves.
var aboutSchemas = map[string]string{
	"Agent":                    "An agent in a list.",
	"AgentConnector":           "A connector that is linked to an agent.",
	"AgentDetails":             "An agent with its configuration and what is linked to it.",
	"AgentStats":               "Counts of an agent's runs in the window, and how long they took.",
	"Attempt":                  "One attempt to deliver.",
	"AuditActor":               "Who acted.",
	"AuditEntry":               "An entry of the audit log: who did what, when, from where, and what became of it.",
	"AuditLog":                 "A page of the audit log.",
	"AuditObject":              "What was acted on.",
	"Connector":                "A connector ties agents to the outside world.",
	"EnvironmentCreate":        "What an environment is made of.",
	"KeyOf":                    "A key of a Secret.",
	"KeyOfInput":               "A key of a Secret, as it was answered.",
	"TestSession":              "Who tests in an environment.",
	"TestSessionRequest":       "A test session that is asked for.",
	"Variable":                 "A value that differs between environments.",
	"VariableInput":            "A variable that an environment is to have.",
	"EnvironmentUpdate":        "What is changed of an environment.",
	"EnvironmentSettingsInput": "Settings of an environment that are asked for.",
	"RunnerSettingsInput":      "How the pool of runner pods of an environment is to look.",
	"ConnectorCreate":          "What a connector is made of.",
	"ConnectorResult":          "What became of a connector that the project's code defines.",
	"ConnectorRun":             "An event that a connector received or its schedule made, and what it started; or a delivery that it makes.",
	"ConnectorRunList":         "A page of connector runs.",
	"ConnectorStats":           "Numbers of a connector's runs in the window.",
	"Rejection":                "A request that a connector refused.",
	"Replay":                   "A replay of many connector runs of a connector, or what one would match.",
	"ReplayCreate":             "Which connector runs are replayed, and how fast.",
	"RejectionReport":          "What a connector refused.",
	"ConnectorUpdate":          "What is changed of a connector; what is left out stays.",
	"Cost":                     "An amount of money.",
	"ModelUsage":               "What runs have used of one model.",
	"Deployment":               "A commit that was built for an environment, and what became of it.",
	"DeploymentAgent":          "An agent that a deployment contains.",
	"DeploymentCreate":         "Which version is deployed.",
	"DeploymentItem":           "A deployment in a list.",
	"CommitStatus":             "What the provider of a repository was told of a commit.",
	"DeploymentSource":         "Where the code of a deployment came from.",
	"Done":                     "The answer of calls that leave nothing to show.",
	"Environment":              "Where agents are deployed to and run.",
	"EnvironmentSettings":      "How the agents of an environment run.",
	"FieldError":               "One field that is wrong.",
	"CronConfig":               "The config of a cron connector.",
	"CronConfigInput":          "What the config of a cron connector is made of. Schedules are those of Kubernetes' CronJob.",
	"InboundConfig":            "The config of a webhook of mode inbound.",
	"InboundConfigInput":       "What the config of a webhook of mode inbound is made of.",
	"Judge":                    "What a judge thinks of an agent on average.",
	"Link":                     "A link ties an agent to a connector, whose events start it, or which sends its results.",
	"LinkCreate":               "What a link is made of.",
	"LinkUpdate":               "The settings that a link gets in place of those that it has.",
	"LogLine":                  "A line that a run has written.",
	"OutboundLink":             "When and how an agent's results are sent.",
	"Problem":                  "What every error answers (RFC 9457).",
	"RotateSecret":             "How a secret is rotated.",
	"Run":                      "A run of an agent.",
	"RunList":                  "A page of runs.",
	"RunnerSettings":           "The pool of pods that execute the runs of an environment.",
	"Span":                     "A step of a run.",
	"SyncConfig":               "The config of a webhook of mode sync.",
	"OutboundConfig":           "The config of a webhook of mode outbound.",
	"OutboundConfigInput":      "What the config of a webhook of mode outbound is made of.",
	"OutboundLinkInput":        "When and how an agent's results are to be sent.",
	"Delivering":               "How the deliveries of an outbound connector go.",
	"UnreadyAgent":             "A linked agent whose link is not in effect, and why.",
	"DeliveryRetry":            "How often and when a delivery is tried.",
	"DeliveryRetryInput":       "How often and when a delivery is to be tried.",
	"SyncConfigInput":          "What the config of a webhook of mode sync is made of.",
	"TestResult":               "What became of a test case of a deployment.",
	"TokenUsage":               "Counts of model tokens.",
}

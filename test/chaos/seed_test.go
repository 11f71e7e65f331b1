// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// secret is the secret of every connector.
	secret = "s3cret"
	// runnerToken is the token of the environment's runners.
	runnerToken = "chaos-runner"
)

// project is the id of the only project.
var project = uuid.MustParse("0d7b1f0c-6f5e-5b0a-9a43-0c6f0a7c9b11")

const (
	connectors = 8
	links      = 2 // of each connector
)

// agent is an agent of the live deployment.
type agent struct {
	// name is the agent's and its script's.
	name string
	// more are lines of its file, steps its script; with a model it has no script.
	more, model, steps string
	// answers is the number of its model's answers per run. ends is the final status of all its runs.
	answers int
	ends    store.RunStatus
}

// echo returns an agent for the links of connectors. It answers at once.
func echo(number int) agent {
	return agent{name: fmt.Sprintf("agent-%d", number), steps: "  - text: Done.\n", answers: 1, ends: store.RunCompleted}
}

var (
	// hanging is an agent whose model never responds. Its runs fail with the agent's timeout.
	hanging = agent{name: "hanging", model: "service/silent", more: "timeout: 1\n", ends: store.RunFailed}
	// stepping calls a tool five times, each a while after the one before.
	stepping = agent{
		name: "stepping", more: "tools: [current_time]\n", answers: 6, ends: store.RunCompleted,
		steps: "  - turn: 6\n    text: Done.\n  - delay: 200ms\n    tool_calls: [{name: current_time}]\n",
	}
)

// file returns the agent's file.
func (a agent) file() string {
	return fmt.Sprintf("version: \"1.0\"\nname: %s\ntype: llm\nmodel: %s\nsystem_prompt: Answer.\n%s",
		a.name, cmp.Or(a.model, "scripted/"+a.name), a.more)
}

// hooks are the connectors that clients post to.
type hooks struct {
	ids    []uuid.UUID
	agents []agent
	// linked are the agents of each connector.
	linked map[uuid.UUID][]agent
}

// ends returns the distinct statuses of an ended connector run and its runs, sorted.
func (h hooks) ends(connector uuid.UUID) []string {
	all := []string{}
	for _, a := range h.linked[connector] {
		all = append(all, string(a.ends))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// seed fills a store with an environment, its connectors and its runner token. The live deployment has one agent per link, and
// each connector has all its links. A special agent with a name replaces the last agent of the first connector.
func seed(t *testing.T, s store.Store, special agent) hooks {
	t.Helper()
	ctx, environment := t.Context(), uuid.New()
	require.NoError(t, s.PutProject(ctx, store.Project{Ref: ref(store.KindProject, "project"), ID: project}))
	require.NoError(t, s.PutEnvironment(ctx, store.Environment{
		Ref: ref(store.KindEnvironment, "dev"), ID: environment, ProjectID: project, DisplayName: "dev", Slug: "dev",
		Kind: "standard", ObjectCreatedAt: time.Unix(1, 0),
	}))
	h := hooks{linked: map[uuid.UUID][]agent{}}
	for i := range links {
		h.agents = append(h.agents, echo(i))
	}
	if special.name != "" {
		h.agents = append(h.agents, special)
	}
	deploy(t, s, environment, h.agents)
	require.NoError(t, s.PutToken(ctx, store.Token{
		SHA256: secrets.Digest(runnerToken), Kind: store.TokenRunner, ProjectID: project, EnvironmentID: environment,
	}))
	for range connectors {
		id := uuid.New()
		h.ids, h.linked[id] = append(h.ids, id), slices.Clone(h.agents[:links])
		if len(h.ids) == 1 && special.name != "" {
			h.linked[id][links-1] = special
		}
		require.NoError(t, s.PutConnector(ctx, store.Connector{
			Ref: ref(store.KindConnector, id.String()), ID: id, ProjectID: project, EnvironmentID: environment,
			Name: id.String(), Type: "webhook", Mode: "inbound", Enabled: true, Config: json.RawMessage(`{}`),
			SecretDigest: secrets.Digest(secret),
		}))
		for i, a := range h.linked[id] {
			link := uuid.New()
			require.NoError(t, s.PutLink(ctx, store.Link{
				Ref: ref(store.KindConnectorLink, link.String()), ID: link, ProjectID: project, ConnectorID: id,
				AgentName: a.name, ObjectCreatedAt: time.Unix(int64(i), 0),
			}))
		}
	}
	return h
}

// deploy makes a deployment with all agents live.
func deploy(t *testing.T, s store.Store, environment uuid.UUID, agents []agent) {
	t.Helper()
	ctx, key := t.Context(), store.Key{ProjectID: project, ID: uuid.New()}
	_, err := s.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: ref(store.KindDeployment, key.ID.String()), ID: key.ID, ProjectID: project, EnvironmentID: environment,
		Fingerprint: "f", SourceType: "git",
	})
	require.NoError(t, err)
	require.NoError(t, s.StartBuild(ctx, key, ""))
	sources := fstest.MapFS{}
	var result store.BuildResult
	for _, a := range agents {
		sources["agents/"+a.name+".yaml"] = &fstest.MapFile{Data: []byte(a.file())}
		if a.model == "" {
			sources["models/"+a.name+".yaml"] = &fstest.MapFile{Data: []byte("steps:\n" + a.steps)}
		}
		result.Agents = append(result.Agents, store.Agent{Name: a.name, Type: "llm"})
	}
	files, err := bundle.ReadFiles(sources)
	require.NoError(t, err)
	var packed bytes.Buffer
	result.BundleDigest, _, err = bundle.Pack(files, &packed)
	require.NoError(t, err)
	_, err = s.PutBundle(ctx, key, result.BundleDigest, &packed, 1<<20)
	require.NoError(t, err)
	require.NoError(t, s.FinishBuild(ctx, key, result))
	activated, err := s.Activate(ctx, store.Activation{Deployment: key})
	require.NoError(t, err)
	require.True(t, activated.Live)
}

func ref(kind, name string) store.ObjectRef {
	return store.ObjectRef{Namespace: "team", Kind: kind, Name: name, ObjectUID: uuid.NewString(), Generation: 1}
}

// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// secret is that of every connector.
	secret = "s3cret"
	// runnerToken is that of the environment's runners.
	runnerToken = "chaos-runner"
)

// project is the id of the only project.
var project = uuid.MustParse("0d7b1f0c-6f5e-5b0a-9a43-0c6f0a7c9b11")

// seed fills a store with an environment whose live deployment has one agent a
// link, with connectors that have all links, and with the runners' token. It returns
// the connectors.
func seed(t *testing.T, s store.Store) []uuid.UUID {
	t.Helper()
	ctx, environment := t.Context(), uuid.New()
	require.NoError(t, s.PutProject(ctx, store.Project{Ref: ref(store.KindProject, "project"), ID: project}))
	require.NoError(t, s.PutEnvironment(ctx, store.Environment{
		Ref: ref(store.KindEnvironment, "dev"), ID: environment, ProjectID: project, DisplayName: "dev", Slug: "dev",
		Kind: "standard", ObjectCreatedAt: time.Unix(1, 0),
	}))
	deploy(t, s, environment)
	require.NoError(t, s.PutToken(ctx, store.Token{
		SHA256: seal.Digest(runnerToken), Kind: store.TokenRunner, ProjectID: project, EnvironmentID: environment,
	}))
	var ids []uuid.UUID
	for range connectors {
		id := uuid.New()
		ids = append(ids, id)
		require.NoError(t, s.PutConnector(ctx, store.Connector{
			Ref: ref(store.KindConnector, id.String()), ID: id, ProjectID: project, EnvironmentID: environment,
			Name: id.String(), Type: "webhook", Mode: "inbound", Enabled: true, Config: json.RawMessage(`{}`),
			RequireAuthentication: true, TimeoutSeconds: 30, SecretDigest: seal.Digest(secret),
		}))
		for i := range links {
			link := uuid.New()
			require.NoError(t, s.PutLink(ctx, store.Link{
				Ref: ref(store.KindConnectorLink, link.String()), ID: link, ProjectID: project, ConnectorID: id,
				AgentName: agentName(i), ObjectCreatedAt: time.Unix(int64(i), 0),
			}))
		}
	}
	return ids
}

// deploy makes a deployment with all agents the live one.
func deploy(t *testing.T, s store.Store, environment uuid.UUID) {
	t.Helper()
	ctx, key := t.Context(), store.Key{ProjectID: project, ID: uuid.New()}
	_, err := s.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: ref(store.KindDeployment, key.ID.String()), ID: key.ID, ProjectID: project, EnvironmentID: environment,
		Fingerprint: "f", SourceType: "git",
	})
	require.NoError(t, err)
	require.NoError(t, s.StartBuild(ctx, key))
	sources := fstest.MapFS{"models/echo.yaml": {Data: []byte("steps:\n  - text: Done.\n")}}
	var result store.BuildResult
	for i := range links {
		name := agentName(i)
		sources["agents/"+name+".yaml"] = &fstest.MapFile{
			Data: []byte("version: \"1.0\"\nname: " + name + "\ntype: llm\nmodel: scripted/echo\nsystem_prompt: Answer.\n"),
		}
		result.Agents = append(result.Agents, store.Agent{Name: name, Type: "llm"})
	}
	files, err := bundle.ReadFiles(sources)
	require.NoError(t, err)
	var packed bytes.Buffer
	result.BundleDigest, _, err = bundle.Pack(files, &packed)
	require.NoError(t, err)
	_, err = s.PutBundle(ctx, project, result.BundleDigest, &packed, 1<<20)
	require.NoError(t, err)
	require.NoError(t, s.FinishBuild(ctx, key, result))
	activated, err := s.Activate(ctx, store.Activation{Deployment: key})
	require.NoError(t, err)
	require.True(t, activated.Live)
}

func agentName(link int) string { return fmt.Sprintf("agent-%d", link) }

func ref(kind, name string) store.ObjectRef {
	return store.ObjectRef{Namespace: "team", Kind: kind, Name: name, ObjectUID: uuid.NewString(), Generation: 1}
}

// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"fmt"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

const (
	// hookTimeout is how long callers of a sync connector wait, in seconds.
	hookTimeout = 300
)

// scripted is an agent that answers with a text after a delay.
type scripted struct {
	name, text string
	after      time.Duration
}

// release makes a deployment with agents live.
func release(tb testing.TB, st store.Store, scene *storebench.Scene, agents ...scripted) store.Key {
	tb.Helper()
	sources, names := fstest.MapFS{}, []string{}
	for _, a := range agents {
		sources["agents/"+a.name+".yaml"] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"version: \"1.0\"\nname: %s\ntype: llm\nmodel: scripted/%s\nsystem_prompt: Greet.\n", a.name, a.name)}
		sources["models/"+a.name+".yaml"] = &fstest.MapFile{Data: fmt.Appendf(nil, "steps:\n  - text: %s\n    delay: %s\n", a.text, a.after)}
		names = append(names, a.name)
	}
	return releaseFiles(tb, st, scene, sources, names...)
}

// releaseFiles makes a deployment of a repository live, with the named agents.
func releaseFiles(tb testing.TB, st store.Store, scene *storebench.Scene, sources fstest.MapFS, agents ...string) store.Key {
	tb.Helper()
	ctx := tb.Context()
	var result store.BuildResult
	for _, name := range agents {
		result.Agents = append(result.Agents, store.Agent{Name: name, Type: "llm"})
	}
	files, err := bundle.ReadFiles(sources)
	require.NoError(tb, err)
	var packed bytes.Buffer
	result.BundleDigest, _, err = bundle.Pack(files, &packed)
	require.NoError(tb, err)
	_, err = st.PutBundle(ctx, store.Key{ProjectID: scene.Project}, result.BundleDigest, &packed, 1<<20)
	require.NoError(tb, err)
	deployment := store.Key{ProjectID: scene.Project, ID: uuid.New()}
	_, err = st.BeginDeployment(ctx, store.DeploymentSpec{
		Ref: refOf(store.KindDeployment), ID: deployment.ID, ProjectID: scene.Project, EnvironmentID: scene.Environment, Fingerprint: "g", SourceType: "git",
	})
	require.NoError(tb, err)
	require.NoError(tb, st.StartBuild(ctx, deployment, ""))
	require.NoError(tb, st.FinishBuild(ctx, deployment, result))
	_, err = st.Activate(ctx, store.Activation{Deployment: deployment})
	require.NoError(tb, err)
	return deployment
}

// connect makes a connector that is linked to an agent.
func connect(tb testing.TB, st store.Store, scene *storebench.Scene, mode, agent string) uuid.UUID {
	tb.Helper()
	connector := uuid.New()
	require.NoError(tb, st.PutConnector(tb.Context(), store.Connector{
		Ref: refOf(store.KindConnector), ID: connector, ProjectID: scene.Project, EnvironmentID: scene.Environment,
		Name: mode + " of " + agent, Type: "webhook", Mode: mode, Enabled: true, Config: fmt.Appendf(nil, `{"authentication":"none","timeout_seconds":%d}`, hookTimeout),
	}))
	require.NoError(tb, st.PutLink(tb.Context(), store.Link{
		Ref: refOf(store.KindConnectorLink), ID: uuid.New(), ProjectID: scene.Project, ConnectorID: connector, AgentName: agent, ObjectCreatedAt: time.Unix(1, 0),
	}))
	return connector
}

// tokenOf returns the token of admitted runners of a scene's environment.
func tokenOf(project uuid.UUID) string { return "bench-runner-" + project.String() }

// admit stores the runners' token, so that runners can claim the environment's runs.
func admit(tb testing.TB, st store.Store, scene *storebench.Scene) {
	tb.Helper()
	admitWith(tb, st, scene, tokenOf(scene.Project))
}

func admitWith(tb testing.TB, st store.Store, scene *storebench.Scene, token string) {
	tb.Helper()
	require.NoError(tb, st.PutToken(tb.Context(), store.Token{
		SHA256: secrets.Digest(token), Kind: store.TokenRunner, ProjectID: scene.Project, EnvironmentID: scene.Environment,
	}))
}

func refOf(kind string) store.ObjectRef {
	return store.ObjectRef{Namespace: "bench", Kind: kind, Name: uuid.NewString(), ObjectUID: uuid.NewString(), Generation: 1}
}

// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// manySlots is the number of slots of a scene's runners.
const manySlots = "32"

// newRunner describes a runner process at a gateway's internal port. service is the
// address of the scene's model service.
func newRunner(t *testing.T, name, binary, at, slots, service string) *process {
	t.Helper()
	dir := t.TempDir()
	token, providers := filepath.Join(dir, "token"), filepath.Join(dir, runnerconfig.ProvidersFile)
	require.NoError(t, os.WriteFile(token, []byte(runnerToken), 0o600))
	text, err := json.Marshal(runnerconfig.Providers{Providers: []runnerconfig.Provider{
		{Prefix: "service", Type: runnerconfig.ProviderOpenAI, BaseURL: service, APIKey: "none"},
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(providers, text, 0o600))
	health := loopback(freePort(t))
	p := newProcess(t, name, binary, "serve", "--dispatch-url=http://"+at, "--token-file="+token, "--runner-id="+name,
		"--concurrency="+slots, "--providers="+providers, "--allow-egress=model=127.0.0.0/8", "--health-addr="+health)
	p.port = health
	return p
}

// leased returns the number of runs of some agents, by a pattern, that a runner holds according to the store.
func (s *stage) leased(ctx context.Context, runner *process, agents string) (n int, err error) {
	err = ask(ctx, s.records, fmt.Sprintf(`SELECT count(*) FROM open_runs WHERE status = 'running'
		AND runner_id LIKE '%s/%%' AND agent_name LIKE '%s'`, runner.name, agents), &n)
	return n, err
}

// released waits until a runner has none.
func (s *stage) released(ctx context.Context, runner *process) error {
	return poll(ctx, askEvery, func() (bool, error) {
		held, err := s.leased(ctx, runner, "%")
		return held == 0, err
	})
}

// SPDX-License-Identifier: Apache-2.0

package gitremote_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/internal/testenv/gittest"
)

// After twenty polls no connection and no goroutine remains. The test is not parallel, because it
// counts all goroutines.
func TestSession_LeavesNoConnections(t *testing.T) {
	repository := gittest.New(t)
	commit := repository.Commit("main", "a.yaml", "1")
	url, ca := repository.HTTPS(t, nil)
	server := gittest.StartSSH(t)
	rules, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	ssh := map[string][]byte{"identity": []byte(server.Identity), "known_hosts": []byte(server.KnownHosts)}
	before := goleak.IgnoreCurrent()
	for range 20 {
		for url, secret := range map[string]map[string][]byte{url: {"ca.crt": []byte(ca)}, server.URL(repository.Dir + "/repo.git"): ssh} {
			t.Run(url, func(t *testing.T) {
				remote, err := gitremote.New(url, gitremote.Values(secret), egress.New(rules))
				require.NoError(t, err)
				session, err := remote.Connect(t.Context())
				require.NoError(t, err)
				tips, err := session.Tips(t.Context(), []string{""}, func() {})
				require.NoError(t, err)
				head, _, err := gitremote.Resolve(tips, "")
				require.NoError(t, err)
				require.Equal(t, commit, head.String())
				require.NoError(t, session.Close())
			})
		}
	}
	goleak.VerifyNone(t, before, goleak.IgnoreAnyFunction("net/http.(*conn).serve"), goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"))
}

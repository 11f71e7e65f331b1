// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// flagUsers names the parts of the platform that each flag has an effect on.
var flagUsers = map[string]string{
	"sqlite": "manager apiserver gateway", "store-dsn-file": "manager apiserver gateway", "store-connections": "manager apiserver gateway",
	"health-addr": "manager apiserver gateway", "metrics-addr": "manager apiserver gateway",
	"gateway-url": "manager apiserver", "system-namespace": "manager apiserver", "watch-namespaces": "manager apiserver",
	"allow-egress": "manager gateway", "deny-egress": "manager gateway",
	"trusted-proxies": "apiserver gateway", "max-connections": "apiserver gateway", "drain": "apiserver gateway", "keys-dir": "apiserver gateway",

	"dispatch-url": "manager", "image": "manager", "pod-name": "manager", "container-name": "manager", "platform-id": "manager",
	"dispatch-tls-secret": "manager", "api-tls-secret": "manager", "plan-file": "manager", "rates-url": "manager",
	"sweep-limit": "manager", "workers": "manager", "scale-down-window": "manager", "leader-elect": "manager",

	"api-addr": "apiserver", "api-tls-cert-file": "apiserver", "api-tls-key-file": "apiserver", "gitops-managers": "apiserver",

	"public-addr": "gateway", "public-tls-cert-file": "gateway", "public-tls-key-file": "gateway",
	"internal-addr": "gateway", "internal-tls-cert-file": "gateway", "internal-tls-key-file": "gateway",
	"retention": "gateway", "review-budget": "gateway",
}

// A command accepts a flag if and only if the flag has an effect on it. So a flag at the wrong command is an error and not ignored.
func TestCommands_AcceptOnlyFlagsWithAnEffect(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRootCommand().Commands() {
		if !cmd.Runnable() {
			continue
		}
		t.Run(cmd.Name(), func(t *testing.T) {
			t.Parallel()
			cmd.Flags().VisitAll(func(f *pflag.Flag) { require.Contains(t, flagUsers, f.Name, "add the users of a new flag") })
			for flag, users := range flagUsers {
				t.Run(flag, func(t *testing.T) {
					want := cmd.Name() == metrics.ProcessAll || strings.Contains(users, cmd.Name())
					require.Equal(t, want, cmd.Flags().Lookup(flag) != nil, "--%s", flag)
				})
			}
		})
	}
}

// The page docs/reference/flags-agentplatform.md lists all flags of the program.
func TestReference_ListsAllFlags(t *testing.T) {
	t.Parallel()
	refpage.Check(t, "flags-agentplatform.md", "# Flags of agentplatform\n"+refpage.Flags(newRootCommand(), flagenv.Name))
}

// SPDX-License-Identifier: Apache-2.0

package certs_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/certs"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

func TestUnfit_ReportsReasons(t *testing.T) {
	t.Parallel()
	authority, err := certs.NewAuthority(now)
	require.NoError(t, err)
	other, err := certs.NewAuthority(now)
	require.NoError(t, err)
	hosts := []string{"dispatch.system.svc", "10.0.0.7"}
	serving, err := authority.Issue(hosts, now)
	require.NoError(t, err)

	require.Empty(t, serving.Unfit(authority, hosts, now))
	require.Empty(t, serving.Unfit(authority, hosts, now.Add(59*day)))
	require.Equal(t, "it ends soon", serving.Unfit(authority, hosts, now.Add(61*day)))
	require.Equal(t, "it is of another authority", serving.Unfit(other, hosts, now))
	require.Equal(t, "it is not for other.svc", serving.Unfit(authority, append(hosts, "other.svc"), now))
	require.Equal(t, "it cannot be read", certs.Pair{}.Unfit(authority, hosts, now))
	require.Equal(t, "it cannot be read", certs.Pair{Cert: serving.Cert, Key: authority.Key}.Unfit(authority, hosts, now))

	require.Empty(t, authority.Worn(now.Add(6*365*day)))
	require.NotEmpty(t, authority.Worn(now.Add(7*365*day)))
}

// A client with the old authority certificate trusts new certificates, and a client with the new
// one trusts old certificates.
func TestRenew_KeepsTrust(t *testing.T) {
	t.Parallel()
	authority, err := certs.NewAuthority(now)
	require.NoError(t, err)
	before, err := authority.Issue([]string{"a"}, now)
	require.NoError(t, err)
	renewed, err := authority.Renew(now.Add(day))
	require.NoError(t, err)
	require.NotEqual(t, authority.Cert, renewed.Cert)
	after, err := renewed.Issue([]string{"a"}, now.Add(day))
	require.NoError(t, err)
	require.Empty(t, before.Unfit(renewed, []string{"a"}, now.Add(day)))
	require.Empty(t, after.Unfit(authority, []string{"a"}, now.Add(day)))
}

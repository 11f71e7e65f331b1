// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Without an argument a command takes the only deployment that fits. If several fit, it does nothing.
func TestChooseDeployment_FindsTheOnlyOne(t *testing.T) {
	t.Parallel()
	for command, fields := range map[string]string{
		"cancel":   `"status":"building"`,
		"activate": `"status":"deployed","is_live":false`,
	} {
		t.Run(command, func(t *testing.T) {
			p := newProject(t)
			p.cancels = true
			live := p.addDeployment(`"status":"deployed","is_live":true`)
			failed := p.addDeployment(`"status":"failed"`)
			_, _, err := p.agentctl(command)
			require.ErrorContains(t, err, "DEPLOYMENT: none can be "+command)
			require.ErrorContains(t, err, "; there is "+live+" 2fd4e1c6 (production, live), "+failed+" 2fd4e1c6 (production, failed)")
			require.Empty(t, p.called)

			one := p.addDeployment(fields)
			out, messages, err := p.agentctl(command)
			require.NoError(t, err)
			require.Equal(t, one+"\n", out)
			require.Contains(t, messages, one+" 2fd4e1c6 (production, ")
			require.Len(t, p.called, 1)
			require.Contains(t, p.called[0], "/deployments/"+one+"/"+command)

			two := p.addDeployment(fields)
			_, _, err = p.agentctl(command, "--environment", "production")
			require.ErrorContains(t, err, "DEPLOYMENT: 2 can be "+command)
			require.ErrorContains(t, err, "; name one: "+one+" 2fd4e1c6 (production, ")
			require.ErrorContains(t, err, ", "+two+" 2fd4e1c6 (production, ")
			require.NotContains(t, err.Error(), failed)
			require.Len(t, p.called, 1)
		})
	}
}

// Of several deployments of a commit, a command takes the one that fits.
func TestFindDeployment_PrefersDeploymentsThatFit(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.cancels = true
	live := p.addDeployment(`"status":"deployed","is_live":true`)
	building := p.addDeployment(`"status":"building"`)
	p.addDeployment(`"status":"failed"`)
	out, _, err := p.agentctl("cancel", "2fd4e1c6")
	require.NoError(t, err)
	require.Equal(t, building+"\n", out)
	out, _, err = p.agentctl("activate", "2fd4e1c6")
	require.NoError(t, err)
	require.Equal(t, live+"\n", out)

	older := p.addDeployment(`"status":"deployed"`)
	_, _, err = p.agentctl("activate", "2fd4e1c6")
	require.EqualError(t, err, `DEPLOYMENT: "2fd4e1c6" is ambiguous; use an ID: `+live+" (production, live), "+older+" (production, deployed)")
	_, _, err = p.agentctl("logs", "2fd4e1c6")
	require.ErrorContains(t, err, "is ambiguous", "a log there is of each")
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWithoutANameItIsTheOneThatFits: of what is under way to be cancelled, and of what is deployed and
// not live to be activated. Of several nothing is done.
func TestWithoutANameItIsTheOneThatFits(t *testing.T) {
	t.Parallel()
	for command, fields := range map[string]string{
		"cancel":   `"status":"building"`,
		"activate": `"status":"deployed","is_live":false`,
	} {
		t.Run(command, func(t *testing.T) {
			p := newProject(t)
			p.cancels = true
			live := p.has(`"status":"deployed","is_live":true`)
			failed := p.has(`"status":"failed"`)
			_, _, err := p.agentctl(command)
			require.ErrorContains(t, err, "DEPLOYMENT: none can be "+command)
			require.ErrorContains(t, err, "; there is "+live+" 2fd4e1c6 (production, live), "+failed+" 2fd4e1c6 (production, failed)")
			require.Empty(t, p.called)

			one := p.has(fields)
			out, messages, err := p.agentctl(command)
			require.NoError(t, err)
			require.Equal(t, one+"\n", out)
			require.Contains(t, messages, one+" 2fd4e1c6 (production, ")
			require.Len(t, p.called, 1)
			require.Contains(t, p.called[0], "/deployments/"+one+"/"+command)

			two := p.has(fields)
			_, _, err = p.agentctl(command, "--environment", "production")
			require.ErrorContains(t, err, "DEPLOYMENT: 2 can be "+command)
			require.ErrorContains(t, err, "; say which: "+one+" 2fd4e1c6 (production, ")
			require.ErrorContains(t, err, ", "+two+" 2fd4e1c6 (production, ")
			require.NotContains(t, err.Error(), failed)
			require.Len(t, p.called, 1)
		})
	}
}

// TestOfANameThatSeveralHaveItIsTheOneThatFits: one commit is deployed many times, and one of these is
// under way. What is live stays meant by its name.
func TestOfANameThatSeveralHaveItIsTheOneThatFits(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.cancels = true
	live := p.has(`"status":"deployed","is_live":true`)
	building := p.has(`"status":"building"`)
	p.has(`"status":"failed"`)
	out, _, err := p.agentctl("cancel", "2fd4e1c6")
	require.NoError(t, err)
	require.Equal(t, building+"\n", out)
	out, _, err = p.agentctl("activate", "2fd4e1c6")
	require.NoError(t, err)
	require.Equal(t, live+"\n", out)

	older := p.has(`"status":"deployed"`)
	_, _, err = p.agentctl("activate", "2fd4e1c6")
	require.EqualError(t, err, `DEPLOYMENT: "2fd4e1c6" is more than one; say which by its id: `+live+" (production, live), "+older+" (production, deployed)")
	_, _, err = p.agentctl("logs", "2fd4e1c6")
	require.ErrorContains(t, err, "is more than one", "a log there is of each")
}

// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/serve"
)

// driftReports returns the reports of all claim requests.
func (p *port) driftReports() (all dispatchapi.DriftReports) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, req := range p.asked {
		all = append(all, req.Drift...)
	}
	return all
}

// The next claim request has the tools of all comparisons of a server since the last report, because tenants can get other tools.
// Comparisons that follow each other are reported every ten minutes, so a server whose list changes with each request causes no
// more requests or reports.
func TestDrift_IsReportedWithClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, deployment := newPort(t, repo()), uuid.New()
		book := serve.NewDriftBook(nil)
		one := started(t, p, "one", func(context.Context) error { return nil }, func(o *serve.Options) { o.Drift = book })
		// answer lets the port answer the open claim request, so that the runner sends the next one.
		answer := func() {
			p.await(t, p.queue("charger", "text/plain", "x"))
			synctest.Wait()
		}
		answer()
		require.Empty(t, p.driftReports())
		for i := range 1000 {
			book.Add(deployment.String(), "support", "crm", []string{fmt.Sprint("tool-", i%2)})
		}
		book.Add(deployment.String(), "support", "crm", nil)
		answer()
		want := dispatchapi.DriftReport{DeploymentID: deployment, Agent: "support", Server: "crm", Tools: dispatchapi.DriftTools{"tool-0", "tool-1"}}
		require.Equal(t, dispatchapi.DriftReports{want}, p.driftReports())
		answer()
		book.Add(deployment.String(), "support", "crm", nil)
		time.Sleep(10*time.Minute - time.Second)
		answer()
		require.Len(t, p.driftReports(), 1)
		time.Sleep(time.Second)
		answer()
		require.Len(t, p.driftReports(), 2)
		want.Tools = nil
		require.Equal(t, want, p.driftReports()[1])
		answer()
		require.NoError(t, one.end(t))
		require.Len(t, p.driftReports(), 2)
	})
}

// Reports are bounded: their number in a request, their tools and the names of these. Names are valid UTF-8.
func TestDrift_IsBounded(t *testing.T) {
	t.Parallel()
	book, deployment := serve.NewDriftBook(nil), uuid.New()
	names := make([]string, 2*dispatchapi.MaxDriftTools)
	for i := range names {
		names[i] = fmt.Sprintf("%03d", i) + strings.Repeat("ä\xff", dispatchapi.MaxDriftTool)
	}
	for i := range 2000 {
		book.Add(deployment.String(), "support", fmt.Sprint("server-", i), names)
	}
	book.Add("no deployment", "support", "crm", names)
	total := 0
	for {
		due := book.Due()
		if len(due) == 0 {
			break
		}
		require.LessOrEqual(t, len(due), dispatchapi.MaxDriftReports)
		require.Len(t, due[0].Tools, dispatchapi.MaxDriftTools)
		require.Equal(t, ("000" + strings.Repeat("ä_", dispatchapi.MaxDriftTool/3))[:dispatchapi.MaxDriftTool-1], due[0].Tools[0])
		book.MarkSent(due)
		total += len(due)
	}
	require.Equal(t, 1024, total)
}

// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// Without a rate the cost is null with a reason.
func TestGetDeployment_ConvertsCostsOfTests(t *testing.T) {
	t.Parallel()
	const list = `[{"agent_name":"B","test_name":"x","costs":[{"day":100,"calls":3,"currency":"USD","nanos":2000000000},{"day":100,"calls":1,"currency":"","nanos":0}]},
		{"agent_name":"a","test_name":"x","cost":null}]`
	results := recordedResults([]byte(list))
	shown := testResults(costs.NewExchange(store.EUR, store.Rate{Currency: store.USD, Day: 98, Micros: 1_250_000}), results)
	require.Equal(t, "a", shown[0].AgentName)
	require.Equal(t, costs.Costing{UnpricedCalls: ptr.To[int64](0)}, shown[0].Costing, "of a release before")
	require.Equal(t, &costs.Cost{Currency: "EUR", Amount: 1.6}, shown[1].Cost.Value)
	require.Equal(t, ptr.To[int64](1), shown[1].UnpricedCalls)
	require.Equal(t, costs.CostUnknown("no_rate"), *testResults(costs.NewExchange(store.EUR), results)[1].CostUnknown.Value)
}

// A build runs code of the project, so its reports can have any shape.
func TestGetDeployment_HidesMalformedReports(t *testing.T) {
	t.Parallel()
	for _, report := range []string{"", "null", "{}", `"x"`, "[1]", `[{"passed":"yes"}]`} {
		require.Equal(t, []TestResult{}, testResults(costs.Exchange{}, recordedResults([]byte(report))), report)
	}
	require.Equal(t, []ConnectorResult{{Connector: "a", Action: "failed", Error: rest.Optional("no")}},
		recorded[ConnectorResult]([]byte(`[{"connector":"a","action":"failed","error":"no"}]`)))
}

// Kubernetes stores whole seconds, so each request is at least a second later than the previous request.
func TestActivateDeployment_OrdersRequestsByTime(t *testing.T) {
	t.Parallel()
	second := time.Unix(1_800_000_000, 0)
	at := func(seconds float64) *time.Time {
		out := second.Add(time.Duration(seconds * float64(time.Second)))
		return &out
	}
	for name, c := range map[string]struct {
		own, live *time.Time
		want      float64
	}{
		"no earlier decision":                          {nil, nil, 0},
		"long after the earlier decisions":             {at(-60), at(-30), 0},
		"second decision in the same second":           {at(0), nil, 1},
		"after an earlier decision in the next second": {at(1), nil, 2},
		"after the decision of the live deployment":    {nil, at(1), 1},
		"after both decisions":                         {at(1), at(1), 2},
		"live deployment decided in the far future":    {nil, at(3600), 0},
		"own decision in the far future":               {at(3600), nil, 3601},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, *at(c.want), decisionTime(second.Add(900*time.Millisecond), c.own, c.live))
		})
	}
}

// The restored spec has the branch or the commit of the original.
func TestActivateDeployment_RestoresSpecOfPrunedObject(t *testing.T) {
	t.Parallel()
	of := uuid.New()
	for _, git := range []v1alpha1.DeploymentGitSource{{}, {Branch: "main"}, {Commit: "abc"}, {Branch: "main", Commit: "abc"}} {
		want := v1alpha1.DeploymentSpec{
			Environment: "production", Source: v1alpha1.DeploymentSource{Git: &git}, RedeployOf: v1alpha1.DeploymentID(of.String()), SkipTests: true,
		}
		digest, err := want.Fingerprint()
		require.NoError(t, err)
		d := store.Deployment{DeploymentSpec: store.DeploymentSpec{Fingerprint: digest, Branch: "main", Commit: "abc", RedeployOf: &of, SkipTests: true}}
		got, err := originalSpec(d, "production")
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = originalSpec(d, "staging")
		require.Error(t, err)
	}
}

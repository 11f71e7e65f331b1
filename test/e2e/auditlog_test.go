// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// auditLines are lines of a kube-apiserver's audit log: a request before the installation, a request of another account, a
// rejected list, an apply whose create is rejected, an apply that creates, and an incomplete line.
const auditLines = `{"verb":"list","user":{"username":"system:serviceaccount:agentplatform-system:manager"},"objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:00.000000Z","annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"list","user":{"username":"system:serviceaccount:agentplatform:manager"},"objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-03T00:00:00.000000Z"}
{"verb":"list","user":{"username":"system:serviceaccount:agentplatform-system:manager"},"objectRef":{"resource":"secrets","apiVersion":"v1"},"responseStatus":{"code":403,"message":"secrets is forbidden: User \"system:serviceaccount:agentplatform-system:manager\" cannot list resource \"secrets\" in API group \"\" at the cluster scope"},"requestReceivedTimestamp":"2026-01-03T00:00:00.000000Z","annotations":{"authorization.k8s.io/decision":"forbid"}}
{"verb":"patch","user":{"username":"system:serviceaccount:agentplatform-system:manager"},"objectRef":{"resource":"deployments","namespace":"shop","name":"dev","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"code":403,"message":"deployments.apps \"dev\" is forbidden: User \"system:serviceaccount:agentplatform-system:manager\" cannot create resource \"deployments\" in API group \"apps\" in the namespace \"shop\""},"requestReceivedTimestamp":"2026-01-03T00:00:00.000000Z","annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"patch","user":{"username":"system:serviceaccount:agentplatform-system:manager"},"objectRef":{"resource":"connectors","namespace":"shop","name":"ask","apiGroup":"agentplatform.dev","apiVersion":"v1alpha1","subresource":"status"},"responseStatus":{"code":201},"requestReceivedTimestamp":"2026-01-03T00:00:00.000000Z","annotations":{"authorization.k8s.io/decision":"allow"}}
{"verb":"get","user":{"userna`

func TestAuditLog_IsRead(t *testing.T) {
	before := audit
	t.Cleanup(func() { audit = before })
	audit.since, audit.calls = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC), map[apiCall]bool{}
	require.NoError(t, readAudit(strings.NewReader(auditLines)))
	status := apiCall{account: "manager", namespace: "shop", group: "agentplatform.dev", resource: "connectors/status", name: "ask", verb: "patch", code: 201}
	require.Equal(t, map[apiCall]bool{
		{account: "manager", resource: "secrets", verb: "list", code: 403, refused: true}:                                                      true,
		{account: "manager", namespace: "shop", group: "apps", resource: "deployments", name: "dev", verb: "create", code: 403, refused: true}: true,
		status: true,
	}, audit.calls)

	held := right{account: "manager", group: "agentplatform.dev", resource: "connectors/status", verb: "patch"}
	require.True(t, held.usedBy(status))
	held.verb = "create"
	require.True(t, held.usedBy(status), "an apply that created")
	held.namespace = "another"
	require.False(t, held.usedBy(status))
}

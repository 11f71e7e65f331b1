// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTerminalStatesNeverMove(t *testing.T) {
	t.Parallel()
	all := []RunStatus{RunScheduled, RunQueued, RunRunning, RunAwaitingApproval, RunCompleted, RunFailed, RunCancelled}
	for _, from := range all {
		for _, to := range all {
			if from.Terminal() {
				require.Falsef(t, from.CanBecome(to), "%s must not become %s", from, to)
			}
		}
	}
	require.True(t, RunCompleted.Terminal())
	require.True(t, RunFailed.Terminal())
	require.True(t, RunCancelled.Terminal())
	require.False(t, RunQueued.Terminal())
}

func TestEveryRunCanEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		status := RunScheduled
		for range rapid.IntRange(0, 50).Draw(t, "moves") {
			next := runMoves[status]
			if len(next) == 0 {
				return
			}
			to := rapid.SampledFrom(next).Draw(t, "to")
			require.True(t, status.CanBecome(to))
			status = to
		}
		if !status.Terminal() {
			require.True(t, status.CanBecome(RunCancelled), "%s cannot be cancelled", status)
		}
	})
}

func TestDeploymentMoves(t *testing.T) {
	t.Parallel()
	require.True(t, DeploymentPending.CanBecome(DeploymentBuilding))
	require.False(t, DeploymentPending.CanBecome(DeploymentDeployed))
	require.True(t, DeploymentBuilding.CanBecome(DeploymentDeployed))
	require.False(t, DeploymentDeployed.CanBecome(DeploymentFailed))
	require.True(t, DeploymentDeployed.Terminal())
}

func TestConnectorRunOutcome(t *testing.T) {
	t.Parallel()
	require.Equal(t, ConnectorRunRunning, ConnectorRunOutcome(1, 1))
	require.Equal(t, ConnectorRunFailed, ConnectorRunOutcome(0, 1))
	require.Equal(t, ConnectorRunCompleted, ConnectorRunOutcome(0, 0))
}

func TestRotateSecrets(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	day := 24 * time.Hour
	first := RotateSecrets(nil, []byte("one"), day, now)
	require.Equal(t, []AcceptedSecret{{SHA256: []byte("one")}}, first)

	second := RotateSecrets(first, []byte("two"), day, now)
	end := now.Add(day)
	require.Equal(t, []AcceptedSecret{{SHA256: []byte("two")}, {SHA256: []byte("one"), NotAfter: &end}}, second)

	require.Equal(t, second, RotateSecrets(second, []byte("two"), day, now.Add(time.Hour)), "no change, no new end")
	require.Len(t, RotateSecrets(second, []byte("two"), day, now.Add(day)), 1, "what has expired goes")
	require.Len(t, RotateSecrets(first, []byte("two"), 0, now), 1, "no grace, no old secret")
	require.Nil(t, RotateSecrets(second, nil, day, now))
}

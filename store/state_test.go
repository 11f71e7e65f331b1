// SPDX-License-Identifier: Apache-2.0

package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStatus_TerminalNeverMoves(t *testing.T) {
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

func TestRunStatus_CanAlwaysEnd(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		status := RunScheduled
		for range rapid.IntRange(0, 50).Draw(t, "moves") {
			next := runTransitions[status]
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

func TestDeploymentStatus_AllowedMoves(t *testing.T) {
	t.Parallel()
	require.True(t, DeploymentPending.CanBecome(DeploymentBuilding))
	require.False(t, DeploymentPending.CanBecome(DeploymentDeployed))
	require.True(t, DeploymentBuilding.CanBecome(DeploymentDeployed))
	require.False(t, DeploymentDeployed.CanBecome(DeploymentFailed))
	require.True(t, DeploymentDeployed.Terminal())
}

func TestConnectorRunOutcome_FollowsRuns(t *testing.T) {
	t.Parallel()
	require.Equal(t, ConnectorRunRunning, ConnectorRunOutcome(1, 1, 1))
	require.Equal(t, ConnectorRunFailed, ConnectorRunOutcome(0, 1, 1))
	require.Equal(t, ConnectorRunCompleted, ConnectorRunOutcome(0, 0, 1))
	require.Equal(t, ConnectorRunCancelled, ConnectorRunOutcome(0, 0, 0))
}

func TestRotateSecrets_AppliesGrace(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	day := 24 * time.Hour
	secret := func(name string) AcceptedSecret { return AcceptedSecret{SHA256: []byte(name)} }
	ending := func(name string, end time.Time) AcceptedSecret {
		return AcceptedSecret{SHA256: []byte(name), NotAfter: &end}
	}
	first := RotateSecrets(nil, secret("one"), day, nil, now)
	require.Equal(t, []AcceptedSecret{secret("one")}, first)

	second := RotateSecrets(first, secret("two"), day, nil, now)
	require.Equal(t, []AcceptedSecret{secret("two"), ending("one", now.Add(day))}, second)

	require.Equal(t, second, RotateSecrets(second, secret("two"), day, nil, now.Add(time.Hour)), "no change, same end")
	require.Len(t, RotateSecrets(second, secret("two"), day, nil, now.Add(day)), 1, "expired secrets are removed")
	require.Len(t, RotateSecrets(first, secret("two"), 0, nil, now), 1, "without grace the old secret is removed")
	require.Nil(t, RotateSecrets(second, AcceptedSecret{}, day, nil, now))

	third := RotateSecrets(second, secret("three"), time.Hour, nil, now)
	soon := now.Add(time.Hour)
	require.Equal(t, []AcceptedSecret{secret("three"), ending("two", soon), ending("one", soon)}, third,
		"a shorter grace ends all older ones earlier")
	require.Equal(t, third, RotateSecrets(third, secret("three"), 2*day, nil, now), "a longer grace extends none")
	require.Len(t, RotateSecrets(third, secret("three"), 0, nil, now), 1, "without grace all expire, also without a rotation")
}

func TestRotateSecrets_ExpiresWithRevokedKey(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	end := now.Add(30 * 24 * time.Hour)
	ends := KeyEnds{"leaked": end}
	old := AcceptedSecret{SHA256: []byte("old"), Version: 1, Key: "leaked"}
	anew := AcceptedSecret{SHA256: []byte("anew"), Version: 1, Key: "good"}
	ending := old
	ending.NotAfter = &end

	require.Equal(t, []AcceptedSecret{ending}, AcceptedAt([]AcceptedSecret{old}, ends, now), "also the current one")
	require.Empty(t, AcceptedAt([]AcceptedSecret{old}, ends, end))
	require.Equal(t, []AcceptedSecret{anew}, AcceptedAt([]AcceptedSecret{anew}, ends, end))

	derivedAnew := RotateSecrets([]AcceptedSecret{old}, anew, time.Hour, ends, now)
	require.Equal(t, []AcceptedSecret{anew, ending}, derivedAnew, "the platform operator's period, not the connector's")
	require.Equal(t, derivedAnew, RotateSecrets(derivedAnew, anew, time.Hour, ends, now.Add(time.Hour)))
	require.Len(t, RotateSecrets([]AcceptedSecret{old}, anew, time.Hour, KeyEnds{"leaked": now}, now), 1, "at once")

	next := AcceptedSecret{SHA256: []byte("next"), Version: 2, Key: "good"}
	require.Len(t, RotateSecrets(derivedAnew, next, 0, ends, now), 1, "a rotation without grace ends it earlier")
	own := AcceptedSecret{SHA256: []byte("own"), Version: 1}
	require.Len(t, RotateSecrets([]AcceptedSecret{old}, own, 0, ends, now), 1, "so does a user's own secret")
}

func TestNextKey_RequiresAllProcesses(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	old := PlatformKey{ID: "old", Rank: 1, Current: true, Used: true}
	young := PlatformKey{ID: "young", Rank: 2}
	revoked := func(k PlatformKey) PlatformKey { k.RevokedAt, k.EndsAt = &at, &at; return k }
	both, lagging := KeyHolder{Process: "a", Keys: []string{"old", "young"}}, KeyHolder{Process: "b", Keys: []string{"old"}}
	for name, c := range map[string]struct {
		keys []PlatformKey
		live []KeyHolder
		next string
	}{
		"all processes have it":      {[]PlatformKey{old, young}, []KeyHolder{both}, "young"},
		"one process lacks it":       {[]PlatformKey{old, young}, []KeyHolder{both, lagging}, ""},
		"nobody lives":               {[]PlatformKey{old, young}, nil, ""},
		"the newest is current":      {[]PlatformKey{old}, []KeyHolder{both}, ""},
		"the first key":              {[]PlatformKey{{ID: "old", Rank: 1}}, []KeyHolder{lagging}, "old"},
		"the new one is revoked":     {[]PlatformKey{old, revoked(young)}, []KeyHolder{both}, ""},
		"the current one is revoked": {[]PlatformKey{revoked(old), young}, []KeyHolder{both}, "young"},
		"the current key is revoked, and one process lacks the next": {[]PlatformKey{revoked(old), young}, []KeyHolder{both, lagging}, ""},
		"the newest is revoked": {[]PlatformKey{{ID: "old", Rank: 1, Used: true}, revoked(PlatformKey{ID: "young", Rank: 2, Current: true})}, []KeyHolder{both}, "old"},
		"all are revoked":       {[]PlatformKey{revoked(old), revoked(young)}, []KeyHolder{both}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			next, ok := NextKey(c.keys, c.live)
			require.Equal(t, c.next != "", ok)
			require.Equal(t, c.next, next.ID)
		})
	}
}

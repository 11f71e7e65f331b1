// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

func TestOptions_BoundStabilizationWindow(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "test.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for window, allowed := range map[time.Duration]bool{
		0: true, 10 * time.Second: true, 24 * time.Hour: true,
		-time.Second: false, 9 * time.Second: false, 25 * time.Hour: false,
	} {
		t.Run(window.String(), func(t *testing.T) {
			err := Options{
				Store: db.ForCluster("cluster"), Hints: db, Keys: &secrets.Keys{}, Image: "platform:1", DispatchURL: "http://dispatch:8081",
				SystemNamespace: "system", GatewayURL: "http://gateway", PlatformID: uuid.New(), StabilizationWindow: window,
			}.validate()
			if allowed {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "--scale-down-window")
			}
		})
	}
}

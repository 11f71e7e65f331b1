// SPDX-License-Identifier: Apache-2.0

package lock

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLock_BlocksSecondProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sub", "lock")
	unlock, err := Take(path, func() { t.Error("nobody holds it") })
	require.NoError(t, err)

	waits := make(chan struct{})
	got := make(chan error)
	go func() {
		unlockSecond, err := Take(path, func() { close(waits) })
		if err == nil {
			unlockSecond()
		}
		got <- err
	}()
	<-waits
	unlock()
	require.NoError(t, <-got)
}

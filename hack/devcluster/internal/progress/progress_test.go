// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStep_PrintsDuration(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	now := time.Unix(0, 0)
	log := New(&out)
	log.now = func() time.Time { return now }

	require.NoError(t, log.Step("building", func() error {
		now = now.Add(90*time.Second + 499*time.Millisecond)
		return nil
	}))
	require.Equal(t, "==> building\n    done in 1m30s\n", out.String())
}

func TestStep_ReturnsError(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := New(&out)
	log.now = func() time.Time { return time.Unix(0, 0) }
	cause := errors.New("no room")

	require.ErrorIs(t, log.Step("building", func() error { return cause }), cause)
	require.Equal(t, "==> building\n    failed after 0s\n", out.String())
}

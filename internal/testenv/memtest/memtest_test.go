// SPDX-License-Identifier: Apache-2.0

package memtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
)

// failing is a test that records its failure.
type failing struct {
	testing.TB
	failed bool
}

func (f *failing) Helper()               {}
func (f *failing) Fatalf(string, ...any) { f.failed = true }

var sink []byte

func TestAtMost_IgnoresSingleAllocations(t *testing.T) {
	for name, c := range map[string]struct {
		loud int // number of runs that allocate too much
		want bool
	}{"never": {0, false}, "once": {1, false}, "all but the last": {4, false}, "always": {5, true}} {
		t.Run(name, func(t *testing.T) {
			runs, f := 0, &failing{TB: t}
			memtest.AtMost(f, 1<<20, func() {
				runs++
				if runs <= c.loud {
					sink = make([]byte, 2<<20)
				}
			})
			require.Equal(t, c.want, f.failed)
			require.LessOrEqual(t, runs, 5)
		})
	}
}

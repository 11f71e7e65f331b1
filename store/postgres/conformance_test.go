// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return open(t) })
}

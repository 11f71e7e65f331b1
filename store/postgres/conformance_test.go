// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"testing"

	"github.com/agentplatform/agentplatform/store/storetest"
)

func TestStore_Conformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Opened {
		dsn := migrated(t)
		db := openDB(t, dsn)
		return storetest.Opened{Store: openAt(t, dsn), DB: db}
	})
}

// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/store"
)

// losses change the store while the platform is stopped. Each loss returns the file to continue with. Yesterday's copy lacks
// the newest rows of the victim.
var losses = map[string]func(victim *tenant, yesterday string) string{
	"an emptied store": func(victim *tenant, _ string) string {
		return filepath.Join(victim.t.TempDir(), "empty.db")
	},
	"a store of yesterday": func(_ *tenant, yesterday string) string { return yesterday },
	"etcd of yesterday": func(victim *tenant, _ string) string {
		victim.change(`UPDATE object_ids SET generation = generation + 7 WHERE project_id = $1`)
		return victim.path
	},
	"objects that were made anew from a backup": func(victim *tenant, _ string) string {
		victim.change(`UPDATE object_ids SET object_uid = 'of-the-object-before' WHERE project_id = $1`)
		return victim.path
	},
}

// change changes rows of the tenant while the platform is stopped.
func (t *tenant) change(statement string) {
	t.t.Helper()
	db := t.open()
	defer func() { require.NoError(t.t, db.Close()) }()
	result, err := db.ExecContext(t.t.Context(), statement, t.project.String())
	require.NoError(t.t, err)
	rows, err := result.RowsAffected()
	require.NoError(t.t, err)
	require.Positive(t.t, rows)
}

// The attacker requests every ID of the victim while neither the manager nor the store knows the owner of the IDs.
func TestLoss_GivesIDsToNobodyElse(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			p := start(t)
			victim, attacker := p.settle(), p.settle()
			attacker.populate()
			p.stop()
			yesterday := filepath.Join(t.TempDir(), "yesterday.db")
			content, err := os.ReadFile(p.path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(yesterday, content, 0o600))
			p.run(p.path)
			victim.populate()
			p.stop()
			file := lose(victim, yesterday)
			for _, kind := range kinds {
				attacker.create(attacker.object(kind, forged, kindName(store.KindEnvironment), victim.ids[kind]).(client.Object))
			}

			p.run(file)
			attacker.ask(victim, victim.ids)
			for _, kind := range kinds {
				if kind != store.KindDeployment { // which is built again where the store has lost it
					victim.inEffect(kind)
				}
				holder, err := p.store.Holder(t.Context(), attacker.row(victim.ids[kind]))
				if err == nil {
					require.Equal(t, forged, holder.Name)
				}
			}
			victim.works()
		})
	}
}

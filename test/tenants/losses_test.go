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

// losses are what happens to the store while nothing runs: they return the file to
// go on with. The newest rows of the victim's came after yesterday's copy.
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

// change changes rows of the tenant's while nothing runs.
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

// TestWhatIsLostGoesToNobodyElse: the attacker asks for every id of the victim's
// while neither manager nor store knows whose they are.
func TestWhatIsLostGoesToNobodyElse(t *testing.T) {
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

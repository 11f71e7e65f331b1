// SPDX-License-Identifier: Apache-2.0

package runrow

import (
	"context"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// SavedFile is a file with its blob.
type SavedFile struct {
	store.SavedFile
	Blob uuid.UUID
}

// SavedFiles reads the files of a run, if narrow matches its journal rows j. The arguments of narrow begin with $3.
func SavedFiles(ctx context.Context, db *sqldb.DB, q sqldb.Queryer, run store.Key, narrow string, args ...any) ([]SavedFile, error) {
	return sqldb.PastRows(ctx, db, q, run.ID, func(row sqldb.Scanner) (f SavedFile, err error) {
		err = row.Scan(sqldb.ScanJSON(&f.SavedFile), &f.Blob)
		return f, err
	}, `SELECT j.data, j.blob_id FROM {journal} j WHERE j.project_id = $1 AND j.run_id = $2 AND j.kind = 'file'`+narrow+` ORDER BY j.sequence`,
		append([]any{run.ProjectID, run.ID}, args...)...)
}

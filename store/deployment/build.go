// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/blob"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// ReportBuild implements store.Builds.
func (s *Store) ReportBuild(ctx context.Context, key store.Key, r store.BuildReport) error {
	r.Branch, r.Commit, r.CommitMessage, r.Author = sqldb.Text(r.Branch), sqldb.Text(r.Commit), sqldb.Text(r.CommitMessage), sqldb.Text(r.Author)
	r, err := r.Bounded()
	if err != nil {
		return sqldb.Wrap(err, "reporting the build of deployment %s", key)
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		d, err := Lock(ctx, s.db, tx, key)
		switch {
		case err != nil:
			return err
		case d.Status != store.DeploymentBuilding:
			return store.ErrConflict
		case d.Built:
			r.Phase = "" // a late report does not go back
		}
		if err := r.Allowed(d); err != nil {
			return err
		}
		tx.Hint(store.TopicDeployment, key)
		_, err = tx.Exec(ctx, `UPDATE deployments SET
			phase = CASE WHEN $3 = '' THEN phase ELSE $3 END,
			resolved_commit = CASE WHEN $4 = '' THEN resolved_commit ELSE $4 END,
			commit_message = CASE WHEN $5 = '' THEN commit_message ELSE $5 END,
			author = CASE WHEN $6 = '' THEN author ELSE $6 END,
			branch = CASE WHEN branch = '' THEN $7 ELSE branch END WHERE project_id = $1 AND id = $2`,
			key.ProjectID, key.ID, string(r.Phase), r.Commit, r.CommitMessage, r.Author, r.Branch)
		return err
	})
	return sqldb.Wrap(err, "reporting the build of deployment %s", key)
}

// AppendBuildLog implements store.Builds.
func (s *Store) AppendBuildLog(ctx context.Context, key store.Key, number int64, chunk string) error {
	if number < 0 || number > store.MaxLogNumber {
		return sqldb.Wrap(fmt.Errorf("the chunk number is %d; the range is 0 to %d: %w", number, store.MaxLogNumber, store.ErrInvalid),
			"appending to the log of deployment %s", key)
	}
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		// This changes nothing. It locks the row, so that chunks are counted one by one.
		var used int64
		if err := tx.QueryRowContext(ctx, `UPDATE deployments SET log_size = log_size WHERE project_id = $1 AND id = $2
			RETURNING log_size`, key.ProjectID, key.ID).Scan(&used); err != nil {
			return sqldb.MapNoRows(err)
		}
		return appendLog(ctx, tx, key, used, number, chunk)
	})
	return sqldb.Wrap(err, "appending to the log of deployment %s", key)
}

// appendLog appends a chunk to the log of a locked deployment. before is the number of bytes in
// use.
func appendLog(ctx context.Context, tx *sqldb.Tx, key store.Key, before, number int64, chunk string) error {
	chunk, used := store.LogChunk(before, sqldb.Text(chunk))
	if chunk == "" {
		return nil
	}
	stored, err := tx.Exec(ctx, `INSERT INTO build_log (project_id, deployment_id, number, chunk) VALUES ($1, $2, $3, $4)
		ON CONFLICT (project_id, deployment_id, number) DO NOTHING`, key.ProjectID, key.ID, number, chunk)
	if err != nil || stored == 0 {
		return err
	}
	tx.Hint(store.TopicDeployment, key)
	if _, err = tx.Exec(ctx, `UPDATE deployments SET log_size = $3 WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID, used); err != nil {
		return err
	}
	return storedbytes.Add(ctx, tx, map[uuid.UUID]int64{key.ProjectID: used - before})
}

// appendOutcome ends the log of a locked deployment with the outcome. A deployment without a log gets
// none.
func appendOutcome(ctx context.Context, tx *sqldb.Tx, key store.Key, line string) error {
	var used, number, us int64
	err := tx.QueryRowContext(ctx, `SELECT d.log_size, now_us(), COALESCE((SELECT MAX(l.number) + 1 FROM build_log l
		WHERE l.project_id = d.project_id AND l.deployment_id = d.id), 0) FROM deployments d WHERE d.project_id = $1 AND d.id = $2`,
		key.ProjectID, key.ID).Scan(&used, &us, &number)
	if err != nil || number == 0 {
		return sqldb.MapNoRows(err)
	}
	line = time.UnixMicro(us).UTC().Format("15:04:05") + " " + strings.ReplaceAll(line, "\n", "\n  ") + "\n"
	return appendLog(ctx, tx, key, used, number, line)
}

// BuildLog implements store.Builds.
func (s *Store) BuildLog(ctx context.Context, key store.Key) (string, error) {
	chunks, err := sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanText, `SELECT chunk FROM build_log WHERE project_id = $1 AND deployment_id = $2 ORDER BY number`, key.ProjectID, key.ID)
	return strings.Join(chunks, ""), sqldb.Wrap(err, "reading the log of deployment %s", key)
}

// BuildLogFrom implements store.Builds. It reads the status first, so the log of an ended
// deployment is complete.
func (s *Store) BuildLogFrom(ctx context.Context, key store.Key, number int64) (store.BuildLogPart, error) {
	part := store.BuildLogPart{Next: number}
	err := sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT status FROM deployments WHERE project_id = $1 AND id = $2`,
		key.ProjectID, key.ID).Scan(&part.Status))
	if err != nil {
		return part, sqldb.Wrap(err, "reading deployment %s", key)
	}
	chunks, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (chunk string, err error) {
		err = row.Scan(&part.Next, &chunk)
		return chunk, err
	}, `SELECT number, chunk FROM build_log WHERE project_id = $1 AND deployment_id = $2 AND number >= $3 ORDER BY number`,
		key.ProjectID, key.ID, number)
	if len(chunks) > 0 {
		part.Next++
	}
	part.Text = strings.Join(chunks, "")
	return part, sqldb.Wrap(err, "reading the log of deployment %s", key)
}

// FinishBuild implements store.Builds.
func (s *Store) FinishBuild(ctx context.Context, key store.Key, r store.BuildResult) error {
	r, err := boundedResult(r)
	if err != nil {
		return sqldb.Wrap(err, "finishing the build of deployment %s", key)
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		d, err := Lock(ctx, s.db, tx, key)
		if err != nil {
			return err
		}
		failed := r.FailureReason != ""
		switch repeated := failed && d.Status == store.DeploymentFailed && d.FailureReason == r.FailureReason ||
			!failed && d.Built && d.BundleDigest == r.BundleDigest; {
		case repeated:
			return nil
		case d.Status != store.DeploymentBuilding, d.Built:
			return store.ErrConflict
		case !failed && r.BundleDigest == "":
			return fmt.Errorf("a build without a bundle needs a reason: %w", store.ErrConflict)
		}
		tx.Hint(store.TopicDeployment, key)
		if err := recordBuild(ctx, tx, d, r); err != nil {
			return err
		}
		if failed {
			_, err = tx.Exec(ctx, `UPDATE deployments SET status = 'failed', `+endPhase+`, failure_reason = $3,
				message = $4, ended_at = now_us() WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID, string(r.FailureReason), sqldb.Text(r.Message))
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE deployments SET built = TRUE, phase = $3 WHERE project_id = $1 AND id = $2`,
			key.ProjectID, key.ID, string(store.PhaseConnecting))
		return err
	})
	return sqldb.Wrap(err, "finishing the build of deployment %s", key)
}

// recordBuild records the result of a build. It may be a bundle even if the tests failed.
func recordBuild(ctx context.Context, tx *sqldb.Tx, d store.Deployment, r store.BuildResult) error {
	var size int64
	if r.BundleDigest != "" {
		var err error
		if size, err = blob.HoldBundle(ctx, tx, d.ProjectID, r.BundleDigest); err != nil {
			return sqldb.Wrap(err, "keeping bundle %s", r.BundleDigest)
		}
	}
	agents, err := sqldb.MarshalText(withoutConfig(r.Agents))
	if err != nil {
		return err
	}
	connectors, err := connectorFiles(r.Connectors)
	if err != nil {
		return err
	}
	stored := int64(len(agents) + len(r.TestResults) + len(connectors))
	for _, agent := range r.Agents {
		stored += int64(len(agent.Config))
	}
	if _, err := tx.Exec(ctx, `UPDATE deployments SET bundle_digest = $3, bundle_size = $4, agents = $5,
		test_results = $6, failed_test_count = $7, connector_files = $8, result_size = $9 WHERE project_id = $1 AND id = $2`,
		d.ProjectID, d.ID, r.BundleDigest, size, agents, sqldb.JSON(r.TestResults), store.FailedTests(r.TestResults), sqldb.JSON(connectors), stored); err != nil {
		return err
	}
	if err := storedbytes.Add(ctx, tx, map[uuid.UUID]int64{d.ProjectID: stored}); err != nil {
		return err
	}
	for part := range slices.Chunk(r.Agents, sqldb.MaxIDs) {
		l := sqldb.Args{Values: []any{d.ProjectID, d.ID}}
		rows := make([]string, len(part))
		for i, agent := range part {
			rows[i] = "($1, $2, " + l.Add(agent.Name) + ", " + l.Add(sqldb.JSON(agent.Config)) + ", " + l.Add(agent.MaxConcurrentRuns) +
				", " + l.Add(sqldb.Text(agent.ConcurrencyKey)) + ", " + l.Add(agent.ConcurrencyDrop) + ", " + l.Add(agent.SendsByMiddleware) +
				", " + l.Add(sqldb.Text(agent.VariantOf)) + ", " + l.Add(sqldb.Text(agent.TestName)) + ")"
		}
		if _, err := tx.Exec(ctx, `INSERT INTO deployment_agents (project_id, deployment_id, name, config, max_concurrent_runs, concurrency_expression,
				concurrency_drop, sends_by_middleware, variant_of, test_name)
			VALUES `+strings.Join(rows, ", ")+` ON CONFLICT DO NOTHING`, l.Values...); err != nil {
			return fmt.Errorf("recording agents: %w", err)
		}
	}
	return nil
}

// connectorFiles returns the files in connectors/ in their stored form, by key; nil without any.
func connectorFiles(files []store.ConnectorFile) (json.RawMessage, error) {
	if len(files) == 0 {
		return nil, nil
	}
	return json.Marshal(slices.SortedFunc(slices.Values(files), func(a, b store.ConnectorFile) int { return strings.Compare(a.Key, b.Key) }))
}

// ConnectorFiles implements store.Deployments.
func (s *Store) ConnectorFiles(ctx context.Context, key store.Key) (files []store.ConnectorFile, err error) {
	err = sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT connector_files FROM deployments WHERE project_id = $1 AND id = $2`,
		key.ProjectID, key.ID).Scan(sqldb.ScanJSON(&files)))
	return files, sqldb.Wrap(err, "reading the connectors of deployment %s", key)
}

// RecordConnectors implements store.Deployments.
func (s *Store) RecordConnectors(ctx context.Context, key store.Key, results json.RawMessage) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE deployments SET connector_results = $3 WHERE project_id = $1 AND id = $2`,
			key.ProjectID, key.ID, sqldb.JSON(sqldb.StorableJSON(results)))
		if err == nil && n == 0 {
			err = store.ErrNotFound
		}
		tx.Hint(store.TopicDeployment, key)
		return err
	})
	return sqldb.Wrap(err, "recording the connector results of deployment %s", key)
}

// withoutConfig returns agents as deployments record them. Configurations are in separate rows,
// because no caller reads all of them at once.
func withoutConfig(agents []store.Agent) []store.Agent {
	out := slices.Clone(agents)
	for i := range out {
		out[i].Config = nil
	}
	return out
}

// boundedResult returns a build result in its stored form, with store.ErrTooLarge and
// store.ErrInvalid as in Bounded.
func boundedResult(r store.BuildResult) (store.BuildResult, error) {
	r.Message, r.TestResults = sqldb.Text(r.Message), sqldb.StorableJSON(r.TestResults)
	files := make([]store.ConnectorFile, len(r.Connectors))
	for i, file := range r.Connectors {
		files[i] = store.ConnectorFile{Key: file.Key, Content: sqldb.Text(file.Content)}
	}
	r.Connectors = files
	return r.Bounded()
}

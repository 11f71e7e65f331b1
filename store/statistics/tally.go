// SPDX-License-Identifier: Apache-2.0

package statistics

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/DataDog/sketches-go/ddsketch"
	sketchstore "github.com/DataDog/sketches-go/ddsketch/store"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// Figures are the figures that an ended run adds to rollups.
type Figures struct {
	store.Key
	Status    store.RunStatus
	StartedAt *time.Time
	EndedAt   time.Time
	Usage     store.TokenUsage
}

// EndedRun is an ended run with its figures and the fields that identify its rollups.
type EndedRun struct {
	Figures
	Environment           uuid.UUID
	Agent, TestName       string
	Deployment, Connector uuid.UUID // the zero ID without one
	Outcome               string
}

// PrimaryKey implements sqldb.KeyedRow.
func (t EndedRun) PrimaryKey() store.Key { return t.Key }

// The columns of ended_runs r for them.
const (
	figuresColumns = `r.project_id, r.id, r.status, r.started_at, r.ended_at,
		r.input_tokens, r.output_tokens, r.thinking_tokens, r.cached_input_tokens, r.total_tokens`
	endedRunColumns = figuresColumns + `, r.environment_id, r.agent_name, r.test_name, r.deployment_id, r.connector_id, r.guardrail_outcome`
)

// scanFields returns the destinations of figuresColumns.
func (m *Figures) scanFields() []any {
	return append([]any{&m.ProjectID, &m.ID, &m.Status, sqldb.ScanNullTime(&m.StartedAt), sqldb.ScanTime(&m.EndedAt)}, usageFields(&m.Usage)...)
}

func scanFigures(row sqldb.Scanner) (m Figures, err error) {
	err = row.Scan(m.scanFields()...)
	return m, err
}

func scanEndedRun(row sqldb.Scanner) (t EndedRun, err error) {
	var deployment, connector *uuid.UUID
	err = row.Scan(append(t.scanFields(), &t.Environment, &t.Agent, &t.TestName, &deployment, &connector, &t.Outcome)...)
	if deployment != nil {
		t.Deployment = *deployment
	}
	if connector != nil {
		t.Connector = *connector
	}
	return t, err
}

// usageFields are the destinations of the token columns, in order.
func usageFields(u *store.TokenUsage) []any {
	return []any{&u.InputTokens, &u.OutputTokens, &u.ThinkingTokens, &u.CachedInputTokens, &u.TotalTokens}
}

// tally is a sum over runs.
type tally struct {
	runs, timed, durations int64 // durations is in microseconds
	usage                  store.TokenUsage
	sketch                 *ddsketch.DDSketch
}

// newSketch returns a sketch of durations: counts of durations that are equal within
// store.DurationError.
func newSketch() (*ddsketch.DDSketch, error) {
	sketch, err := ddsketch.NewDefaultDDSketch(store.DurationError)
	if err != nil {
		return nil, fmt.Errorf("creating a sketch of durations: %w", err)
	}
	return sketch, nil
}

func newTally() (*tally, error) {
	sketch, err := newSketch()
	return &tally{sketch: sketch}, err
}

// addEndedRun adds a run.
func (t *tally) addEndedRun(r Figures) error {
	t.runs++
	t.usage = t.usage.Plus(r.Usage)
	if r.StartedAt == nil {
		return nil
	}
	lasted := max(r.EndedAt.Sub(*r.StartedAt).Microseconds(), 0) // the clock may have been set back
	t.timed, t.durations = t.timed+1, t.durations+lasted
	if err := t.sketch.Add(float64(lasted)); err != nil {
		return fmt.Errorf("adding a duration: %w", err)
	}
	return nil
}

// addStored adds a tally with its encoded sketch.
func (t *tally) addStored(more tally, sketch []byte) error {
	t.runs, t.timed, t.durations = t.runs+more.runs, t.timed+more.timed, t.durations+more.durations
	t.usage = t.usage.Plus(more.usage)
	other, err := ddsketch.DecodeDDSketch(sketch, sketchstore.DefaultProvider, t.sketch.IndexMapping)
	if err == nil {
		err = t.sketch.MergeWith(other)
	}
	if err != nil {
		return fmt.Errorf("reading a sketch of durations: %w", errors.Join(sqldb.ErrUnreadable, err))
	}
	return nil
}

// encodeSketch returns the stored form of the sketch, without the mapping, which is the same for all.
func (t *tally) encodeSketch() []byte {
	raw := []byte{} // also if it is empty
	t.sketch.Encode(&raw, true)
	return raw
}

// average and p95 describe the durations, nil without any.
func (t *tally) average() *time.Duration {
	if t.timed == 0 {
		return nil
	}
	d := time.Duration(t.durations/t.timed) * time.Microsecond
	return &d
}

func (t *tally) percentile95() (*time.Duration, error) {
	if t.timed == 0 {
		return nil, nil
	}
	// The nearest rank: with few runs, the slowest counts. The sketch rounds down the rank among
	// all but one.
	rank := math.Ceil(0.95*float64(t.timed)) - 1
	us, err := t.sketch.GetValueAtQuantile(min(1, (rank+0.5)/float64(t.timed-1)))
	if err != nil {
		return nil, fmt.Errorf("reading a quantile: %w", err)
	}
	d := time.Duration(us * float64(time.Microsecond))
	return &d, nil
}

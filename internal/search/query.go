// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/expr"
)

// MaxSize is the most bytes of a text that is searched by.
const MaxSize = expr.MaxSize

var errPattern = errors.New("has a pattern for matches that is none: it must be a text in quotes, in the syntax of RE2, and not too large")

// Query is what somebody looks for.
type Query struct {
	// Words are words that each run has which matches: in no order, each once; none where nothing
	// is known of that.
	Words []string
	// Equal are fields of the run and the value that each has of every run that matches:
	// agent_name, test_name and status.
	Equal map[string]string

	condition *expr.Condition
	phrases   [][]string
}

// Parse reads what somebody looks for. A condition in CEL on what expr.Names names is that; any
// other text are words, all of which a run must have, those in double quotes one after the other.
func Parse(text string) (*Query, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("must have at most %d bytes", MaxSize)
	}
	condition, err := expr.NewCondition(text)
	switch {
	case err == nil:
		q := &Query{condition: condition, Equal: map[string]string{}}
		q.require(condition.Expr())
		q.sort()
		return q, nil
	case !errors.Is(err, expr.ErrNoCondition):
		return nil, errPattern
	}
	q := &Query{}
	for i, part := range strings.Split(text, `"`) {
		words := appendWords(nil, part)
		q.Words = append(q.Words, words...)
		if i%2 == 1 && len(words) > 1 {
			q.phrases = append(q.phrases, words)
		}
	}
	if q.sort(); len(q.Words) == 0 {
		return nil, errors.New("must have a word, or be a condition")
	}
	return q, nil
}

func (q *Query) sort() {
	slices.Sort(q.Words)
	q.Words = slices.Compact(q.Words)
}

// Match says whether a run is one of those. A condition that cannot be told of a run, or would
// cost too much there, does not match it.
func (q *Query) Match(ctx context.Context, run Run) bool {
	if q.condition != nil {
		holds, err := q.condition.Holds(ctx, run.values(q.condition.LooksAt))
		return holds && err == nil
	}
	sequence := run.sequence()
	has := make(map[string]bool, len(sequence))
	for _, word := range sequence {
		has[word] = true
	}
	return !slices.ContainsFunc(q.Words, func(word string) bool { return !has[word] }) &&
		!slices.ContainsFunc(q.phrases, func(phrase []string) bool { return !follows(sequence, phrase) })
}

// follows says whether words follow each other in a sequence.
func follows(sequence, phrase []string) bool {
	for at := range len(sequence) - len(phrase) + 1 {
		if slices.Equal(sequence[at:at+len(phrase)], phrase) {
			return true
		}
	}
	return false
}

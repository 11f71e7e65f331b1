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

// MaxSize limits a search text, in bytes.
const MaxSize = expr.MaxSize

var errPattern = errors.New("has an invalid pattern for matches: it must be a string literal in RE2 syntax, and not too large")

// Query is a parsed search.
type Query struct {
	// Words are words that each matching run has, without order and duplicates. It is empty if
	// nothing is known.
	Words []string
	// Equal are fields and their values in each matching run: agent_name, test_name and status.
	Equal map[string]string

	condition *expr.Condition
	phrases   [][]string
}

// Parse parses a search. A CEL condition on the names in expr.Names is a condition. Any other text
// is a list of words that a run must have. Words in double quotes must follow each other.
func Parse(text string) (*Query, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("must have at most %d bytes", MaxSize)
	}
	condition, err := expr.NewCondition(text)
	switch {
	case err == nil:
		q := &Query{condition: condition, Equal: map[string]string{}}
		q.require(condition.Expr())
		q.sortTerms()
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
	if q.sortTerms(); len(q.Words) == 0 {
		return nil, errors.New("must contain a word, or be a condition")
	}
	return q, nil
}

func (q *Query) sortTerms() {
	slices.Sort(q.Words)
	q.Words = slices.Compact(q.Words)
}

// Match reports whether a run matches. A condition that cannot be evaluated, or that costs too
// much, does not match.
func (q *Query) Match(ctx context.Context, run Run) bool {
	if q.condition != nil {
		holds, err := q.condition.Holds(ctx, run.conditionValues(q.condition.LooksAt))
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

// follows reports whether the words of a phrase follow each other in a sequence.
func follows(sequence, phrase []string) bool {
	for at := range len(sequence) - len(phrase) + 1 {
		if slices.Equal(sequence[at:at+len(phrase)], phrase) {
			return true
		}
	}
	return false
}

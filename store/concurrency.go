// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MaxConcurrencyKey is the most bytes of a run's concurrency key,
	// MaxConcurrencyExpression those of the expression that tells it.
	MaxConcurrencyKey        = 256
	MaxConcurrencyExpression = 1 << 10
)

// Causes of runs that ended for their concurrency key.
const (
	// RunErrorKeyUnavailable: the agent's expression tells no key of the input.
	RunErrorKeyUnavailable RunErrorCode = "key_unavailable"
	// RunErrorConcurrencyDropped: another open run had the key.
	RunErrorConcurrencyDropped RunErrorCode = "concurrency_dropped"
)

// Concurrency says which runs of an agent take turns: of those with one key one at a
// time is under way.
type Concurrency struct {
	// Expression tells the key of a run by its input; "" where none has one.
	Expression string
	// Drop cancels a run whose key another open one has; else it waits.
	Drop bool
}

// ConcurrencyKey is a run's. Of the open runs of an agent in an environment with the
// same key, the first has it until it ends, also while it is suspended; the others
// wait in the order in which they were accepted, and no claim sees them.
type ConcurrencyKey struct {
	// Text is at most MaxConcurrencyKey bytes; "" of a run that waits for no other.
	Text string
	// Unknown: no deployment was live that could tell it; the run's first claim does,
	// and Text and Drop say nothing.
	Unknown bool
	// Drop cancels the run where another one has the key.
	Drop bool
}

// Evaluator tells what expressions make of an input, which it reads once.
type Evaluator func(input []byte) func(expression string) (string, error)

// errInputTooLarge is why an input that is not at hand has no key.
var errInputTooLarge = errors.New("an input of more than 64 KiB has no key")

// KeyOf is the key of a run of an agent with this concurrency. input is nil where it
// is in a blob; evaluate is an Evaluator's on it. An error says why the run has no
// key: it fails with RunErrorKeyUnavailable.
func (c Concurrency) KeyOf(input []byte, evaluate func(expression string) (string, error)) (ConcurrencyKey, error) {
	if c.Expression == "" {
		return ConcurrencyKey{}, nil
	}
	key, err := "", errInputTooLarge
	if input != nil {
		key, err = evaluate(c.Expression)
	}
	if err == nil && (strings.ContainsRune(key, 0) || !utf8.ValidString(key)) {
		err = errors.New("the key has characters that are no text")
	}
	if err == nil && len(key) > MaxConcurrencyKey {
		err = fmt.Errorf("the key has %d bytes, at most %d are allowed", len(key), MaxConcurrencyKey)
	}
	if err != nil {
		return ConcurrencyKey{}, errors.New(Cut(fmt.Sprintf("concurrency.key %q: %v", c.Expression, err), MaxError))
	}
	return ConcurrencyKey{Text: key, Drop: c.Drop}, nil
}

// KeyOf is the key of a run of one of the route's agents; see Concurrency.KeyOf.
func (r Route) KeyOf(agent string, input []byte, evaluate func(expression string) (string, error)) (ConcurrencyKey, error) {
	if !r.Live {
		return ConcurrencyKey{Unknown: true}, nil
	}
	return r.Concurrency[agent].KeyOf(input, evaluate)
}

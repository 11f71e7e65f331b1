// SPDX-License-Identifier: Apache-2.0

package store

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// MaxConcurrencyKey is the maximum size of a concurrency key in bytes. MaxConcurrencyExpression
	// is the maximum size of the expression.
	MaxConcurrencyKey        = 256
	MaxConcurrencyExpression = 1 << 10
)

// Concurrency is the concurrency setting of an agent. Runs with the same key execute one at a time.
type Concurrency struct {
	// Expression computes the key of a run from its input; "" if runs have no key.
	Expression string
	// Drop cancels a run if another open run has its key. Otherwise the run waits.
	Drop bool
}

// ConcurrencyKey is the key of a run. Among the open runs of an agent in an environment with the
// same key, the first has the slot until it ends, also while it is suspended. The others wait in
// the order of acceptance, and no claim sees them.
type ConcurrencyKey struct {
	// Text has at most MaxConcurrencyKey bytes; "" if the run waits for no other run.
	Text string
	// Unknown means that no deployment was live to evaluate the key. The first claim of the run
	// evaluates it. Text and Drop are unset.
	Unknown bool
	// Drop cancels the run if another run has the key.
	Drop bool
}

// Evaluator evaluates expressions on an input, which it parses once.
type Evaluator func(input []byte) func(expression string) (string, error)

// errInputTooLarge explains why a run whose input is a blob has no key.
var errInputTooLarge = errors.New("inputs above 64 KiB have no concurrency key")

// KeyOf returns the key of a run of an agent with this setting. input is nil if it is in a blob.
// evaluate is the result of an Evaluator for the input. If it returns an error, the run has no key
// and fails with runerror.KeyUnavailable.
func (c Concurrency) KeyOf(input []byte, evaluate func(expression string) (string, error)) (ConcurrencyKey, error) {
	if c.Expression == "" {
		return ConcurrencyKey{}, nil
	}
	key, err := "", errInputTooLarge
	if input != nil {
		key, err = evaluate(c.Expression)
	}
	if err == nil && (strings.ContainsRune(key, 0) || !utf8.ValidString(key)) {
		err = errors.New("the key is not valid text")
	}
	if err == nil && len(key) > MaxConcurrencyKey {
		err = fmt.Errorf("the key has %d bytes; the limit is %d", len(key), MaxConcurrencyKey)
	}
	if err != nil {
		return ConcurrencyKey{}, errors.New(Cut(fmt.Sprintf("concurrency.key %q: %v", c.Expression, err), MaxError))
	}
	return ConcurrencyKey{Text: key, Drop: c.Drop}, nil
}

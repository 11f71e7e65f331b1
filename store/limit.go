// SPDX-License-Identifier: Apache-2.0

package store

import "fmt"

// LimitReachedError says that a project has as many environments as it may have.
type LimitReachedError struct {
	// Limit is how many it may have.
	Limit int
	// Stored: the environment is in effect, as it was before the limit was lowered.
	Stored bool
}

// Error names the limit.
func (e *LimitReachedError) Error() string {
	return fmt.Sprintf("the project's limit of %d environments is reached", e.Limit)
}

// MaxLinks is how many links a connector has at most, which is how many runs one
// event starts.
const MaxLinks = 100

// TooManyLinksError says that a connector has MaxLinks others.
type TooManyLinksError struct{}

// Error names the limit.
func (*TooManyLinksError) Error() string {
	return fmt.Sprintf("the connector has %d links already", MaxLinks)
}

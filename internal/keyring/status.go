// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"encoding/json"
	"fmt"
	"time"
)

// StatusAnnotation of the Secret holds what the manager knows of the keys, a
// list of KeyStatus as JSON.
const StatusAnnotation = "agentplatform.dev/key-status"

// States of keys.
const (
	// StateNew is a key that not all live processes have reported.
	StateNew = "new"
	// StateCurrent is the key of its ring that serves what is new.
	StateCurrent = "current"
	// StateFormer is a key that was current, and is needed for what it made.
	StateFormer = "former"
	// StateRevoked is a key that goes once nothing needs it.
	StateRevoked = "revoked"
)

// KeyStatus is what the manager says of a key.
type KeyStatus struct {
	ID    string `json:"id"`
	State string `json:"state"`
	// Lacking are the live processes that have not reported a new key.
	Lacking []string `json:"lacking,omitempty"`
	// Needed is how many connectors still need a revoked key.
	Needed int64 `json:"needed,omitempty"`
	// EndsAt is when the secrets that derive from a revoked key end.
	EndsAt *time.Time `json:"endsAt,omitempty"`
}

// ParseStatus reads the annotation; an absent one is an empty list.
func ParseStatus(annotation string) ([]KeyStatus, error) {
	if annotation == "" {
		return nil, nil
	}
	var out []KeyStatus
	if err := json.Unmarshal([]byte(annotation), &out); err != nil {
		return nil, fmt.Errorf("reading the annotation %s: %w", StatusAnnotation, err)
	}
	return out, nil
}

// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"encoding/json"
	"fmt"
	"time"
)

// StatusAnnotation is the annotation of the Secret with the manager's status of the keys, a list of
// KeyStatus as JSON.
const StatusAnnotation = "agentplatform.dev/key-status"

// States of keys.
const (
	// StateNew is a key that not all live processes have reported.
	StateNew = "new"
	// StateCurrent is the key of its ring for new values.
	StateCurrent = "current"
	// StateFormer is a key that was current and is still needed for its values.
	StateFormer = "former"
	// StateRevoked is a key that is removed when nothing needs it.
	StateRevoked = "revoked"
)

// KeyStatus is the manager's status of a key.
type KeyStatus struct {
	ID    string `json:"id"`
	State string `json:"state"`
	// Lacking are the live processes that have not reported a new key.
	Lacking []string `json:"lacking,omitempty"`
	// Needed is the number of connectors that still need a revoked key.
	Needed int64 `json:"needed,omitempty"`
	// EndsAt is when the secrets of a revoked key expire.
	EndsAt *time.Time `json:"endsAt,omitempty"`
}

// ParseStatus reads the annotation. An absent one is an empty list.
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

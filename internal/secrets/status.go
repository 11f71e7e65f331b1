// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"encoding/json"
	"fmt"
	"time"
)

// KeyStatusAnnotation is the annotation of the Secret with the manager's status of the keys, a list of
// KeyStatus as JSON.
const KeyStatusAnnotation = "agentplatform.dev/key-status"

// States of keys.
const (
	// KeyNew is a key that not all live processes have reported.
	KeyNew = "new"
	// KeyCurrent is the key of its ring for new values.
	KeyCurrent = "current"
	// KeyFormer is a key that was current and is still needed for its values.
	KeyFormer = "former"
	// KeyRevoked is a key that is removed when nothing needs it.
	KeyRevoked = "revoked"
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

// ParseKeyStatus reads the annotation. An absent one is an empty list.
func ParseKeyStatus(annotation string) ([]KeyStatus, error) {
	if annotation == "" {
		return nil, nil
	}
	var out []KeyStatus
	if err := json.Unmarshal([]byte(annotation), &out); err != nil {
		return nil, fmt.Errorf("reading the annotation %s: %w", KeyStatusAnnotation, err)
	}
	return out, nil
}

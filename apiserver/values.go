// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
)

// masked stands for every credential.
const masked = "********"

// Null is an object or null.
type Null[T any] struct{ Value *T }

// MarshalJSON is the object or null.
func (n Null[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.Value) }

// UnmarshalJSON reads an object or null.
func (n *Null[T]) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &n.Value) }

// Schema says so to OpenAPI.
func (Null[T]) Schema(r huma.Registry) *huma.Schema {
	t := reflect.TypeFor[T]()
	return &huma.Schema{OneOf: []*huma.Schema{r.Schema(t, true, t.Name()), {Type: "null"}}}
}

// opt is nil for "".
func opt[T ~string](s T) *string {
	if s == "" {
		return nil
	}
	text := string(s)
	return &text
}

// optTime is the time in UTC, or nil.
func optTime(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}

// optID is the id's text, or nil.
func optID(id *uuid.UUID) *string {
	if id == nil {
		return nil
	}
	return opt(id.String())
}

// elapsed is the time between both in milliseconds; nil until both are known.
func elapsed(from, to *time.Time) *int64 {
	if from == nil || to == nil {
		return nil
	}
	ms := to.Sub(*from).Milliseconds()
	return &ms
}

// texts are the texts of ids; never nil.
func texts(ids []uuid.UUID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

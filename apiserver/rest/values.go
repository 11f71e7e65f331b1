// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Masked replaces every credential in responses.
const Masked = "********"

// Null is a value or null.
type Null[T any] struct{ Value *T }

// MarshalJSON writes the value or null.
func (n Null[T]) MarshalJSON() ([]byte, error) { return json.Marshal(n.Value) }

// UnmarshalJSON reads a value or null.
func (n *Null[T]) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &n.Value) }

func (Null[T]) Schema(r huma.Registry) *huma.Schema {
	t := reflect.TypeFor[T]()
	s := *r.Schema(t, true, t.Name())
	if s.Ref != "" {
		return &huma.Schema{OneOf: []*huma.Schema{&s, {Type: "null"}}}
	}
	s.Nullable = true
	return &s
}

// OptionalWord is an enum value or null.
func OptionalWord[T ~string, S ~string](s S) Null[T] {
	if s == "" {
		return Null[T]{}
	}
	value := T(s)
	return Null[T]{Value: &value}
}

// Quantity is the quantity of a compute resource.
type Quantity string

func (Quantity) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Pattern: v1alpha1.QuantityPattern, PatternDescription: "a quantity such as 500m, 2 or 1Gi", Examples: []any{"1Gi"}}
}

// Change is a new value, or null to unset the value. If the field is left out, nothing changes.
type Change[T any] struct {
	Given bool
	To    Null[T]
}

// UnmarshalJSON reads a value or null.
func (c *Change[T]) UnmarshalJSON(data []byte) error {
	c.Given = true
	return c.To.UnmarshalJSON(data)
}

func (Change[T]) Schema(r huma.Registry) *huma.Schema {
	t := reflect.TypeFor[T]()
	s := *r.Schema(t, false, t.Name()) // huma explains errors of this form, but not errors of alternatives
	s.Nullable = true
	if t.Kind() == reflect.Struct {
		s.Extensions = map[string]any{namedAs: r.Schema(t, true, t.Name()).Ref}
	}
	return &s
}

// ApplyTo sets the value if the field was given; null sets the zero value.
func (c Change[T]) ApplyTo(set func(T)) {
	var to T
	if c.To.Value != nil {
		to = *c.To.Value
	}
	if c.Given {
		set(to)
	}
}

// Object is a stored JSON object or null.
type Object json.RawMessage

// MarshalJSON writes the object or null.
func (o Object) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("null"), nil
	}
	return o, nil
}

// UnmarshalJSON keeps the text of the object; null becomes nil.
func (o *Object) UnmarshalJSON(data []byte) error {
	if *o = nil; string(data) == "null" {
		return nil
	}
	return (*json.RawMessage)(o).UnmarshalJSON(data)
}

func (Object) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true, Nullable: true}
}

// Optional returns nil for "".
func Optional[T ~string](s T) *string {
	if s == "" {
		return nil
	}
	text := string(s)
	return &text
}

// OptionalTime returns the time in UTC, or nil.
func OptionalTime(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	utc := t.UTC()
	return &utc
}

// OptionalID returns the text of an ID, or nil.
func OptionalID(id *uuid.UUID) *string {
	if id == nil {
		return nil
	}
	return Optional(id.String())
}

// ElapsedMS returns the time between two times in milliseconds, or nil if one of them is unknown.
func ElapsedMS(from, to *time.Time) *int64 {
	if from == nil || to == nil {
		return nil
	}
	ms := to.Sub(*from).Milliseconds()
	return &ms
}

// IDTexts returns the texts of IDs, never nil.
func IDTexts(ids []uuid.UUID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// SchemaPrefix is the path of schemas in the description.
const SchemaPrefix = "#/components/schemas/"

// Enumeration returns a reference to the component of that name, and creates the component.
func Enumeration(r huma.Registry, name, doc string, values ...string) *huma.Schema {
	if _, there := r.Map()[name]; !there {
		s := &huma.Schema{Type: huma.TypeString, Description: doc}
		for _, v := range values {
			s.Enum = append(s.Enum, v)
		}
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: SchemaPrefix + name}
}

// StatusFilter is the query parameter status_filter of lists, for statuses of one type.
type StatusFilter[S ~string] struct {
	Statuses []S `query:"status_filter,explode" maxItems:"6" doc:"Only items with this status. Repeat the parameter for several statuses."`
}

// StatusesOf returns the statuses of a filter in the type of the store. It returns none if every status matches.
func StatusesOf[T, S ~string](in StatusFilter[S]) (statuses []T) {
	for _, status := range in.Statuses {
		statuses = append(statuses, T(status))
	}
	return statuses
}

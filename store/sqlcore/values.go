// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Text makes a string storable: NUL and invalid UTF-8 become U+FFFD.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// JSON is the argument for a nullable JSON column: NULL for nothing.
func JSON(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return Text(string(raw))
}

// Instant is the argument for a column of time.
func Instant(t time.Time) int64 { return t.UnixMicro() }

// MaybeInstant is the argument for a column of time that may be NULL.
func MaybeInstant(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// instant is a column of time; at reads one that may not be NULL, maybeAt one
// that may.
type instant struct {
	value   *time.Time
	pointer **time.Time
}

func at(t *time.Time) *instant       { return &instant{value: t} }
func maybeAt(t **time.Time) *instant { return &instant{pointer: t} }

// Scan takes microseconds.
func (i *instant) Scan(src any) error {
	if src == nil && i.pointer != nil {
		*i.pointer = nil
		return nil
	}
	us, ok := src.(int64)
	if !ok {
		return fmt.Errorf("scanning a time from %T", src)
	}
	t := time.UnixMicro(us).UTC()
	if i.pointer != nil {
		*i.pointer = &t
	} else {
		*i.value = t
	}
	return nil
}

// document is a column of JSON that is decoded at once; NULL leaves the value.
type document struct{ into any }

// errUnreadable is of what a row has that nobody can read.
var errUnreadable = errors.New("unreadable")

// Scan takes text.
func (d document) Scan(src any) (err error) {
	switch v := src.(type) {
	case nil:
	case string:
		err = json.Unmarshal([]byte(v), d.into)
	case []byte:
		err = json.Unmarshal(v, d.into)
	default:
		return fmt.Errorf("scanning JSON from %T", src)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return nil
}

// marshalled is a value that cannot fail to marshal, as text.
func marshalled(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("marshalling %T: %w", v, err)
	}
	return Text(string(raw)), nil
}

// idList is a column of ids: an array of the engine, or the JSON of one.
type idList struct{ into *[]uuid.UUID }

// idText is how many characters an id has as text.
const idText = 36

// Scan takes text: whatever brackets, quotes and commas stand around the ids.
func (l idList) Scan(src any) error {
	text, ok := src.(string)
	if raw, isBytes := src.([]byte); isBytes {
		text, ok = string(raw), true
	}
	if !ok {
		return fmt.Errorf("scanning ids from %T", src)
	}
	var ids []uuid.UUID
	for field := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(`{}[]", `, r) }) {
		if len(field) != idText {
			return fmt.Errorf("scanning ids: %q is none", field)
		}
		id, err := uuid.Parse(field)
		if err != nil {
			return fmt.Errorf("scanning ids: %w", err)
		}
		ids = append(ids, id)
	}
	*l.into = ids
	return nil
}

// span is a column of microseconds.
type span struct{ into *time.Duration }

func durationOf(d *time.Duration) span { return span{d} }

// Scan takes microseconds.
func (s span) Scan(src any) error {
	us, ok := src.(int64)
	if !ok {
		return fmt.Errorf("scanning a duration from %T", src)
	}
	*s.into = time.Duration(us) * time.Microsecond
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/store"
)

// Text makes a string storable: NUL and invalid UTF-8 become U+FFFD.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// JSON returns the argument for a nullable JSON column: NULL if it is empty.
func JSON(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	return Text(string(raw))
}

// Instant returns the argument for a time column.
func Instant(t time.Time) int64 { return t.UnixMicro() }

// MaybeInstant returns the argument for a nullable time column.
func MaybeInstant(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	us := t.UnixMicro()
	return &us
}

// instant is a time column, required or nullable.
type instant struct {
	value   *time.Time
	pointer **time.Time
}

// ScanTime scans a time column.
func ScanTime(t *time.Time) sql.Scanner { return &instant{value: t} }

// ScanNullTime scans a nullable time column.
func ScanNullTime(t **time.Time) sql.Scanner { return &instant{pointer: t} }

// Scan reads microseconds.
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

type document struct{ into any }

// ScanJSON decodes a JSON column; NULL leaves the value.
func ScanJSON(into any) sql.Scanner { return document{into} }

type rawText struct{ into *json.RawMessage }

// ScanJSONText scans a text column with JSON; "" is nil.
func ScanJSONText(into *json.RawMessage) sql.Scanner { return rawText{into} }

// Scan reads text.
func (r rawText) Scan(src any) error {
	switch v := src.(type) {
	case string:
		*r.into = json.RawMessage(v)
	case []byte:
		*r.into = slices.Clone(json.RawMessage(v))
	default:
		return fmt.Errorf("scanning JSON from %T", src)
	}
	if len(*r.into) == 0 {
		*r.into = nil
	}
	return nil
}

// ErrUnreadable means that a row has an invalid value.
var ErrUnreadable = errors.New("unreadable")

// Scan reads text.
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
		return fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return nil
}

// MarshalText returns the JSON text of a value that always marshals.
func MarshalText(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("marshalling %T: %w", v, err)
	}
	return Text(string(raw)), nil
}

type idList struct{ into *[]uuid.UUID }

// ScanIDs scans a column of IDs: an array of the engine, or a JSON array.
func ScanIDs(into *[]uuid.UUID) sql.Scanner { return idList{into} }

// IDLength is the length of an ID as text.
const IDLength = 36

// Scan reads text, with any brackets, quotes and commas around the IDs.
func (l idList) Scan(src any) error {
	text, ok := src.(string)
	if raw, isBytes := src.([]byte); isBytes {
		text, ok = string(raw), true
	}
	if !ok {
		return fmt.Errorf("scanning IDs from %T", src)
	}
	var ids []uuid.UUID
	for field := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune(`{}[]", `, r) }) {
		if len(field) != IDLength {
			return fmt.Errorf("scanning IDs: %q is not an ID", field)
		}
		id, err := uuid.Parse(field)
		if err != nil {
			return fmt.Errorf("scanning IDs: %w", err)
		}
		ids = append(ids, id)
	}
	*l.into = ids
	return nil
}

type span struct{ into *time.Duration }

// ScanDuration scans a duration column in microseconds.
func ScanDuration(d *time.Duration) sql.Scanner { return span{d} }

// Scan reads microseconds.
func (s span) Scan(src any) error {
	us, ok := src.(int64)
	if !ok {
		return fmt.Errorf("scanning a duration from %T", src)
	}
	*s.into = time.Duration(us) * time.Microsecond
	return nil
}

// TruncateText makes a text storable and at most limit bytes long.
func TruncateText(s string, limit int) string {
	return excerpt.Of(Text(s), limit, "")
}

// IDsText is a column of IDs in a form that both engines accept.
func IDsText(keys []store.Key) string {
	ids := make([]string, len(keys))
	for i, key := range keys {
		ids[i] = key.ID.String()
	}
	return "{" + strings.Join(ids, ",") + "}"
}

// StorableJSON returns a document without text that PostgreSQL rejects, nil without one.
func StorableJSON(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return nil
	}
	return json.RawMessage(Text(string(raw)))
}

// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/base64"

	"github.com/google/uuid"
)

// Lists with cursors. The first byte of a cursor names its list, so that another list rejects it.
const (
	RunCursor   = 'r'
	AuditCursor = 'a'
)

// PageQuery selects a page of a list that is ordered by ID, newest first.
type PageQuery struct {
	Limit  int    `query:"limit" default:"25" minimum:"1" maximum:"100" doc:"Maximum number of items on a page."`
	Cursor string `query:"cursor" doc:"The next_cursor of the previous page."`
}

// ReadLimit returns how many items to read: one more than fits on the page, so that the last page has no cursor.
func (q PageQuery) ReadLimit() int { return q.Limit + 1 }

// Before returns the last ID of the previous page, or nil for the first page. It returns 422 for a cursor of another list.
func (q PageQuery) Before(list byte) (*uuid.UUID, error) {
	if q.Cursor == "" {
		return nil, nil //nolint:nilnil // the first page
	}
	return readCursor(list, q.Cursor)
}

// NewCursor returns the cursor of the items of a list after an ID.
func NewCursor(list byte, id uuid.UUID) *string {
	text := base64.RawURLEncoding.EncodeToString(append([]byte{list}, id[:]...))
	return &text
}

func readCursor(list byte, text string) (*uuid.UUID, error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(data) != 1+len(uuid.UUID{}) || data[0] != list {
		return nil, InvalidField("query.cursor", "is not a cursor of this list: send next_cursor of the previous page unchanged")
	}
	id := uuid.UUID(data[1:])
	return &id, nil
}

// CutPage returns the items of the page out of at most ReadLimit read items, and the cursor of the next page. last is the ID at
// which the store stopped reading before the end of the list, or nil. New items do not shift the following pages.
func CutPage[T any](q PageQuery, list byte, items []T, last *uuid.UUID, id func(T) uuid.UUID) (page []T, cursor *string) {
	if len(items) > q.Limit {
		items = items[:q.Limit]
		end := id(items[q.Limit-1])
		last = &end
	}
	if last == nil {
		return items, nil
	}
	return items, NewCursor(list, *last)
}

// ShowAll returns the REST shapes of items. It never returns nil, because lists are never null.
func ShowAll[T, U any](items []T, show func(T) U) []U {
	out := make([]U, 0, len(items))
	for _, item := range items {
		out = append(out, show(item))
	}
	return out
}

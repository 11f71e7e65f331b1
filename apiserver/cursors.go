// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/base64"

	"github.com/google/uuid"
)

// The first byte of a cursor says which list it is of, so that none of another list
// is taken for one.
const (
	runCursor   = 'r'
	auditCursor = 'a'
)

// cursorAfter stands for the place behind an item in a list that is ordered by id.
// What comes in front of it later moves nothing: a page neither repeats nor misses.
func cursorAfter(of byte, id uuid.UUID) *string {
	text := base64.RawURLEncoding.EncodeToString(append([]byte{of}, id[:]...))
	return &text
}

// readCursor answers 422 for what is not a cursor of that list.
func readCursor(of byte, text string) (*uuid.UUID, error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(data) != 1+len(uuid.UUID{}) || data[0] != of {
		return nil, wrong("query.cursor", "is not a cursor of this list: send the next_cursor of the page before as it is")
	}
	id := uuid.UUID(data[1:])
	return &id, nil
}

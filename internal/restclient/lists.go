// SPDX-License-Identifier: Apache-2.0

package restclient

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
)

// MaxPage is how many elements a page of a list has at most.
const MaxPage = 100

// Runs lists the runs that match params, at most limit of them, newest first. It reads the pages as they are needed.
func (a *API) Runs(ctx context.Context, params ListRunsParams, limit int) iter.Seq2[Document[Run], error] {
	return func(yield func(Document[Run], error) bool) {
		for left := limit; left > 0; {
			params.Limit = new(int64(min(left, MaxPage)))
			page, err := a.ListRuns(ctx, &params)
			if err != nil {
				yield(Document[Run]{}, err)
				return
			}
			items, err := PageItems[Run](page.Text)
			if err != nil {
				yield(Document[Run]{}, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			cursor := ValueOf(page.Value.NextCursor)
			if left -= len(items); cursor == "" {
				return
			}
			params.Cursor = &cursor
		}
	}
}

// PageItems returns the items of a page, each with its own text.
func PageItems[E any](text json.RawMessage) ([]Document[E], error) {
	var page struct {
		Items []Document[E] `json:"items"`
	}
	if err := json.Unmarshal(text, &page); err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	return page.Items, nil
}

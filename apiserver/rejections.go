// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"time"
)

// Rejection is a request that a connector refused.
type Rejection struct {
	At            time.Time `json:"at" doc:"When it was refused."`
	Code          string    `json:"code" doc:"The code of the answer." example:"invalid_secret"`
	Detail        string    `json:"detail" doc:"What the caller was told; cut to 256 bytes, as the texts below are."`
	Method        string    `json:"method" doc:"The HTTP method." example:"POST"`
	ContentType   *string   `json:"content_type" doc:"The header Content-Type; null without it."`
	Size          *int64    `json:"size" doc:"How many bytes the request said its body has; null where it did not."`
	RemoteAddress *string   `json:"remote_address" doc:"Where the request came from; null where the gateway does not know."`
	UserAgent     *string   `json:"user_agent" doc:"The header User-Agent; null without it."`
}

// RejectionReport is what a connector refused.
type RejectionReport struct {
	Items  []Rejection      `json:"items" maxItems:"20" doc:"The newest requests that were refused, newest first."`
	Total  int64            `json:"total" doc:"How many were refused since then."`
	Counts map[string]int64 `json:"counts" doc:"How many were refused since then, by the code of the answer."`
	Since  time.Time        `json:"since" doc:"The beginning of the first of the seven days, in UTC, that are counted."`
}

// listRejections tells what a connector refused: the answer to an event that started nothing.
func (s *Server) listRejections(ctx context.Context, c *caller, in *ConnectorPath) (answer[RejectionReport], error) {
	conn, err := s.connector(ctx, c, in.ConnectorID)
	if err != nil {
		return answer[RejectionReport]{}, err
	}
	known, err := s.store.Rejections(ctx, c.keyOf(conn))
	if err != nil {
		return answer[RejectionReport]{}, fmt.Errorf("reading what connector %q refused: %w", conn.Name, err)
	}
	out := RejectionReport{Items: []Rejection{}, Counts: known.Counts, Since: known.Since.UTC()}
	for _, n := range known.Counts {
		out.Total += n
	}
	for _, r := range known.Samples {
		shown := Rejection{
			At: r.At.UTC(), Code: r.Code, Detail: r.Detail, Method: r.Method, ContentType: opt(r.ContentType),
			RemoteAddress: opt(r.RemoteAddr), UserAgent: opt(r.UserAgent),
		}
		if r.Size >= 0 {
			shown.Size = &r.Size
		}
		out.Items = append(out.Items, shown)
	}
	return plainly(out, nil)
}

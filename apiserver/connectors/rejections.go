// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"context"
	"fmt"
	"time"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// Rejections serves the requests that connectors rejected.
type Rejections struct {
	Service *rest.Service
	Store   RejectionStore
}

// RejectionStore has the methods of the store that rejections use.
type RejectionStore interface {
	// Rejections is a method of store.Rejections.
	Rejections(ctx context.Context, connector store.Key) (store.RejectionReport, error)
}

// RejectionSection has the endpoint of rejected requests; Rejections serves it.
var RejectionSection = rest.Section[*Rejections]{
	Name: "connectors",
	Endpoints: []rest.EndpointOf[*Rejections]{
		listRejections,
	},
}

// Rejection is a request that a connector rejected.
type Rejection struct {
	At            time.Time `json:"at" doc:"When the request was rejected."`
	Code          string    `json:"code" doc:"The code of the response." example:"invalid_secret"`
	Detail        string    `json:"detail" doc:"The detail of the response. This text and the texts below are cut to 256 bytes."`
	Method        string    `json:"method" doc:"The HTTP method." example:"POST"`
	ContentType   *string   `json:"content_type" doc:"The Content-Type header; null if there was none."`
	Size          *int64    `json:"size" doc:"The announced size of the body in bytes; null if there was none."`
	RemoteAddress *string   `json:"remote_address" doc:"The source address of the request; null if the gateway does not know it."`
	UserAgent     *string   `json:"user_agent" doc:"The User-Agent header; null if there was none."`
}

func (Rejection) Doc() string { return "A request that a connector rejected." }

// RejectionReport has the requests that a connector rejected.
type RejectionReport struct {
	Items  []Rejection      `json:"items" maxItems:"20" doc:"The newest rejected requests, newest first."`
	Total  int64            `json:"total" doc:"Number of requests rejected since since."`
	Counts map[string]int64 `json:"counts" doc:"Number of requests rejected since since, by the code of the response."`
	Since  time.Time        `json:"since" doc:"The start of the seven days that are counted, in UTC."`
}

func (RejectionReport) Doc() string { return "The requests that a connector rejected." }

var listRejections = rest.Handle((*Rejections).listRejections, rest.Endpoint{
	Method: rest.Get, Path: "/connectors/{connector_id}/rejections", ID: "listRejections",
	Permissions: rest.Requires("connectors.view"), Errors: rest.ReadErrors,
	Summary: "List the requests that a connector rejected",
	Doc: "Returns the newest twenty requests to the webhook URL that were rejected and started no run. It also counts the " +
		"rejected requests of the last seven days by response code. The counts are never too high. They can be too low if a " +
		"gateway could not record a rejection. Bodies, queries and secrets are not stored.",
	Example: rest.Example{Path: "/connectors/{connector}/rejections"},
})

// listRejections returns the requests that a connector rejected. Such a request started no run.
func (s *Rejections) listRejections(ctx context.Context, c *rest.Caller, in *rest.ConnectorPath) (rest.Response[RejectionReport], error) {
	conn, err := s.Service.Connector(ctx, c, in.ConnectorID)
	if err != nil {
		return rest.Response[RejectionReport]{}, err
	}
	known, err := s.Store.Rejections(ctx, c.ObjectKey(conn))
	if err != nil {
		return rest.Response[RejectionReport]{}, fmt.Errorf("reading what connector %q refused: %w", conn.Name, err)
	}
	out := RejectionReport{Items: []Rejection{}, Counts: known.Counts, Since: known.Since.UTC()}
	for _, n := range known.Counts {
		out.Total += n
	}
	for _, r := range known.Samples {
		shown := Rejection{
			At: r.At.UTC(), Code: r.Code, Detail: r.Detail, Method: r.Method, ContentType: rest.Optional(r.ContentType),
			RemoteAddress: rest.Optional(r.RemoteAddr), UserAgent: rest.Optional(r.UserAgent),
		}
		if r.Size >= 0 {
			shown.Size = &r.Size
		}
		out.Items = append(out.Items, shown)
	}
	return rest.NewResponse(out, nil)
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// Bounds of what is kept of requests that connectors refused.
const (
	// MaxRejectionSamples is of how many of a connector's newest refused requests more is kept than
	// that they came.
	MaxRejectionSamples = 20
	// MaxRejectionText is the most bytes of each text of such a sample; longer ones are cut.
	MaxRejectionText = 256
	// MaxRejectionCodes is how many different codes of a connector are told apart on one day.
	MaxRejectionCodes = 64
	// MaxRejected is of how many connectors one call records.
	MaxRejected = 64
	// RejectionDays is for how many days, in UTC and with the present one, they are counted.
	// What is older is forgotten.
	RejectionDays = 7
	// RejectionNewsInterval is the least time between two news of one connector and code.
	RejectionNewsInterval = time.Hour
)

// RejectionSample is a request that a connector refused. It holds nothing of the body and the
// query, and no header but these.
type RejectionSample struct {
	// At is set by the store: when it was refused, by the database's clock.
	At time.Time `json:"at"`
	// Ago is how long before the call that records it that was.
	Ago time.Duration `json:"-"`
	// Code and Detail are those of the answer.
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Method string `json:"method"`
	// ContentType and UserAgent are headers, "" without.
	ContentType string `json:"content_type"`
	UserAgent   string `json:"user_agent"`
	// Size is how many bytes the request said it has, -1 where it did not.
	Size int64 `json:"size"`
	// RemoteAddr is the address that it came from, without a port; "" when unknown.
	RemoteAddr string `json:"remote_addr"`
}

// Rejected is what a connector refused since that was recorded last.
type Rejected struct {
	Connector Key
	// Counts are the numbers of refused requests by their codes.
	Counts map[string]int64
	// Samples are the newest of them, newest first.
	Samples []RejectionSample
}

// RejectionReport is what is known of the requests that a connector refused.
type RejectionReport struct {
	// Since is the beginning of the first day that counts.
	Since time.Time
	// Counts are the numbers since then by code; Samples the newest, newest first.
	Counts  map[string]int64
	Samples []RejectionSample
}

// RejectionNews says that a connector refused requests of which nobody was told.
type RejectionNews struct {
	Connector Key
	// Ref is the connector's object.
	Ref ObjectRef
	// Counts are the numbers by code.
	Counts map[string]int64
}

// Rejections are counts and samples of the requests that connectors refused. A connector has one
// row of bounded size, which goes with it.
type Rejections interface {
	// RecordRejections adds to what is known of at most MaxRejected connectors. What there is
	// no connector for is left out.
	RecordRejections(ctx context.Context, rejected []Rejected) error
	// Rejections reads what is known of a connector; all of it is empty where nothing is.
	Rejections(ctx context.Context, connector Key) (RejectionReport, error)
}

// RejectionTeller tells what connectors refused.
type RejectionTeller interface {
	// TakeRejectionNews returns news of up to limit connectors, each number once. Of a
	// connector and code there are none within RejectionNewsInterval of the last.
	TakeRejectionNews(ctx context.Context, limit int) ([]RejectionNews, error)
}

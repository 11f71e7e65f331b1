// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"time"
)

// Limits of the record of rejected requests.
const (
	// MaxRejectionSamples is the number of the newest rejected requests per connector that are
	// stored in detail.
	MaxRejectionSamples = 20
	// MaxRejectionText is the maximum size of each text of a sample in bytes. Longer texts are cut.
	MaxRejectionText = 256
	// MaxRejectionCodes is the maximum number of different codes per connector and day.
	MaxRejectionCodes = 64
	// MaxRejected is the maximum number of connectors per call.
	MaxRejected = 64
	// RejectionDays is the number of UTC days, including today, that are counted. Older counts are
	// deleted.
	RejectionDays = 7
	// RejectionNewsInterval is the minimum interval between two notices about the same connector
	// and code.
	RejectionNewsInterval = time.Hour
)

// RejectionSample is a request that a connector rejected. It contains nothing of the body or the
// query, and no headers except these.
type RejectionSample struct {
	// At is the time of the rejection by the database's clock. The store sets it.
	At time.Time `json:"at"`
	// Ago is the time between the rejection and the call that records it.
	Ago time.Duration `json:"-"`
	// Code and Detail are those in the response.
	Code   string `json:"code"`
	Detail string `json:"detail"`
	Method string `json:"method"`
	// ContentType and UserAgent are headers, "" if missing.
	ContentType string `json:"content_type"`
	UserAgent   string `json:"user_agent"`
	// Size is the declared size of the request in bytes, -1 if it declared none.
	Size int64 `json:"size"`
	// RemoteAddr is the client address without a port; "" if it is unknown.
	RemoteAddr string `json:"remote_addr"`
}

// Rejected has the rejected requests of a connector since the last record.
type Rejected struct {
	Connector Key
	// Counts are the numbers of rejected requests by code.
	Counts map[string]int64
	// Samples are the newest rejected requests, newest first.
	Samples []RejectionSample
}

// RejectionReport is the record of the requests that a connector rejected.
type RejectionReport struct {
	// Since is the start of the first counted day.
	Since time.Time
	// Counts are the numbers since then by code. Samples are the newest requests, newest first.
	Counts  map[string]int64
	Samples []RejectionSample
}

// RejectionNews reports rejected requests that were not reported yet.
type RejectionNews struct {
	Connector Key
	// Ref is the connector's object.
	Ref ObjectRef
	// Counts are the numbers by code.
	Counts map[string]int64
}

// Rejections stores counts and samples of rejected requests. A connector has one row of bounded
// size, which is deleted with it.
type Rejections interface {
	// RecordRejections adds to the records of at most MaxRejected connectors. Unknown connectors
	// are ignored.
	RecordRejections(ctx context.Context, rejected []Rejected) error
	// Rejections returns the record of a connector; empty if there is none.
	Rejections(ctx context.Context, connector Key) (RejectionReport, error)
}

// RejectionTeller returns unreported rejections.
type RejectionTeller interface {
	// TakeRejectionNews returns the unreported rejections of up to limit connectors and marks them
	// as reported. It returns none for a connector and code within RejectionNewsInterval of the
	// last report.
	TakeRejectionNews(ctx context.Context, limit int) ([]RejectionNews, error)
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
)

const (
	// MaxExcerpt is the maximum number of bytes stored of a receiver's response.
	MaxExcerpt = 64 << 10
	// MaxDeliveryError is the maximum size of an attempt's error in bytes.
	MaxDeliveryError = 1 << 10
	// MaxDeliveryClaim is the maximum number of deliveries per claim.
	MaxDeliveryClaim = 256
)

// LinkMode determines when a link sends the result of a run.
type LinkMode string

// Modes of links to outbound connectors.
const (
	// LinkAutomatic sends the result of each matching run when the run ends.
	LinkAutomatic LinkMode = "automatic"
	// LinkAgentTool gives the agent a tool that sends.
	LinkAgentTool LinkMode = "agent_tool"
	// LinkMiddleware lets the agent's middleware send.
	LinkMiddleware LinkMode = "middleware"
)

// OutboundPolicy is the outbound part of a link, in its REST shape.
type OutboundPolicy struct {
	Mode LinkMode `json:"mode"`
	// ActionName is the name of the tool; "" without one.
	ActionName string `json:"action_name,omitempty"`
	// SourceConnectorIDs limit an automatic link to runs that these connectors started; empty means
	// all.
	SourceConnectorIDs []uuid.UUID `json:"source_connector_ids,omitempty"`
	// Statuses are the run statuses whose results are sent; empty means completed.
	Statuses []RunStatus `json:"statuses,omitempty"`
}

// StatusDeliveryFailed among the statuses of an automatic link makes it send notices of failed
// deliveries, of every connector and agent of its environment except its own connector. It is not a
// run status.
const StatusDeliveryFailed = "delivery_failed"

// MaxTold is the maximum number of connectors in an environment that receive a notice of a failed
// delivery: the ones with the oldest links.
const MaxTold = 16

// TellsFailures reports whether the link sends notices of failed deliveries.
func (p OutboundPolicy) TellsFailures() bool {
	return p.Mode == LinkAutomatic && slices.Contains(p.Statuses, RunStatus(StatusDeliveryFailed))
}

// FailedDelivery is the body of a notice of a failed delivery.
type FailedDelivery struct {
	Type        string    `json:"type" doc:"delivery_failed." example:"delivery_failed"`
	DeliveryID  uuid.UUID `json:"delivery_id" format:"uuid" doc:"The connector run of the delivery that has failed."`
	ConnectorID uuid.UUID `json:"connector_id" format:"uuid" doc:"Its connector."`
	RunID       uuid.UUID `json:"run_id" format:"uuid" doc:"The agent run whose result or payload it was."`
	Attempts    int       `json:"attempts" doc:"How many attempts were made."`
	ErrorClass  string    `json:"error_class" doc:"What kind of failure the last one was." example:"http_status"`
	StatusCode  int       `json:"status_code" doc:"The HTTP status of its answer; 0 without one." example:"503"`
	Error       string    `json:"error" doc:"Why no more attempts are made."`
	FailedAt    time.Time `json:"failed_at" doc:"When it failed."`
	Count       int64     `json:"count" doc:"How many deliveries of the connector have failed since it was told of last, this one, the latest, among them." minimum:"1"`
}

// TellEvery is the minimum interval between notices about the same connector.
const TellEvery = time.Minute

// Sends reports whether the link sends the result of a run automatically. The run ended with status
// and was started by the connector source, if it is not nil.
func (p OutboundPolicy) Sends(status RunStatus, source *uuid.UUID) bool {
	statuses := p.Statuses
	if len(statuses) == 0 {
		statuses = []RunStatus{RunCompleted}
	}
	from := len(p.SourceConnectorIDs) == 0 || source != nil && slices.Contains(p.SourceConnectorIDs, *source)
	return p.Mode == LinkAutomatic && from && slices.Contains(statuses, status)
}

// Delivery is a result, or another payload, that is sent by an outbound connector. It is a
// connector run with the trigger outbound.
type Delivery struct {
	// ID is the ID of the connector run. All attempts share it.
	ID            uuid.UUID
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	ConnectorID   uuid.UUID
	LinkID        uuid.UUID
	// RunID is the run whose result is sent, or the run that sent the payload. It is the zero ID
	// for a DeliverTest, which has no LinkID either.
	RunID uuid.UUID
	Kind  DeliveryKind
	// Attempt is the number of the claim, from 1. It fences the records of the attempt.
	Attempt int
	// Tries is the number of earlier attempts that count.
	Tries     int
	StartedAt time.Time
	// Hops is one more than the hops of the event that started the run, or 1 if no delivery caused
	// the run.
	Hops int
	// Traceparent is the W3C traceparent of the event that started the run; "" without one.
	Traceparent string
}

// Key returns the primary key of the delivery.
func (d Delivery) Key() Key { return Key{d.ProjectID, d.ID} }

// Connector returns the key of the connector.
func (d Delivery) Connector() Key { return Key{d.ProjectID, d.ConnectorID} }

// Result returns the key of the run whose result is sent.
func (d Delivery) Result() Key { return Key{d.ProjectID, d.RunID} }

// ClaimedDelivery is a delivery whose attempt has begun, with the data to send.
type ClaimedDelivery struct {
	Delivery
	// Connector is the destination, in its current state.
	Connector Connector
	// Run is the ended run of a DeliverResult; zero if it is no longer stored. Its output is in
	// OutputBlob if that is set.
	Run        Run
	OutputBlob *uuid.UUID
	// Payload is the body of any other kind. It is in PayloadBlob if that is set. If neither is
	// set, it is no longer stored.
	Payload     []byte
	PayloadBlob *uuid.UUID
}

// DeliveryClaim is a request for due deliveries.
type DeliveryClaim struct {
	// Limit is the maximum number of deliveries.
	Limit int
	// PerConnector is the maximum number of concurrent attempts per connector, across all gateways.
	// It is 1 if the last BreakAfter attempts of the connector failed.
	PerConnector int
	// Lease is the maximum duration of the attempts. After that they are due again.
	Lease time.Duration
	// PerProject is the maximum number of concurrent attempts per project on this gateway. A
	// connector gets half of the slots that the other connectors of its project leave. So slots
	// remain for the next connector even if half a dozen are slow. UnderWay and OfConnector are the
	// current numbers.
	PerProject  int
	UnderWay    map[uuid.UUID]int
	OfConnector map[Key]int
	// Most is the maximum number of new attempts for the connectors that it names.
	Most map[Key]int
}

// Without returns the projects that the claim leaves out.
func (c DeliveryClaim) Without() (full []uuid.UUID) {
	for project, n := range c.UnderWay {
		if n >= c.PerProject {
			full = append(full, project)
		}
	}
	return full
}

// Left returns how many more attempts of a connector may begin on this gateway if its project has
// ofProject attempts in progress there.
func (c DeliveryClaim) Left(connector Key, ofProject int) int {
	own := c.OfConnector[connector]
	left := (c.PerProject-ofProject+own+1)/2 - own
	if most, named := c.Most[connector]; named {
		left = min(left, most)
	}
	return left
}

// After returns the claim after these attempts have begun.
func (c DeliveryClaim) After(begun []ClaimedDelivery) DeliveryClaim {
	if c.PerProject <= 0 {
		return c // counted in full, so it limits nothing
	}
	c.UnderWay, c.OfConnector, c.Most = copyCounts(c.UnderWay), copyCounts(c.OfConnector), copyCounts(c.Most)
	for _, d := range begun {
		connector := d.Delivery.Connector()
		c.UnderWay[connector.ProjectID]++
		c.OfConnector[connector]++
		if _, named := c.Most[connector]; named {
			c.Most[connector]--
		}
	}
	return c
}

// copyCounts returns a copy of a map that can be changed.
func copyCounts[K comparable](counts map[K]int) map[K]int {
	if counts == nil {
		return map[K]int{}
	}
	return maps.Clone(counts)
}

// Full returns the connectors of other projects than Without that the claim leaves out, because
// they have used their half or because of Most. Each has attempts in progress on this gateway.
func (c DeliveryClaim) Full() (full []Key) {
	for connector := range c.OfConnector {
		if of := c.UnderWay[connector.ProjectID]; c.PerProject > 0 && of < c.PerProject && c.Left(connector, of) <= 0 {
			full = append(full, connector)
		}
	}
	return full
}

// BreakAfter is the number of consecutive failed attempts after which the deliveries of a connector
// wait until one attempt succeeds.
const BreakAfter = 5

// BreakFor returns how long the deliveries of a connector wait after so many consecutive failures:
// from 5 s, doubled each time, up to 5 min.
func BreakFor(failures int) time.Duration {
	if failures < BreakAfter {
		return 0
	}
	return min(5*time.Second<<min(failures-BreakAfter, 6), 5*time.Minute)
}

// DeliveryOutcome is the effect of an attempt on its delivery.
type DeliveryOutcome int

// Outcomes of attempts.
const (
	// DeliveryFailed ends the delivery as failed.
	DeliveryFailed DeliveryOutcome = iota
	// DeliveryDone ends the delivery as completed.
	DeliveryDone
	// DeliveryRetry schedules the next attempt.
	DeliveryRetry
	// DeliveryGone ends the delivery as failed and pauses the connector: the destination wants no
	// more deliveries.
	DeliveryGone
	// DeliveryCancelled ends the delivery as cancelled: there is no payload, or no connector or
	// link to send it.
	DeliveryCancelled
)

// String returns the label of the outcome in metrics.
func (o DeliveryOutcome) String() string {
	return [...]string{"failed", "delivered", "retry", "gone", "cancelled"}[o]
}

// Attempt is the result of an attempt.
type Attempt struct {
	Delivery Delivery
	// Generation is the generation of the connector's object during the attempt. DeliveryGone
	// pauses only this generation.
	Generation int64
	Outcome    DeliveryOutcome
	// Free means that the platform could not make the attempt. It does not count and is not stored.
	// Until the next attempt, its Error is the error of the open connector run.
	Free bool
	// Down means that the destination did not respond or was temporarily unable to. After some of
	// these in a row, the deliveries of the connector wait.
	Down bool
	// Wait is the time until the next attempt of a DeliveryRetry.
	Wait     time.Duration
	At       time.Time
	Duration time.Duration
	// StatusCode is the status of the response; 0 without a response.
	StatusCode int
	// ErrorClass is the machine-readable kind of the error. Error is the readable message. Both are
	// "" without an error.
	ErrorClass, Error string
	// Response is the beginning of the response body. Nothing is kept if the project's storage is
	// full.
	Response string
	// Reason explains why the delivery did not end well.
	Reason string
}

// PastAttempt is a stored attempt.
type PastAttempt struct {
	Number            int
	At                time.Time
	Duration          time.Duration
	StatusCode        int
	ErrorClass, Error string
	Response          string
}

// DeliveryExpired begins the reason of deliveries that were not accepted within MaxOpen.
const DeliveryExpired = "expired"

// ErrorClassLost marks attempts without a recorded result. The process that made them may have
// ended.
const ErrorClassLost = "lost"

// SetAsideError reports rows that fail individually and are retried later. All other rows were
// processed.
type SetAsideError struct {
	// Rows identifies each row and its error.
	Rows []error
}

// shownAside is the number of rows that a SetAsideError prints.
const shownAside = 4

func (e *SetAsideError) Error() string {
	shown := errors.Join(e.Rows[:min(len(e.Rows), shownAside)]...)
	if more := len(e.Rows) - shownAside; more > 0 {
		return fmt.Sprintf("%v, and %d more", shown, more)
	}
	return shown.Error()
}

// Unwrap returns Rows.
func (e *SetAsideError) Unwrap() []error { return e.Rows }

// UnrecordedError reports the attempts that could not be recorded.
type UnrecordedError struct {
	Left []Attempt
	Err  error
}

func (e *UnrecordedError) Error() string {
	return fmt.Sprintf("%d delivery attempts were not recorded: %v", len(e.Left), e.Err)
}

// Unwrap returns Err.
func (e *UnrecordedError) Unwrap() error { return e.Err }

// Deliveries sends the results of runs to outbound connectors.
type Deliveries interface {
	// PostDeliveries creates deliveries from at most limit outbox rows of runs: one for each link
	// that sends the result. It also creates notices of failed deliveries: one for each pair of
	// failing and notified connector, at most one per TellEvery. Projects are served round robin. A
	// delivery to a disabled or paused connector is skipped, with the reason. It returns the number
	// of runs and deliveries that were processed. With a *SetAsideError, the named rows wait,
	// longer after each failure, and all others were posted. With another error the outcome is
	// unknown.
	PostDeliveries(ctx context.Context, limit int) (runs int, err error)
	// ClaimDeliveries begins the next attempt of due deliveries, with connectors round robin. It
	// ends deliveries of connectors that are missing, disabled or paused. If it returns an error,
	// the returned attempts have begun but their payload is unknown. The exception is a
	// *SetAsideError: the failing connectors or deliveries are skipped for some calls, and the rest
	// is valid.
	ClaimDeliveries(ctx context.Context, c DeliveryClaim) ([]ClaimedDelivery, error)
	// RecordAttempts stores the results of attempts. It drops results of attempts that were claimed
	// again. With an *UnrecordedError all others were recorded. With another error the outcome is
	// unknown. It may be called again with any of the attempts.
	RecordAttempts(ctx context.Context, attempts []Attempt) error
	// NextDelivery returns the time until a claim may find a delivery of the projects and
	// connectors that it does not leave out. waits is false if there are no such deliveries.
	NextDelivery(ctx context.Context, c DeliveryClaim) (in time.Duration, waits bool, err error)
	// Attempts returns the attempts of a delivery, oldest first. next is the due time of the next
	// attempt; nil if an attempt is in progress or no attempt will follow.
	Attempts(ctx context.Context, delivery Key) (past []PastAttempt, next *time.Time, err error)
	// AttemptsOf returns the attempts of many deliveries, without response bodies. It omits
	// deliveries that have neither attempts nor a next attempt.
	AttemptsOf(ctx context.Context, deliveries []Key) (map[Key]DeliveryAttempts, error)
	Destinations
	// ResumeDestination ends the pause of a connector, if it is paused.
	ResumeDestination(ctx context.Context, connector Key) error
}

// DeliveryAttempts has the attempts of a delivery, oldest first, and the due time of the next one;
// see Deliveries.Attempts.
type DeliveryAttempts struct {
	Past []PastAttempt
	Next *time.Time
}

// Destinations returns the state of destinations.
type Destinations interface {
	// DestinationsOf returns the destinations of connectors of a project that have had deliveries.
	DestinationsOf(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]Destination, error)
	// TroubledDestinations returns failing and paused destinations of connectors after a key, in
	// key order.
	TroubledDestinations(ctx context.Context, after Key, limit int) ([]TroubledDestination, error)
}

// Destination is the delivery state of a connector.
type Destination struct {
	Connector Key
	// Failures is the number of consecutive failed attempts.
	Failures int
	// Rejected is the number of deliveries that ended as failed since the last success.
	// RejectedReason is the reason of the latest.
	Rejected       int
	RejectedReason string
	// PausedGeneration is the generation of the connector's object that is paused, 0 if none is.
	// PausedReason is the reason.
	PausedGeneration int64
	PausedReason     string
}

// Paused returns why a generation of the connector's object sends nothing. ok is false if it is not
// paused.
func (d Destination) Paused(generation int64) (reason string, ok bool) {
	return d.PausedReason, d.PausedGeneration != 0 && d.PausedGeneration == generation
}

// DestinationState is the state of a destination.
type DestinationState string

// States of destinations.
const (
	// DestinationDelivering means that all deliveries are sent.
	DestinationDelivering DestinationState = "delivering"
	// DestinationFailing means that BreakAfter consecutive attempts failed. Deliveries wait until
	// one succeeds.
	DestinationFailing DestinationState = "failing"
	// DestinationRejecting means that the last delivery was rejected. New deliveries are sent.
	DestinationRejecting DestinationState = "rejecting"
	// DestinationPaused means that nothing is sent until a user resumes the connector.
	DestinationPaused DestinationState = "paused"
)

// State returns the state of deliveries for a generation of the connector's object, with the reason
// if it is known.
func (d Destination) State(generation int64) (state DestinationState, reason string) {
	if reason, paused := d.Paused(generation); paused {
		return DestinationPaused, reason
	}
	switch {
	case d.Failures >= BreakAfter:
		return DestinationFailing, ""
	case d.Rejected > 0:
		return DestinationRejecting, d.RejectedReason
	}
	return DestinationDelivering, ""
}

// TroubledDestination is a failing or paused destination, with the object of its connector.
type TroubledDestination struct {
	Destination
	Ref ObjectRef
}

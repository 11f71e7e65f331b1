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
	// MaxExcerpt is how many bytes of a destination's answer are kept of an attempt.
	MaxExcerpt = 64 << 10
	// MaxDeliveryError is how many bytes the error of an attempt has at most.
	MaxDeliveryError = 1 << 10
	// MaxDeliveryClaim is how many deliveries one claim takes at most.
	MaxDeliveryClaim = 256
)

// LinkMode says when the result of a run goes out over a link.
type LinkMode string

// Modes of links to outbound connectors.
const (
	// LinkAutomatic sends the result of each run that the link is for, once it ends.
	LinkAutomatic LinkMode = "automatic"
	// LinkAgentTool gives the agent a tool that sends.
	LinkAgentTool LinkMode = "agent_tool"
	// LinkMiddleware lets the agent's middleware send.
	LinkMiddleware LinkMode = "middleware"
)

// OutboundPolicy is what a link to an outbound connector says, in its REST shape.
type OutboundPolicy struct {
	Mode LinkMode `json:"mode"`
	// ActionName is the name of the tool; "" without one.
	ActionName string `json:"action_name,omitempty"`
	// SourceConnectorIDs narrow an automatic link to runs that these connectors
	// started; none means all.
	SourceConnectorIDs []uuid.UUID `json:"source_connector_ids,omitempty"`
	// Statuses are those of the runs whose results are sent; none means completed.
	Statuses []RunStatus `json:"statuses,omitempty"`
}

// StatusDeliveryFailed among the statuses of an automatic link lets it send word of deliveries
// that fail, of any connector and agent of its environment, but of its own connector. It is
// no status of a run.
const StatusDeliveryFailed = "delivery_failed"

// MaxTold is how many connectors of an environment are told of a delivery that fails: those
// whose links are oldest.
const MaxTold = 16

// TellsFailures says whether word of deliveries that fail goes out.
func (p OutboundPolicy) TellsFailures() bool {
	return p.Mode == LinkAutomatic && slices.Contains(p.Statuses, RunStatus(StatusDeliveryFailed))
}

// FailedDelivery is the body of what tells of a delivery that has failed.
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

// TellEvery is how often at most is told of a connector whose deliveries fail.
const TellEvery = time.Minute

// Sends says whether the result of a run goes out by itself: one that ended with a
// status, started by a connector unless that is nil.
func (p OutboundPolicy) Sends(status RunStatus, source *uuid.UUID) bool {
	statuses := p.Statuses
	if len(statuses) == 0 {
		statuses = []RunStatus{RunCompleted}
	}
	from := len(p.SourceConnectorIDs) == 0 || source != nil && slices.Contains(p.SourceConnectorIDs, *source)
	return p.Mode == LinkAutomatic && from && slices.Contains(statuses, status)
}

// Delivery is a result, or another payload, on its way to where an outbound connector sends:
// a connector run with the trigger outbound.
type Delivery struct {
	// ID is that of the connector run, the same over all attempts.
	ID            uuid.UUID
	ProjectID     uuid.UUID
	EnvironmentID uuid.UUID
	ConnectorID   uuid.UUID
	LinkID        uuid.UUID
	// RunID is the run whose result it is, or which has sent it; the zero id of a DeliverTest,
	// which has no LinkID either.
	RunID uuid.UUID
	Kind  DeliveryKind
	// Attempt is the number of the claim that began it, from 1: it fences what is recorded
	// of it.
	Attempt int
	// Tries is how many attempts before it count.
	Tries     int
	StartedAt time.Time
	// Hops is one more than that of the event which started the run, 1 of one that another
	// thing did.
	Hops int
}

// Key is the delivery's primary key.
func (d Delivery) Key() Key { return Key{d.ProjectID, d.ID} }

// Connector is the key of its connector.
func (d Delivery) Connector() Key { return Key{d.ProjectID, d.ConnectorID} }

// Result is the key of the run that it is of.
func (d Delivery) Result() Key { return Key{d.ProjectID, d.RunID} }

// ClaimedDelivery is one whose attempt has begun, with what it takes.
type ClaimedDelivery struct {
	Delivery
	// Connector is where it goes, as it is now.
	Connector Connector
	// Run, of a DeliverResult, is what has ended; the zero Run where it is not stored any
	// more. Its output is in OutputBlob where that is set.
	Run        Run
	OutputBlob *uuid.UUID
	// Payload is the body of any other; it is in PayloadBlob where that is set, and not
	// stored any more where neither is.
	Payload     []byte
	PayloadBlob *uuid.UUID
}

// DeliveryClaim asks for deliveries that are due.
type DeliveryClaim struct {
	// Limit is how many at most.
	Limit int
	// PerConnector is how many attempts of a connector may be under way, over all
	// who claim; of one whose attempts have failed BreakAfter times in a row, one.
	PerConnector int
	// Lease is how long the attempts may take: after that they are due again.
	Lease time.Duration
	// PerProject is how many attempts of a project may be under way at who claims, and a
	// connector has half of what the others of its project leave: so there is some left for the
	// next, while half a dozen are slow. UnderWay and OfConnector are how many are.
	PerProject  int
	UnderWay    map[uuid.UUID]int
	OfConnector map[Key]int
	// Most is how many attempts may begin of those connectors that it names.
	Most map[Key]int
}

// Without are the projects of which none is taken.
func (c DeliveryClaim) Without() (full []uuid.UUID) {
	for project, n := range c.UnderWay {
		if n >= c.PerProject {
			full = append(full, project)
		}
	}
	return full
}

// Left is how many more of a connector may begin at who claims, of whose project so many are
// under way there.
func (c DeliveryClaim) Left(connector Key, ofProject int) int {
	own := c.OfConnector[connector]
	left := (c.PerProject-ofProject+own+1)/2 - own
	if most, named := c.Most[connector]; named {
		left = min(left, most)
	}
	return left
}

// After is the claim once these have begun.
func (c DeliveryClaim) After(begun []ClaimedDelivery) DeliveryClaim {
	if c.PerProject <= 0 {
		return c // which bounds none of what it counts
	}
	c.UnderWay, c.OfConnector, c.Most = plus(c.UnderWay), plus(c.OfConnector), plus(c.Most)
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

// plus is a copy of a map to which can be added.
func plus[K comparable](counts map[K]int) map[K]int {
	if counts == nil {
		return map[K]int{}
	}
	return maps.Clone(counts)
}

// Full are the connectors of other projects than Without of which none is taken, for they have
// their half, or Most says so. Each has some under way at who claims.
func (c DeliveryClaim) Full() (full []Key) {
	for connector := range c.OfConnector {
		if of := c.UnderWay[connector.ProjectID]; c.PerProject > 0 && of < c.PerProject && c.Left(connector, of) <= 0 {
			full = append(full, connector)
		}
	}
	return full
}

// BreakAfter is how many attempts of a connector fail in a row until its deliveries
// wait for one that succeeds.
const BreakAfter = 5

// BreakFor is how long a connector's deliveries wait at least after so many attempts
// that failed in a row: from 5 s, twice as long each time, up to 5 min.
func BreakFor(failures int) time.Duration {
	if failures < BreakAfter {
		return 0
	}
	return min(5*time.Second<<min(failures-BreakAfter, 6), 5*time.Minute)
}

// DeliveryOutcome is what an attempt makes of its delivery.
type DeliveryOutcome int

// Outcomes of attempts.
const (
	// DeliveryFailed ends it.
	DeliveryFailed DeliveryOutcome = iota
	// DeliveryDone ends it well.
	DeliveryDone
	// DeliveryRetry lets it wait for the next attempt.
	DeliveryRetry
	// DeliveryGone ends it, and pauses the connector: the destination wants no more.
	DeliveryGone
	// DeliveryCancelled ends it: there is nothing to send, or nobody to send for.
	DeliveryCancelled
)

// String is the outcome in a word, as metrics have it.
func (o DeliveryOutcome) String() string {
	return [...]string{"failed", "delivered", "retry", "gone", "cancelled"}[o]
}

// DeliveryOutcomes are all of them.
var DeliveryOutcomes = []DeliveryOutcome{DeliveryFailed, DeliveryDone, DeliveryRetry, DeliveryGone, DeliveryCancelled}

// Attempt is what was seen of an attempt.
type Attempt struct {
	Delivery Delivery
	// Generation is that of the connector's object with which the attempt was made: a
	// DeliveryGone pauses no other.
	Generation int64
	Outcome    DeliveryOutcome
	// Free says that the platform could not make the attempt: it does not count, and is not
	// written down; until the next one its Error is that of the connector run, which is open.
	Free bool
	// Down says that the destination did not answer, or that it could not just now: after
	// some of these in a row the connector's deliveries wait.
	Down bool
	// Wait, of a retry, is until the next attempt.
	Wait     time.Duration
	At       time.Time
	Duration time.Duration
	// StatusCode is that of the answer; 0 without one.
	StatusCode int
	// ErrorClass is a word for what went wrong, Error says it to people; "" where nothing
	// did.
	ErrorClass, Error string
	// Response is the beginning of the answer's body. Of a project that has stored what it may
	// none is kept.
	Response string
	// Reason is why the delivery ended as it did, where that was not well.
	Reason string
}

// PastAttempt is an attempt as it is stored.
type PastAttempt struct {
	Number            int
	At                time.Time
	Duration          time.Duration
	StatusCode        int
	ErrorClass, Error string
	Response          string
}

// DeliveryExpired begins the reason of deliveries that were not taken within MaxOpen.
const DeliveryExpired = "expired"

// ErrorClassLost is of attempts of which nobody has said what came of them: the process
// that made them may have ended.
const ErrorClassLost = "lost"

// SetAsideError says of rows that they fail, each by itself, and wait for another turn; what was to be
// done with the others is done.
type SetAsideError struct {
	// Rows says of each which it is, and why.
	Rows []error
}

// shownAside is of how many rows a SetAsideError says all.
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

// UnrecordedError says which attempts could not be recorded.
type UnrecordedError struct {
	Left []Attempt
	Err  error
}

func (e *UnrecordedError) Error() string {
	return fmt.Sprintf("%d attempts to deliver are not recorded: %v", len(e.Left), e.Err)
}

// Unwrap returns Err.
func (e *UnrecordedError) Unwrap() error { return e.Err }

// Deliveries takes the results of runs to where outbound connectors send.
type Deliveries interface {
	// PostDeliveries makes deliveries of what at most limit runs have left to be sent, one
	// for each link that sends it, and of word of deliveries that have failed, one for each
	// connector of which and connector that is told, at most one each TellEvery. Projects take
	// turns. It returns how many runs and deliveries these were. With a *SetAsideError all were
	// posted but some, which wait for a while, the longer the more often they fail; with
	// another error it is not known which were. A delivery to a connector that is
	// disabled, or paused, is skipped, with the reason.
	PostDeliveries(ctx context.Context, limit int) (runs int, err error)
	// ClaimDeliveries begins the next attempt of deliveries that are due, of connectors
	// in turns. It ends those of connectors that are not there, disabled or paused. With
	// an error the attempts that it returns have begun, and what they would send is not
	// known, except with a *SetAsideError: then connectors or deliveries that fail are passed
	// over for some calls.
	ClaimDeliveries(ctx context.Context, c DeliveryClaim) ([]ClaimedDelivery, error)
	// RecordAttempts writes what came of attempts. What is known of one that was claimed
	// again meanwhile is dropped. With an *UnrecordedError all were recorded but some; with
	// another error none need be. It can be called again with any of them.
	RecordAttempts(ctx context.Context, attempts []Attempt) error
	// NextDelivery says how long it is until a claim may find something, of the projects and
	// connectors that it does not leave out; waits is false where nothing of these is to be delivered.
	NextDelivery(ctx context.Context, c DeliveryClaim) (in time.Duration, waits bool, err error)
	// Attempts are those of a delivery, oldest first; next is when the next one is due, nil
	// where one is under way or none will be made.
	Attempts(ctx context.Context, delivery Key) (past []PastAttempt, next *time.Time, err error)
	// AttemptsOf are those of many deliveries, without what was answered; a delivery that
	// has neither attempts nor a next one is not among them.
	AttemptsOf(ctx context.Context, deliveries []Key) (map[Key]DeliveryAttempts, error)
	Destinations
	// ResumeDestination ends the pause of a connector, if it is paused.
	ResumeDestination(ctx context.Context, connector Key) error
}

// DeliveryAttempts are the attempts of a delivery, oldest first, and when the next one is due; see
// Deliveries.Attempts.
type DeliveryAttempts struct {
	Past []PastAttempt
	Next *time.Time
}

// Destinations tells how deliveries go.
type Destinations interface {
	// DestinationsOf are how deliveries of connectors of a project go, of those that have had
	// any.
	DestinationsOf(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]Destination, error)
	// TroubledDestinations are those that fail or are paused, of connectors after a key, in
	// the order of their keys.
	TroubledDestinations(ctx context.Context, after Key, limit int) ([]TroubledDestination, error)
}

// Destination is how deliveries of a connector go.
type Destination struct {
	Connector Key
	// Failures is how many attempts have failed in a row.
	Failures int
	// Rejected is how many deliveries have ended failed since one has ended well,
	// RejectedReason why the last of them did.
	Rejected       int
	RejectedReason string
	// PausedGeneration is the generation of the connector's object that is paused, 0 of
	// none, PausedReason why.
	PausedGeneration int64
	PausedReason     string
}

// Paused says why a generation of the connector's object sends nothing; ok is false where it
// is not paused.
func (d Destination) Paused(generation int64) (reason string, ok bool) {
	return d.PausedReason, d.PausedGeneration != 0 && d.PausedGeneration == generation
}

// DestinationState says how the deliveries of a connector go.
type DestinationState string

// States of destinations.
const (
	// DestinationDelivering sends all that there is to send.
	DestinationDelivering DestinationState = "delivering"
	// DestinationFailing has failed BreakAfter attempts in a row: others wait for one that succeeds.
	DestinationFailing DestinationState = "failing"
	// DestinationRejecting did not take the delivery that ended last; those that come are sent.
	DestinationRejecting DestinationState = "rejecting"
	// DestinationPaused wants no more: nothing is sent until somebody resumes it.
	DestinationPaused DestinationState = "paused"
)

// State is how the deliveries of a generation of the connector's object go, with the reason that is known.
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

// TroubledDestination is one that fails or is paused, with its connector's object.
type TroubledDestination struct {
	Destination
	Ref ObjectRef
}

// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// Limits of a webhook request and of what is done with it.
const (
	// MaxBody is the most bytes of a whole request body: 16 MiB.
	MaxBody = 16 << 20
	// maxFilesBytes is the most bytes of a file, and of all files of a request.
	maxFilesBytes = 10 << 20
	// maxPartHeader is the most bytes of what stands before a part of a multipart body.
	maxPartHeader = 16 << 10
	// maxIncoming is how many bytes come in at once of the beginnings of bodies, of
	// which store.MaxInlineInput bytes each are held. One takes at least minIncoming
	// of them, for its connection is held too.
	maxIncoming = 32 << 20
	minIncoming = 8 << 10
	// maxLargeBodies is how many bodies of more than store.MaxInlineInput come in at
	// once. Each takes the memory of a few of the pieces that it is stored in.
	maxLargeBodies = 64
	// maxOutputs is how many bytes of outputs are in memory at once for the answers
	// to sync requests.
	maxOutputs = 32 << 20
	// spoolTimeout bounds taking a large body in and storing it: longer than one takes
	// that keeps the pace.
	spoolTimeout = 5 * time.Minute
	// maxIdempotencyKey is the most bytes of a key that a caller names.
	maxIdempotencyKey = 255
	// idempotencyTTL is how long a key is remembered; signatureTTL a signature with a time,
	// beside an id: for longer than it is accepted by any gateway's clock.
	idempotencyTTL = 24 * time.Hour
	signatureTTL   = 2*signature.Tolerance + 5*time.Minute
	// maxBatchEvents, maxBatchRuns and maxBatchBytes bound what one transaction
	// takes; its last event may go beyond the latter two.
	maxBatchEvents = 256
	maxBatchRuns   = 1024
	maxBatchBytes  = 4 << 20
	// maxWaiting and maxWaitingBytes bound what is at the committer at a time,
	// maxCallers how many sync requests wait for their answer. Of each, as of
	// bodies and outputs, a project has one part in projectShare.
	maxWaiting      = 2048
	maxWaitingBytes = 32 << 20
	maxCallers      = 4096
	projectShare    = 4
	// patience is how long a request may wait for the committer and be recorded
	// although its client has gone meanwhile.
	patience = time.Second
	// commitTimeout bounds one transaction; its outcome is unknown after that. It
	// also bounds what else is asked of the store in few words.
	commitTimeout = 10 * time.Second
	// maxSpooled is how many bodies of more than store.MaxInlineInput lie in files at once
	// whose signature is not judged yet, or that are being stored. They hold no place of
	// maxLargeBodies before it is.
	maxSpooled = 48
	// maxHandshake is the most bytes of a handshake.
	maxHandshake = 8 << 10
	// maxUnverified is how many bytes of the beginnings of bodies come in at once for the
	// connectors of one project before their signatures are judged: half of what the project
	// may have, so that nobody without a secret takes the rest. A project has no more than half
	// of what the others leave of maxAllUnverified, and a connector than half of what the others
	// of its project leave: so there are some for the next. Large bodies leave keptForSmall to
	// small ones. One of them, or of unknown length, takes largeUnverified.
	maxUnverified    = maxIncoming / projectShare / 2
	maxAllUnverified = maxIncoming / 2
	keptForSmall     = maxAllUnverified / 4
	largeUnverified  = 256 << 10
	// wrongBytes is how many bytes a second one connector reads of bodies of which the
	// signature turns out wrong, and wrongBytesBurst at a time; likewise a project, and all
	// together. Beyond it bodies are read of up to store.MaxInlineInput alone, which cost
	// no more than what there is of it. wrongAnswers is how many
	// requests a second are told that their secret or signature is wrong, and
	// wrongAnswersBurst at a time. Right ones cost nothing of either.
	wrongBytes          = 4 << 20
	wrongBytesBurst     = 2 * MaxBody
	wrongBytesOfProject = wrongBytesOfAll / projectShare
	wrongBurstOfProject = wrongBurstOfAll / projectShare
	wrongBytesOfAll     = 32 << 20
	wrongBurstOfAll     = 16 * MaxBody
	maxWrongDebt        = wrongBytesOfAll // paid in a second
	wrongAnswers        = 10
	wrongAnswersBurst   = 100
	// maxWrong is of how many connectors that is remembered.
	maxWrong = 10_000
	// maxChallenge is the most bytes of the challenge of a handshake.
	maxChallenge = 1 << 10
	// retryAfter is what callers are told when the store does not answer.
	retryAfter = 2 * time.Second
	// backlogRetry and storageRetry are likewise where runs have to end, or somebody
	// has to do something.
	backlogRetry = 10 * time.Second
	storageRetry = 5 * time.Minute
	// maxReads is how many routes of known ids are read from the store at once,
	// maxStrangerReads those of unknown ones, of which maxStrangers may be waited for.
	maxReads         = 32
	maxStrangerReads = 4
	maxStrangers     = 64
	// maxRoutes is how many routes are cached.
	maxRoutes = 50_000
	// maxIDs is how many connectors' ids are read at a time, learnAgain how long
	// after a failure they are read again.
	maxIDs     = 5000
	learnAgain = 2 * time.Second
	// changesTime is how long a route may go on changing under a request before it is
	// asked to come back: it is tried no more often than the route changes.
	changesTime = 10 * time.Second
	// lookInterval is how often the store is asked for the runs that sync webhooks
	// wait for, in case a hint was lost; maxEnded for how many at a time.
	lookInterval = 5 * time.Second
	maxEnded     = 500
	// defaultSyncTimeout is that of a sync connector that names none.
	defaultSyncTimeout = 300 * time.Second
)

// signedPace is that of bodies whose signature is judged at their end: whoever may send them
// begins at once.
var signedPace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: time.Second}

// pace is that of bodies that come in, and of answers with outputs: what they hold is
// wanted by others.
var pace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: 5 * time.Second}

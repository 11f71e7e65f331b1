// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// Limits of webhook requests.
const (
	// MaxBody is the size limit of a request body: 16 MiB.
	MaxBody = 16 << 20
	// maxFilesBytes is the size limit of a file, and of all files of a request together.
	maxFilesBytes = 10 << 20
	// maxPartHeader is the size limit of the header of a multipart part.
	maxPartHeader = 16 << 10
	// maxIncoming limits the bytes of incoming bodies in memory, up to store.MaxInlineInput of each
	// body. A body counts at least minIncoming, because its connection uses memory too.
	maxIncoming = 32 << 20
	minIncoming = 8 << 10
	// maxLargeBodies limits the incoming bodies of more than store.MaxInlineInput. Each uses the
	// memory of a few chunks.
	maxLargeBodies = 64
	// maxOutputs limits the bytes of run outputs in memory for sync responses.
	maxOutputs = 32 << 20
	// spoolTimeout limits receiving and storing a large body. A body that keeps the minimum pace
	// takes less.
	spoolTimeout = 5 * time.Minute
	// maxIdempotencyKey is the size limit of an idempotency key in bytes.
	maxIdempotencyKey = 255
	// idempotencyTTL is how long an idempotency key is stored. signatureTTL is how long a signature
	// with a time but without an ID is stored: longer than any gateway's clock accepts it.
	idempotencyTTL = 24 * time.Hour
	signatureTTL   = 2*signature.Tolerance + 5*time.Minute
	// maxBatchEvents, maxBatchRuns and maxBatchBytes limit one transaction. Its last event may
	// exceed the latter two.
	maxBatchEvents = 256
	maxBatchRuns   = 1024
	maxBatchBytes  = 4 << 20
	// maxWaiting and maxWaitingBytes limit the events at the committer, and maxCallers the waiting
	// sync callers. A project gets one of projectShare parts of each, and of bodies and outputs.
	maxWaiting      = 2048
	maxWaitingBytes = 32 << 20
	maxCallers      = 4096
	projectShare    = 4
	// maxCommitWait is how long a request may wait for the committer and still be recorded after its
	// client has disconnected.
	maxCommitWait = time.Second
	// commitTimeout limits one transaction. After a timeout its outcome is unknown. It also limits
	// short store queries.
	commitTimeout = 10 * time.Second
	// maxSpooled limits the signed bodies of more than store.MaxInlineInput in files, before their
	// signature is verified or while they are stored. They use no slot of maxLargeBodies before
	// that.
	maxSpooled = 48
	// maxHandshake is the size limit of a handshake in bytes.
	maxHandshake = 8 << 10
	// maxUnverified limits the bytes of incoming bodies per project before their signatures are
	// verified. It is half of the project's share, so that clients without a secret cannot use the
	// rest. A project gets at most half of what other projects leave of maxAllUnverified. A
	// connector gets at most half of what the project's other connectors leave. So the next project
	// and connector find free capacity. Large bodies leave keptForSmall to small ones. A body that
	// is large or of unknown length counts largeUnverified.
	maxUnverified    = maxIncoming / projectShare / 2
	maxAllUnverified = maxIncoming / 2
	reservedForSmall = maxAllUnverified / 4
	largeUnverified  = 256 << 10
	// wrongBytes limits the bytes per second of bodies with a wrong signature, per connector, and
	// wrongBytesBurst the bytes at once. The other limits are per project and for all. Beyond a
	// limit only bodies of at most store.MaxInlineInput are read, and they count at most the
	// remaining budget. wrongAnswers limits the responses per second for a wrong secret or
	// signature, and wrongAnswersBurst the responses at once. Requests with a right secret or
	// signature do not count.
	wrongBytes          = 4 << 20
	wrongBytesBurst     = 2 * MaxBody
	wrongBytesOfProject = wrongBytesOfAll / projectShare
	wrongBurstOfProject = wrongBurstOfAll / projectShare
	wrongBytesOfAll     = 32 << 20
	wrongBurstOfAll     = 16 * MaxBody
	maxWrongDebt        = wrongBytesOfAll // recovered in one second
	wrongAnswers        = 10
	wrongAnswersBurst   = 100
	// maxWrong limits the connectors with recorded wrong requests.
	maxWrong = 10_000
	// maxChallenge is the size limit of a handshake's challenge.
	maxChallenge = 1 << 10
	// retryAfter is the Retry-After while the store is unavailable.
	retryAfter = 2 * time.Second
	// backlogRetry and storageRetry are the Retry-After of full quotas. Runs must end, or a user
	// must act.
	backlogRetry = 10 * time.Second
	storageRetry = 5 * time.Minute
	// maxReads limits the concurrent route reads for known IDs, and maxStrangerReads those for
	// unknown IDs. maxStrangers limits the unknown IDs that wait for a read.
	maxReads         = 32
	maxStrangerReads = 4
	maxStrangers     = 64
	// maxRoutes limits the cached routes.
	maxRoutes = 50_000
	// maxIDs is the number of connector IDs per query. learnAgain is the pause after a failed
	// query.
	maxIDs       = 5000
	idRetryPause = 2 * time.Second
	// routeRetryTime limits the retries of a request whose route keeps changing. There is at most one
	// retry per change.
	routeRetryTime = 10 * time.Second
	// endedPollInterval is the interval for checking the runs of waiting sync webhooks, in case a hint
	// was lost. maxEnded is the number of runs per query.
	endedPollInterval = 5 * time.Second
	maxEnded          = 500
)

// signedPace is the minimum pace of bodies before their signature is verified. Real senders start
// at once.
var signedPace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: time.Second}

// pace is the minimum pace of incoming bodies and of responses with outputs, because other requests
// need their memory.
var pace = httpserver.Pace{BytesPerSecond: 64 << 10, Grace: 5 * time.Second}

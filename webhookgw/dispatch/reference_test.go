// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"testing"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
	"github.com/agentplatform/agentplatform/store"
)

// The page docs/reference/limits.md states the limits of the port for runners and builds.
func TestReference_ListsLimits(t *testing.T) {
	const full = "429 `too_many_waiting`, 503 `busy`"
	patience := refpage.Time(queueTimeout)
	refpage.CheckPart(t, "limits.md", "runners and builds", refpage.LimitTable("Resource", []refpage.Limit{
		{Resource: fmt.Sprintf("Requests of more than %s", refpage.Bytes(smallRequest)), Value: refpage.Bytes(maxInFlight), Beyond: full + ". Runners retry."},
		{
			Resource: "Calls that query the store",
			Value: fmt.Sprintf("Calls share %s of the gateway's connections for short queries. Heartbeats have %s, in their own queue. A project gets %s of each.",
				refpage.Part(totalParts/callParts), refpage.Part(totalParts/heartbeatParts), refpage.Part(callShare)),
			Beyond: fmt.Sprintf("They wait for up to %s (heartbeats %s), then 503 `busy`. With more than %d waiting calls a project gets 429 `too_many_waiting`.",
				patience, refpage.Time(heartbeatQueueTimeout), maxQueued) +
				fmt.Sprintf(" Of these, a project may have %d appends to journals; up to %d of a runner share a request, and up to %d a statement.",
					maxQueued/callShare, dispatchapi.MaxAppends, maxAppends),
		},
		{
			Resource: fmt.Sprintf("Responses to requests for runs. A response has at most %d runs, %s of inputs and %s of journals. Runners fetch the rest.",
				store.MaxClaim, refpage.Bytes(maxInline), refpage.Bytes(maxInlineJournals)),
			Value: refpage.Bytes(maxClaimBytes), Beyond: "They wait for up to " + patience + ", then " + full + ".",
		},
		{
			Resource: fmt.Sprintf("Downloads of inputs, files, journals and bundles, and uploads of bundles. A journal download counts %s, any other transfer %s.",
				refpage.Bytes(journalStream), refpage.Bytes(blobStream)),
			Value: refpage.Bytes(maxStreamBytes), Beyond: "as above",
		},
		{
			Resource: fmt.Sprintf("Uploads of files that runs save. An upload counts %s.", refpage.Bytes(saveStream)),
			Value:    refpage.Bytes(maxSaveBytes),
			Beyond: fmt.Sprintf("as above. An upload of less than %s a second, or of more than %s, gets 503 `busy`.",
				refpage.Bytes(savePace.BytesPerSecond), refpage.Time(dispatchapi.SaveTimeout)),
		},
		{
			Resource: "Files that a run saves",
			Value:    fmt.Sprintf("%s each, %s and %d files per run", refpage.Bytes(store.MaxSavedFile), refpage.Bytes(store.MaxSavedBytes), store.MaxSavedFiles),
			Beyond:   "The script gets an error.",
		},
		{
			Resource: "Time that a transfer can stand still", Value: refpage.Time(responseTimeout),
			Beyond: fmt.Sprintf("The gateway closes it. It also closes a download that takes more than %s to read from the store.", refpage.Time(streamTimeout)),
		},
		{
			Resource: "Run results that wait to be recorded",
			Value:    refpage.Bytes(maxWaitingEnds) + ". The gateway serves projects round-robin.",
			Beyond:   full + fmt.Sprintf(". If the results of a project were rejected, the gateway records this project separately for %s.", refpage.Time(separateTime)),
		},
		{
			Resource: "Tokens that the gateway has not seen recently, per address",
			Value:    fmt.Sprintf("%d a second, %d at once. The gateway remembers an unknown token for %s.", unknownPerSecond, unknownBurst, refpage.Time(absentTTL)),
			Beyond:   fmt.Sprintf("They wait for up to %s, then 503 `busy`.", refpage.Time(lookupQueueTimeout)),
		},
	}))
}

// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"fmt"
	"testing"

	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
	"github.com/agentplatform/agentplatform/store"
)

// The page docs/reference/limits.md states the limits of the webhook port.
func TestReference_ListsLimits(t *testing.T) {
	for part, limits := range map[string][]refpage.Limit{"webhooks": webhookLimits(), "signed webhooks": signedLimits(), "sync callers": callerLimits()} {
		refpage.CheckPart(t, "limits.md", part, refpage.LimitTable("Resource", limits))
	}
	refpage.CheckPart(t, "limits.md", "unverified bodies", fmt.Sprintf(`- A small body counts twice its bytes, and at least %s. A body of more than %s, or of unknown
  length, counts %s. Large bodies leave %s to small ones.
- The gateway closes a request if its body has not started within %s.
`, refpage.Bytes(2*minIncoming), refpage.Bytes(store.MaxInlineInput), refpage.Bytes(largeUnverified), refpage.Bytes(reservedForSmall),
		refpage.Time(signedPace.Grace)))
}

func webhookLimits() []refpage.Limit {
	large := refpage.Bytes(store.MaxInlineInput)
	return []refpage.Limit{
		{
			Resource: "Webhooks that wait for a commit, or are being committed",
			Value:    fmt.Sprintf("%s, with %s of bodies", refpage.Count(maxWaiting), refpage.Bytes(maxWaitingBytes)),
			Beyond: fmt.Sprintf("429 `too_many_waiting`, 503 `busy`. The gateway drops a request that waited for more than %s if its caller has disconnected.",
				refpage.Time(maxCommitWait)),
		},
		{Resource: "Body of a webhook", Value: refpage.Bytes(MaxBody), Beyond: "413 `request_too_large`"},
		{
			Resource: fmt.Sprintf("Memory of incoming bodies. A body counts its first %s, and at least %s.", large, refpage.Bytes(minIncoming)),
			Value:    refpage.Bytes(maxIncoming), Beyond: "429 `too_many_waiting`, 503 `busy`",
		},
		{
			Resource: fmt.Sprintf("Incoming bodies of more than %s. The gateway stores them while they arrive, so each uses about 1 MiB of memory.", large),
			Value:    refpage.Count(maxLargeBodies), Beyond: "429 `too_many_large_bodies`, 503 `busy`",
		},
		{Resource: "Upload rate of a body", Value: paceText(pace.BytesPerSecond) + ", after " + refpage.Time(pace.Grace), Beyond: "408 `request_timeout`"},
		{
			Resource: "Responses for a wrong secret or signature, per connector",
			Value:    fmt.Sprintf("%d a second, %d at once", wrongAnswers, wrongAnswersBurst),
			Beyond:   "429 `too_many_wrong_secrets`. Requests with the right secret are accepted.",
		},
		{
			Resource: "Lookups of unknown connector URLs", Value: refpage.Count(maxStrangers),
			Beyond: "503 `too_many_unknown_urls`. Known URLs do not wait for these lookups.",
		},
		{
			Resource: fmt.Sprintf("Rejected requests that wait to be recorded. The gateway records the requests of %d connectors every %s, round-robin over projects.",
				store.MaxRejected, refpage.Time(recordInterval)),
			Value:  fmt.Sprintf("the counts of %d connectors, and the newest %d requests of each", maxRejecting, store.MaxRejectionSamples),
			Beyond: "They are missing in `rejections` of their connector. `agentplatform_webhook_rejections_lost_total` counts them.",
		},
	}
}

func signedLimits() []refpage.Limit {
	return []refpage.Limit{
		{
			Resource: "Bodies that are not verified",
			Value: fmt.Sprintf("%s. A project gets %s and at most half of what the other projects leave. A connector gets half of what the other connectors of its project leave.",
				refpage.Bytes(maxAllUnverified), refpage.Bytes(maxUnverified)),
			Beyond: "429 `too_many_unverified`",
		},
		{
			Resource: fmt.Sprintf("Bodies of more than %s, until they are stored. Each is an unnamed file in `$TMPDIR` (`/tmp`, an `emptyDir`).", refpage.Bytes(store.MaxInlineInput)),
			Value:    fmt.Sprintf("%d, or %d per project; %s of disk", maxSpooled, maxSpooled/projectShare, refpage.Bytes(maxSpooled*MaxBody)),
			Beyond:   "429 `too_many_unverified`, 503 `busy`",
		},
		{
			Resource: "Bytes of bodies with a wrong signature, per connector", Value: wrongRate(wrongBytes, wrongBytesBurst),
			Beyond: "429 `too_many_unverified`",
		},
		{Resource: "The same, per project", Value: wrongRate(wrongBytesOfProject, wrongBurstOfProject), Beyond: "429 `too_many_unverified`"},
		{
			Resource: "The same, all projects", Value: wrongRate(wrongBytesOfAll, wrongBurstOfAll),
			Beyond: fmt.Sprintf("429 `too_many_unverified`, for projects that recently sent more than %s", refpage.Bytes(MaxBody)),
		},
	}
}

func callerLimits() []refpage.Limit {
	return []refpage.Limit{
		{
			Resource: "Callers of sync connectors that wait for a response", Value: refpage.Count(maxCallers),
			Beyond: "429 `too_many_callers`. With `Prefer: respond-async` a caller does not wait.",
		},
		{
			Resource: fmt.Sprintf("Run outputs in memory for these callers. A response with several runs holds one output at a time. An output counts %s while the gateway reads it from the store.",
				refpage.Bytes(store.MaxOutput)),
			Value:  refpage.Bytes(maxOutputs),
			Beyond: "The response waits: for its first output until the connector's timeout, for further outputs as long as the caller stays connected.",
		},
		{
			Resource: "Download rate of a response", Value: paceText(pace.BytesPerSecond) + ", after " + refpage.Time(pace.Grace),
			Beyond: "The gateway closes the connection. The caller gets the response if it sends the request again with the same `Idempotency-Key`.",
		},
	}
}

func paceText(bytesPerSecond int64) string {
	return fmt.Sprintf("at least %s a second on average", refpage.Bytes(bytesPerSecond))
}

func wrongRate(bytesPerSecond, burst int64) string {
	return fmt.Sprintf("%s a second, %s at once", refpage.Bytes(bytesPerSecond), refpage.Bytes(burst))
}

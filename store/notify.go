// SPDX-License-Identifier: Apache-2.0

package store

import "github.com/agentplatform/agentplatform/internal/runerror"

// Topic is the subject of a hint.
type Topic string

// Topics of hints. Each comment says which object the key names.
const (
	// TopicQueued: an environment has runs to claim, a bundle to prefetch, a lost claim, or a new
	// token.
	TopicQueued Topic = "queued"
	// TopicFreed: a run of an environment ended or was suspended and freed its slot and its share
	// of the agent's limit.
	TopicFreed Topic = "freed"
	// TopicDelivery: runs of an environment have created outbox rows for deliveries.
	TopicDelivery Topic = "delivery"
	// TopicDone: a connector run ended.
	TopicDone Topic = "done"
	// TopicRoute: a connector or its links changed.
	TopicRoute Topic = "route"
	// TopicDeployment: a deployment changed, or its build appended to the log.
	TopicDeployment Topic = "deployment"
	// TopicLook: a poll of a project's repository is requested. The key names the project.
	TopicLook Topic = "look"
	// TopicRun: a followed run has started, ended, waits or continues, or its journal has more entries. See Notifier.FollowRun.
	TopicRun Topic = "run"
	// TopicFollow: a run is followed. Stores send and read it.
	TopicFollow Topic = "follow"
)

// Hint reports that something may have changed. Hints are sent after the commit and may be lost,
// duplicated or late, so readers also poll.
type Hint struct {
	Topic Topic
	Key   Key
	// End is set for TopicDone if this process recorded the end of the connector run's last run and
	// it is small. If it is nil, read the outcome.
	End *RunEnd
}

// MaxHintedEnd is the maximum size of the texts in a hint's RunEnd in bytes.
const MaxHintedEnd = 16 << 10

// RunEnd is the stored end of a run.
type RunEnd struct {
	Run           Key
	Status        RunStatus
	ErrorCode     runerror.Code
	Error, Output string
	FinishReason  string
}

// Notifier delivers the hints of all processes on the store.
type Notifier interface {
	// Subscribe returns a channel with the hints of a topic. A slow reader loses its own hints
	// only. A hint with the zero key means that hints may have been lost: read everything. Call
	// stop when done; it closes the channel.
	Subscribe(topic Topic) (hints <-chan Hint, stop func())
	// FollowRun asks all processes for hints of TopicRun. The number of followed runs is limited, and a process may miss the
	// call or start later, so followers repeat it from time to time.
	FollowRun(run Key)
}

// MaxFollowedRuns is the number of runs that a process knows to be followed. It forgets the runs that were followed first.
const MaxFollowedRuns = 4096

// SPDX-License-Identifier: Apache-2.0

package store

// Topic is what a hint is about.
type Topic string

// Topics of hints, with what their key names.
const (
	// TopicQueued: an environment has runs to claim, a bundle to prefetch, a claim
	// that was lost, or another token.
	TopicQueued Topic = "queued"
	// TopicFreed: a run of an environment ended or was suspended, and left its place
	// and its agent's limit.
	TopicFreed Topic = "freed"
	// TopicDelivery: runs of an environment have left something to be delivered.
	TopicDelivery Topic = "delivery"
	// TopicDone: a connector run ended.
	TopicDone Topic = "done"
	// TopicRoute: a connector or its links changed.
	TopicRoute Topic = "route"
	// TopicDeployment: a deployment changed, or its build wrote.
	TopicDeployment Topic = "deployment"
	// TopicLook: a look at the repository of a project is asked for; the key is the
	// project's.
	TopicLook Topic = "look"
)

// Hint says that something may have changed. Hints are sent after the commit,
// may be lost, doubled and late: polling is the truth.
type Hint struct {
	Topic Topic
	Key   Key
	// End, of TopicDone, is the end of the connector run's last run, where this process
	// recorded it and it is small; nil means that it is to be read.
	End *RunEnd
}

// MaxHintedEnd is how many bytes the texts of a hint's RunEnd have at most.
const MaxHintedEnd = 16 << 10

// RunEnd is what a run has ended with, as it is stored.
type RunEnd struct {
	Run           Key
	Status        RunStatus
	ErrorCode     RunErrorCode
	Error, Output string
}

// Notifier delivers hints of all processes on the store.
type Notifier interface {
	// Subscribe returns a channel of the hints of a topic. A slow reader loses
	// hints, not the others'. A hint with the zero key means that hints may have
	// been lost: look at everything. Call stop when done; it closes the channel.
	Subscribe(topic Topic) (hints <-chan Hint, stop func())
}

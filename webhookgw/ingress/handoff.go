// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
)

// handoffBatch maps the runners that are held during a batch to the events whose runs may start at them.
type handoffBatch map[*handoff.Runner][]int

// holdRunners assigns a waiting runner with a free slot to each event of a batch whose run can start with
// its acceptance.
func (c *committer) holdRunners(events []store.Event) handoffBatch {
	held, open := handoffBatch{}, map[store.Key]*handoff.Runner{}
	for i := range events {
		e := &events[i]
		if !e.MayBegin() {
			continue
		}
		environment := store.Key{ProjectID: e.ProjectID, ID: e.EnvironmentID}
		runner, asked := open[environment]
		if !asked || runner != nil && len(held[runner]) == runner.Slots {
			runner = c.runners.Hold(environment)
			open[environment] = runner
		}
		if runner != nil {
			e.RunnerID = runner.ID
			held[runner] = append(held[runner], i)
		}
	}
	return held
}

// releaseRunners releases the runners, with the runs that have started.
func (m handoffBatch) releaseRunners(admissions []store.Admission) {
	for runner, events := range m {
		var begun []store.Claimed
		for _, i := range events {
			if i < len(admissions) && admissions[i].Err == nil && admissions[i].Begun != nil {
				begun = append(begun, *admissions[i].Begun)
			}
		}
		runner.Give(begun)
	}
}

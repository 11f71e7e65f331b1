// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/handoff"
)

// meeting is the runners that are held while a batch is stored, each with the events
// whose runs may begin at it.
type meeting map[*handoff.Runner][]int

// hold names, for each event of a batch whose run may begin with its acceptance, a runner
// that waits here and has a place for it.
func (c *committer) hold(events []store.Event) meeting {
	held, open := meeting{}, map[store.Key]*handoff.Runner{}
	for i := range events {
		e := &events[i]
		if !e.MayBegin() {
			continue
		}
		environment := store.Key{ProjectID: e.ProjectID, ID: e.EnvironmentID}
		runner, asked := open[environment]
		if !asked || runner != nil && len(held[runner]) == runner.Places {
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

// give lets the runners go, with the runs that have begun.
func (m meeting) give(admissions []store.Admission) {
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

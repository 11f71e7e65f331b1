// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

// Route is a connector with the data that the gateway needs, read in one snapshot.
type Route struct {
	Connector Connector
	Links     []Link
	// Live means that a deployment is live in the environment. Concurrency has the concurrency
	// settings of its linked agents. If either changes, the version of the connector changes.
	Live        bool
	Concurrency map[string]Concurrency
}

// AddRuns adds a run for each link of the route to an event that has its input and files. A run that cannot start has an
// error. filesRequired means that the connector requires files, and evaluate is the result of an Evaluator for the input. Runs of
// a repeated event only have their IDs, because its input was not read.
func (r Route) AddRuns(event *Event, filesRequired bool, evaluate func(expression string) (string, error)) error {
	missing := MissingFiles(event.Files)
	for _, link := range r.Links {
		id, err := uuid.NewV7()
		if err != nil {
			return fmt.Errorf("generating an ID: %w", err)
		}
		run := EventRun{ID: id, LinkID: link.ID, AgentName: link.AgentName}
		switch {
		case event.Repeat:
		case missing != "" && (filesRequired || link.FilesRequired):
			run.ErrorCode, run.Error = runerror.FilesRequired, missing
		default:
			if run.Concurrency, err = r.keyOf(link.AgentName, event.Input, evaluate); err != nil {
				run.ErrorCode, run.Error = runerror.KeyUnavailable, err.Error()
			}
		}
		event.Runs = append(event.Runs, run)
	}
	return nil
}

// keyOf returns the key of a run of one of the route's agents; see Concurrency.KeyOf.
func (r Route) keyOf(agent string, input []byte, evaluate func(expression string) (string, error)) (ConcurrencyKey, error) {
	if !r.Live {
		return ConcurrencyKey{Unknown: true}, nil
	}
	return r.Concurrency[agent].KeyOf(input, evaluate)
}

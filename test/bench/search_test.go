// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"log"
	"time"

	"github.com/agentplatform/agentplatform/internal/search"
	"github.com/agentplatform/agentplatform/store"
)

// searchTime is the timeout of a search, as in the facade.
const searchTime = 2 * time.Second

// index indexes runs as a gateway does.
func (p *population) index(ctx context.Context, limit int) (int, error) {
	return p.store.IndexRuns(ctx, limit, func(run store.Searched) []string { return textsOf(run).Words() })
}

// textsOf returns the searchable texts of a stored run.
func textsOf(run store.Searched) search.Run {
	return search.Run{
		AgentName: run.AgentName, Status: string(run.Status), Attempt: run.Attempt, ErrorCode: string(run.ErrorCode),
		Output: run.Output, ContentType: run.ContentType, Input: run.Input,
	}
}

// searches returns text searches in the largest project's runs. Every run contains the search terms, except for the number,
// which one run per day contains.
func (p *population) searches() map[string]call {
	scene, _, _ := p.largest()
	out := map[string]call{}
	for name, text := range map[string]string{
		"a rare word":              "1234",
		"a word that all have":     "order",
		"a word that none has":     "nowhere",
		"two that never meet":      "1234 1235",
		"a field":                  `status == "failed" && error_code == "model_error"`,
		"CEL on a word":            `output.contains("1234")`,
		"CEL on an input":          `input.order == 1234`,
		"CEL that nothing matches": `attempt > 1000`,
	} {
		q, err := search.Parse(text)
		if err != nil {
			log.Panicf("bench: %q is no search: %v", text, err)
		}
		out["search/"+name] = call{do: func(ctx context.Context) error {
			until := time.Now().Add(searchTime)
			_, _, err := p.store.ListRuns(ctx, store.RunQuery{ProjectID: scene.Project, Limit: 25, Search: &store.Search{
				Words: q.Words, AgentName: q.Equal["agent_name"], Status: store.RunStatus(q.Equal["status"]),
				Match: func(ctx context.Context, run store.Searched) bool { return q.Match(ctx, textsOf(run)) },
				Left:  func() time.Duration { return time.Until(until) },
			}})
			return err
		}}
	}
	return out
}

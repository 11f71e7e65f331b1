// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"fmt"
)

// summary is the result of a scene. Durations are in seconds.
type summary struct {
	Scene string `json:"scene"`
	// KillsHit are the kills in the middle of requests that broke at least one of them
	// off that had been sent whole.
	KillsHit int `json:"kills_hit"`
	Kills    int `json:"kills"`
	// Broken are the requests that broke off with a gateway.
	Broken int `json:"requests_broken"`

	Accepted      int `json:"accepted"`
	AcceptedKeyed int `json:"accepted_with_key"`
	// Recovered got their 2xx by repeating the key after an unknown outcome.
	Recovered   int `json:"recovered_by_key"`
	Unavailable int `json:"answered_503"`
	Unknown     int `json:"unknown_without_key"`
	Refused     int `json:"never_sent_without_key"`

	ConnectorRuns int `json:"connector_runs"`
	AgentRuns     int `json:"agent_runs"`
	// RowsOnly is the number of connector runs whose client received no 2xx response.
	RowsOnly int `json:"rows_without_2xx"`
	// Delivered is the number of results that their destination has accepted. GivenUp is the number of dead letters in the
	// store.
	Delivered int `json:"delivered"`
	GivenUp   int `json:"given_up"`
	Promises  int `json:"broken_promises"`

	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"accepted_per_second"`
}

func (s summary) String() string {
	line, err := json.Marshal(s)
	if err != nil {
		line = []byte(err.Error())
	}
	return fmt.Sprintf(`%s
  kills               %d of %d broke a request
  broken off          %d requests
  2xx                 %d (%d with a key, %d of these after an unknown outcome)
  503                 %d
  unknown, no key     %d
  never sent, no key  %d
  connector runs      %d, %d of them without a 2xx
  agent runs          %d
  results             %d delivered, %d given up
  broken promises     %d
  time                %.1f s, %.0f 2xx/s
%s`, s.Scene, s.KillsHit, s.Kills, s.Broken, s.Accepted, s.AcceptedKeyed, s.Recovered, s.Unavailable, s.Unknown, s.Refused,
		s.ConnectorRuns, s.RowsOnly, s.AgentRuns, s.Delivered, s.GivenUp, s.Promises, s.Seconds, s.Rate, line)
}

// summary counts the outcomes that the clients know and the rows of the book.
func (l *load) summary(b *book) summary {
	s := summary{
		KillsHit: l.killsHit, Kills: l.kills, Broken: l.cut, Unavailable: l.unavailable,
		ConnectorRuns: b.connectorRuns, AgentRuns: b.agentRuns,
	}
	for _, m := range l.marks {
		switch {
		case m.runs != nil:
			s.Accepted++
			if m.keyed {
				s.AcceptedKeyed++
			}
			if m.sends > 1 {
				s.Recovered++
			}
		case m.sends == 0:
			s.Refused++
		default:
			s.Unknown++
		}
		if m.runs == nil {
			s.RowsOnly += len(b.runs[m.text])
		}
	}
	return s
}

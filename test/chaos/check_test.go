// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// The ledger must be able to fail: each broken promise is found.
func TestBookFindsBrokenPromises(t *testing.T) {
	t.Parallel()
	connector, one, two, other := uuid.New(), uuid.New(), uuid.New(), uuid.New()
	whole := row{id: uuid.New(), connector: connector, input: []byte(`{"marker":"m"}`), runs: []uuid.UUID{one, two}, links: links}
	edit := func(change func(*row)) row {
		r := whole
		change(&r)
		return r
	}
	accepted := mark{sends: 1, runs: []uuid.UUID{one, two}}
	for name, c := range map[string]struct {
		mark   mark
		rows   []row
		broken string // "" when all is well
	}{
		"accepted":                    {accepted, []row{whole}, ""},
		"accepted and lost":           {accepted, nil, "there are 0 connector runs"},
		"accepted twice":              {accepted, []row{whole, whole}, "there are 2 connector runs"},
		"other runs than answered":    {accepted, []row{edit(func(r *row) { r.runs = []uuid.UUID{one, other} })}, "answered with the runs"},
		"a run lost":                  {accepted, []row{edit(func(r *row) { r.runs = r.runs[:1] })}, "has 1 agent runs"},
		"a link twice":                {accepted, []row{edit(func(r *row) { r.links = 1 })}, "of 1 links"},
		"another connector's":         {accepted, []row{edit(func(r *row) { r.connector = other })}, "another connector's"},
		"a key twice":                 {mark{sends: 2, keyed: true, runs: accepted.runs}, []row{whole, whole}, "there are 2 connector runs"},
		"a key without an answer":     {mark{sends: 2, keyed: true}, []row{whole}, "never came to an answer"},
		"unknown, not there":          {mark{sends: 1}, nil, ""},
		"unknown, there":              {mark{sends: 1}, []row{whole}, ""},
		"unknown, without agent runs": {mark{sends: 1}, []row{edit(func(r *row) { r.runs, r.links = nil, 0 })}, "has 0 agent runs"},
		"unknown, twice":              {mark{sends: 1}, []row{whole, whole}, "there are 2 connector runs"},
		"never sent":                  {mark{}, []row{whole}, "no gateway was reached"},
		"of nobody":                   {accepted, []row{whole, edit(func(r *row) { r.input = []byte(`{"marker":"x"}`) })}, "never made"},
		"garbled":                     {accepted, []row{whole, edit(func(r *row) { r.input = []byte(`{`) })}, "never sent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := book{runs: map[string][]row{}}
			for _, r := range c.rows {
				b.add(r)
			}
			m := c.mark
			m.text, m.connector = "m", connector
			broken := b.check(map[string]*mark{"m": &m})
			if c.broken == "" {
				require.Empty(t, broken)
				return
			}
			require.NotEmpty(t, broken)
			require.Contains(t, broken[0]+broken[len(broken)-1], c.broken)
		})
	}
}

func TestReadAnswerTakesNoOther(t *testing.T) {
	t.Parallel()
	a, b := uuid.NewString(), uuid.NewString()
	for body, ok := range map[string]bool{
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `","` + b + `"]}`: true,
		``: false,
		`{"status":"ok","dispatched_to":0,"run_ids":[]}`:                                    false,
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `"]}`:                         false,
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `","` + a + `"]}`:             false,
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `","` + b + `"],"more":true}`: false,
		`{"status":"ok","dispatched_to":2,"run_ids":["` + a + `","` + b + `"]}{}`:           false,
	} {
		_, err := readAnswer([]byte(body))
		require.Equal(t, ok, err == nil, body)
	}
}

// SPDX-License-Identifier: Apache-2.0

package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// waiting returns candidates from words: "s", "i" or "d" for the class, the agent, and "+" for a
// released or resumed run. Each is younger than the previous one.
func waiting(words ...string) []Candidate {
	out := make([]Candidate, len(words))
	for i, word := range words {
		class := Class(strings.IndexByte("sid", word[0]))
		agent, resumed := strings.CutSuffix(word[1:], "+")
		out[i] = Candidate{ID: Stamp(uuid.UUID{}, int64(i), 0), Class: class, Agent: agent, Fresh: !resumed}
	}
	return out
}

// candidateWords returns candidates in the format of waiting.
func candidateWords(of []Candidate) (out []string) {
	for _, c := range of {
		word := string("sid"[c.Class]) + c.Agent
		if !c.Fresh {
			word += "+"
		}
		out = append(out, word)
	}
	return out
}

// limited sets the limit of an agent's candidates.
func limited(most int, of []Candidate, agent string) []Candidate {
	for i := range of {
		if of[i].Agent == agent {
			of[i].Max = most
		}
	}
	return of
}

func TestPool_ReservedSlots(t *testing.T) {
	t.Parallel()
	for places, kept := range map[int]int{0: 0, 1: 0, 2: 1, 4: 1, 5: 1, 9: 1, 10: 2, 100: 20} {
		t.Run(fmt.Sprint(places), func(t *testing.T) {
			require.Equal(t, kept, Pool{Slots: places}.Reserved(), "%d places", places)
		})
	}
}

func TestPick_OrdersCandidates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pool       Pool
		candidates []Candidate
		limit      int
		want       []string
	}{
		"nothing waits":                                  {Pool{Slots: 5}, nil, 5, nil},
		"a limit of 0":                                   {Pool{Slots: 5}, waiting("sa"), 0, nil},
		"sync, then inbound, then deferred":              {Pool{Slots: 9}, waiting("da", "ia", "sa"), 3, []string{"sa", "ia", "da"}},
		"one slot reserves none":                         {Pool{Slots: 1}, waiting("ia"), 1, []string{"ia"}},
		"the last of two slots is reserved":              {Pool{Slots: 2}, waiting("ia", "ia"), 2, []string{"ia"}},
		"one of five is reserved":                        {Pool{Slots: 5}, waiting("ia", "ia", "ia", "da", "da"), 5, []string{"ia", "ia", "ia", "da"}},
		"two of ten, one of them in use elsewhere":       {Pool{Slots: 10, Lower: 7}, waiting("ia", "da"), 10, []string{"ia"}},
		"a reserved slot is for sync":                    {Pool{Slots: 2, Lower: 1}, waiting("ia", "sa"), 2, []string{"sa"}},
		"a reserved slot is for resumed runs":            {Pool{Slots: 2, Lower: 1}, waiting("ia+", "ia"), 2, []string{"ia+"}},
		"sync does not use slots of the lower classes":   {Pool{Slots: 2}, waiting("sa", "ia"), 2, []string{"sa", "ia"}},
		"resumed runs precede new ones":                  {Pool{Slots: 9}, waiting("ia+", "ia", "ib"), 3, []string{"ia+", "ib", "ia"}},
		"agents are served round robin":                  {Pool{Slots: 9}, waiting("ia", "ia", "ia", "ib"), 3, []string{"ia", "ib", "ia"}},
		"round robin continues after the last agent":     {Pool{Slots: 9, LastAgents: [Classes]string{"", "a", ""}}, waiting("ia", "ib", "ic"), 2, []string{"ib", "ic"}},
		"round robin wraps around":                       {Pool{Slots: 9, LastAgents: [Classes]string{"", "c", ""}}, waiting("ic", "ia"), 1, []string{"ia"}},
		"round robin in a pool of one slot":              {Pool{Slots: 1, LastAgents: [Classes]string{"", "a", ""}}, waiting("ia", "ib"), 1, []string{"ib"}},
		"each class has its own last agent":              {Pool{Slots: 9, LastAgents: [Classes]string{"a", "", ""}}, waiting("ia", "ib"), 1, []string{"ia"}},
		"the agent with fewer runs in progress is first": {Pool{Slots: 9, Running: map[string]int{"a": 2, "b": 1}}, waiting("ia", "ib"), 1, []string{"ib"}},
		"an agent at its limit waits":                    {Pool{Slots: 9, Running: map[string]int{"a": 2}}, limited(2, waiting("sa", "ib"), "a"), 2, []string{"ib"}},
		"the limit is reached during a pick":             {Pool{Slots: 9}, limited(1, waiting("sa", "sa", "da"), "a"), 3, []string{"sa"}},
		"a resumed run waits at the limit of its agent":  {Pool{Slots: 9, Running: map[string]int{"a": 1}}, limited(1, waiting("ia+"), "a"), 1, nil},
		"the eighth is the oldest of the lower classes":  {Pool{Slots: 9, Served: 7}, waiting("da", "sa", "ia"), 1, []string{"da"}},
		"the seventh is sync":                            {Pool{Slots: 9, Served: 6}, waiting("da", "sa", "ia"), 1, []string{"sa"}},
		"the eighth is sync if no other waits":           {Pool{Slots: 9, Served: 7}, waiting("sa"), 1, []string{"sa"}},
		"the eighth uses no reserved slot":               {Pool{Slots: 2, Lower: 1, Served: 7}, waiting("da", "sa"), 1, []string{"sa"}},
		"the eighth counts runs of one call":             {Pool{Slots: 9, Served: 6}, waiting("da", "sa", "sa"), 2, []string{"sa", "da"}},
		"the eighth is the oldest of both lower classes": {Pool{Slots: 9, Served: 7}, waiting("ia", "db", "sa"), 1, []string{"ia"}},
	} {
		t.Run(name, func(t *testing.T) {
			picked, after := Pick(c.pool, c.candidates, c.limit)
			require.Equal(t, c.want, candidateWords(picked))
			require.Equal(t, c.pool.Served+int64(len(picked)), after.Served)
		})
	}
}

func TestPick_DoesNotChangePool(t *testing.T) {
	t.Parallel()
	pool := Pool{Slots: 5, Running: map[string]int{"a": 1}}
	_, after := Pick(pool, waiting("ia", "sb"), 2)
	require.Equal(t, Pool{Slots: 5, Running: map[string]int{"a": 1}}, pool)
	require.Equal(t, Pool{
		Slots: 5, Running: map[string]int{"a": 2, "b": 1}, Lower: 1, Served: 2, LastAgents: [Classes]string{"b", "a", ""},
	}, after)
}

// drawnQueue draws candidates in the read order of a claim: for each agent and class, released and
// resumed ones first, then the oldest.
func drawnQueue(t *rapid.T) []Candidate {
	var drawn []string
	for range rapid.IntRange(0, 30).Draw(t, "waiting") {
		word := rapid.SampledFrom([]string{"s", "i", "d"}).Draw(t, "class") + rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "agent")
		if rapid.Bool().Draw(t, "resumed") {
			word += "+"
		}
		drawn = append(drawn, word)
	}
	out := waiting(drawn...)
	for _, agent := range []string{"a", "b", "c"} {
		limited(rapid.IntRange(0, 3).Draw(t, "limit of "+agent), out, agent)
	}
	slices.SortStableFunc(out, func(a, b Candidate) int {
		if a.Class == b.Class && a.Agent == b.Agent && a.Fresh != b.Fresh {
			if a.Fresh {
				return 1
			}
			return -1
		}
		return strings.Compare(fmt.Sprint(a.Class, a.Agent), fmt.Sprint(b.Class, b.Agent))
	})
	return out
}

// For every queue, Pick respects limits and reserved slots, picks no run twice, and leaves no run
// that could start.
func TestPick_RespectsLimits(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		candidates, limit := drawnQueue(t), rapid.IntRange(0, 12).Draw(t, "wanted")
		pool := Pool{
			Slots: rapid.IntRange(1, 12).Draw(t, "places"), Served: rapid.Int64Range(0, 20).Draw(t, "served"),
			Running: map[string]int{"a": rapid.IntRange(0, 3).Draw(t, "running")},
		}
		picked, after := Pick(pool, candidates, limit)
		require.LessOrEqual(t, len(picked), limit)
		seen := map[uuid.UUID]bool{}
		most := map[string]int{}
		for _, c := range picked {
			require.False(t, seen[c.ID], "picked twice")
			seen[c.ID] = true
			most[c.Agent] = c.Max
		}
		for agent, limit := range most {
			require.True(t, limit == 0 || after.Running[agent] <= limit, agent)
		}
		require.LessOrEqual(t, after.Lower, pool.Slots-pool.Reserved())
		if len(picked) == limit {
			return
		}
		for _, c := range candidates {
			free := c.Class == ClassSync || !c.Fresh || after.Lower < pool.Slots-pool.Reserved()
			below := c.Max == 0 || after.Running[c.Agent] < c.Max
			require.Truef(t, seen[c.ID] || !free || !below, "%v could start", c)
		}
	})
}

// Every run starts in the end, even if there are always sync runs, and other runs of its agent and
// class before it.
func TestPick_StarvesNoRun(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pool := Pool{Slots: rapid.IntRange(1, 6).Draw(t, "places")}
		queue := drawnQueue(t)
		for i := range queue {
			queue[i].Max = 0
		}
		left, most := len(queue), lowerClassInterval*(len(queue)+1)
		for claims := 0; left > 0; claims++ {
			require.Less(t, claims, most, "%d runs never start", left)
			// There is always a sync run of an agent without runs in progress.
			picked, after := Pick(pool, append([]Candidate{{ID: uuid.Max, Class: ClassSync, Agent: "z", Fresh: true}}, queue...), 1)
			require.Len(t, picked, 1, "a slot is free")
			if picked[0].ID != uuid.Max {
				left--
				queue = slices.DeleteFunc(queue, func(c Candidate) bool { return c.ID == picked[0].ID })
			}
			pool = Pool{Slots: pool.Slots, Served: after.Served, LastAgents: after.LastAgents} // it ends at once
		}
	})
}

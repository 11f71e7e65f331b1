// SPDX-License-Identifier: Apache-2.0

package search_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/search"
)

// order is a run about an order.
var order = search.Run{
	AgentName: "support", TestName: "short", Status: "failed", DeploymentID: "d", Attempt: 2, Duration: 1500 * time.Millisecond,
	Error: "The model said no", ErrorCode: "model_failed", Output: `Dear Ada, order ÄB-17 "is late".`,
	ContentType: "application/json; charset=utf-8", Input: []byte(`{"customer":{"name":"Acme Corp","city":"M\u00fcnchen"},"amount":40.50,"tags":["new","big deal"],"late":true}`),
	Headers: map[string]string{"x-github-event": "push"},
	Context: []byte(`{"customer":"Beta AG","order":{"id":9007199254740993},"headers":{"x-github-event":"fork"}}`),
}

func TestMatch_FindsRuns(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`ada`:                        true,
		`ada late`:                   true,
		`LATE ada äb 17`:             true,
		`ada bob`:                    false,
		`lat`:                        false, // a part of a word
		`"is late"`:                  true,
		`"late is"`:                  false,
		`"late the" ada`:             false, // in two texts
		`acme münchen customer 40`:   true,
		`"acme corp" "big deal"`:     true,
		`"corp city"`:                false,
		`"is late`:                   true, // quotes are not closed
		`"beta ag" 9007199254740993`: true,
		`context.customer == "Beta AG" && context.order.id == 9007199254740993`: true,
		`context.customer == "Acme Corp"`:                                       false,
		`context.order.id == 9007199254740992`:                                  false,
		`context.headers["x-github-event"] == "fork"`:                           false, // a script cannot set it
		`context.nothing == "x"`:                                                false,
		`model_failed`:                                                          true,
		`error`:                                                                 false, // not a condition, because it returns a text
		`true`:                                                                  false, // not a condition, because it names nothing
		`late, true`:                                                            false,
		`statsu == "failed"`:                                                    false, // words, because the name is unknown
		`status == "failed"`:                                                    true,
		`status == "completed"`:                                                 false,
		`output.contains("late")`:                                               true,
		`output.matches("B-\\d+")`:                                              true,
		`error == "The model said no"`:                                          true,
		`error_code == "model_failed"`:                                          true,
		`input.amount >= 40`:                                                    true,
		`input.amount == 40.5`:                                                  true,
		`input.customer.city == "München"`:                                      true,
		`input["customer"].name.startsWith("Acme")`:                             true,
		`"new" in input.tags && input.late`:                                     true,
		`input.late == true && !(status == "completed")`:                        true,
		`context.headers["x-github-event"] == "push"`:                           true,
		`context.input.customer.name == "Acme Corp"`:                            true,
		`agent_name == "support" && test_name == "short"`:                       true,
		`attempt > 1 && duration_ms >= 1500`:                                    true,
		`deployment_id == "d" && connector_id == ""`:                            true,
		`input.nothing == 1`:                                                    false, // cannot be evaluated
		`input.nothing == 1 || status == "failed"`:                              true,
		`[` + strings.Repeat("1,", 99) + `1].all(a, [` + strings.Repeat("1,", 99) + `1].all(b, [1,2,3].all(c, output != "")))`: false, // costs too much
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			q, err := search.Parse(text)
			require.NoError(t, err, text)
			require.Equal(t, want, q.Match(t.Context(), order), text)
		})
	}
}

func TestMatch_ReadsInputs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		contentType, input, search string
		found                      bool
	}{
		"text":              {"text/plain", "Hello Ada", `input == "Hello Ada"`, true},
		"no type":           {"", "Hello Ada", `ada`, true},
		"JSON that is cut":  {"application/json", `{"name":"Ada","t":"xy`, `input.contains("\"Ada\"")`, true},
		"words of that":     {"application/json", `{"name":"Ada","t":"xy`, `ada xy`, true},
		"no field of that":  {"application/json", `{"name":"Ada","t":"xy`, `input.name == "Ada"`, false},
		"a text as JSON":    {"application/json", `"Ada"`, `input == "Ada"`, true},
		"a large number":    {"application/json", `{"id":9007199254740993}`, `9007199254740993`, true},
		"and equal":         {"application/json", `{"id":9007199254740993}`, `input.id == 9007199254740993`, true},
		"no other number":   {"application/json", `{"id":9007199254740993}`, `input.id == 9007199254740992`, false},
		"no UTF-8":          {"text/plain", "Ada \xff Bob", `"ada bob"`, true},
		"no UTF-8 as value": {"text/plain", "Ada \xff Bob", `input.contains("Bob")`, true},
		"no form":           {fields.ContentType, "{", `input == "{"`, true},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := search.Parse(c.search)
			require.NoError(t, err)
			require.Equal(t, c.found, q.Match(t.Context(), search.Run{ContentType: c.contentType, Input: []byte(c.input)}))
		})
	}
}

func TestParse_RejectsInvalidSearches(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                                    "must contain a word",
		` !? "" `:                             "must contain a word",
		`output.matches("(")`:                 "an invalid pattern for matches",
		`output.matches(output)`:              "must be a string literal",
		`output.matches("(?:a{1000}){1000}")`: "an invalid pattern for matches",
		strings.Repeat("a", search.MaxSize+1): "at most 1024 bytes",
	} {
		t.Run(fmt.Sprintf("%.60s", text), func(t *testing.T) {
			_, err := search.Parse(text)
			require.ErrorContains(t, err, want, text)
		})
	}
}

func TestParse_ReturnsIndexRequirements(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		words []string
		equal map[string]string
	}{
		`Ada "is late" ada`: {[]string{"ada", "is", "late"}, nil},
		`status == "failed" && "support" == agent_name && test_name == ""`: {nil, map[string]string{"status": "failed", "agent_name": "support", "test_name": ""}},
		`status == "failed" || status == "completed"`:                      {},
		`!(status == "failed")`:                                            {},
		`status != "failed"`:                                               {},
		`input.customer.name == "Acme Corp" && input.amount > 4`:           {[]string{"acme", "corp"}, nil},
		`"Acme" == input["name"]`:                                          {[]string{"acme"}, nil},
		`context.customer == "Beta AG" && "x" in context.tags`:             {[]string{"ag", "beta", "x"}, nil},
		`context["order"].city.startsWith("Bonn am ")`:                     {[]string{"am", "bonn"}, nil},
		`context.input.name == "Ada"`:                                      {[]string{"ada"}, nil},
		`context.headers["x-github-event"] == "push"`:                      {}, // headers are not indexed
		`"push" in context.headers && "push" in context`:                   {},
		`context["headers"].x == "push" && context[output].x == "push"`:    {},
		`"new deal" in input.tags`:                                         {[]string{"deal", "new"}, nil},
		`output == "it is late" && error == "no"`:                          {[]string{"is", "it", "late", "no"}, nil},
		`output.contains("it is late")`:                                    {[]string{"is"}, nil},
		`output.contains(" it is late.")`:                                  {[]string{"is", "it", "late"}, nil},
		`output.contains("late")`:                                          {},
		`output.startsWith("it is late")`:                                  {[]string{"is", "it"}, nil},
		`output.endsWith("it is late")`:                                    {[]string{"is", "late"}, nil},
		`json(output).name == "Ada"`:                                       {},
		`output.lowerAscii() == "ada"`:                                     {},
		`context.headers["x"] == "push"`:                                   {},
		`has(input.name) && size(input.tags) == 2`:                         {},
		`status == "failed" ? output == "a" : output == "b"`:               {},
	} {
		t.Run(text, func(t *testing.T) {
			q, err := search.Parse(text)
			require.NoError(t, err)
			require.ElementsMatch(t, want.words, q.Words)
			if want.equal == nil {
				want.equal = map[string]string{}
			}
			require.True(t, maps.Equal(want.equal, q.Equal))
		})
	}
}

// Each match has the words and values that the index is queried for.
func TestParse_RequirementsHoldForMatches(t *testing.T) {
	t.Parallel()
	c := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[c.IntN(len(of))] }
	text := func() string {
		var b strings.Builder
		for range c.IntN(5) {
			b.WriteString(one("a", "B", "ab", " ", ".", "é", "e\u0301", "7", "_", "-a ", "b a"))
		}
		return b.String()
	}
	atom := func() string {
		of := one("output", "error", "input.a", `input["a"]`, "input", "agent_name", "test_name", "status", "context.input.a")
		switch value := fmt.Sprintf("%q", text()); c.IntN(7) {
		case 0:
			return of + " == " + value
		case 1:
			return value + " == " + of
		case 2:
			return of + ".contains(" + value + ")"
		case 3:
			return of + ".startsWith(" + value + ")"
		case 4:
			return of + ".endsWith(" + value + ")"
		case 5:
			return value + " in input.l"
		default:
			return of + " != " + value
		}
	}
	var condition func(depth int) string
	condition = func(depth int) string {
		if depth == 0 || c.IntN(3) == 0 {
			return atom()
		}
		left, right := condition(depth-1), condition(depth-1)
		return one("("+left+" && "+right+")", "("+left+" && "+right+")", "("+left+" || "+right+")", "!("+left+")", "("+left+" ? "+right+" : true)")
	}
	found := 0
	for range 3000 {
		run := search.Run{
			AgentName: text(), TestName: text(), Status: text(), Output: text(), Error: text(), ErrorCode: text(), ContentType: one("application/json", "text/plain"),
			Input: fmt.Appendf(nil, `{"a":%q,"l":[%q,%q]}`, text(), text(), text()),
		}
		looked := condition(2)
		if c.IntN(4) == 0 {
			looked = text()
		}
		q, err := search.Parse(looked)
		if err != nil || !q.Match(t.Context(), run) {
			continue
		}
		found++
		require.Subset(t, append(run.Words(), ""), q.Words, "%s\n%+v", looked, run)
		for name, value := range q.Equal {
			require.Equal(t, map[string]string{"agent_name": run.AgentName, "test_name": run.TestName, "status": run.Status}[name], value, looked)
		}
	}
	require.Greater(t, found, 300)
}

func TestRun_Words(t *testing.T) {
	t.Parallel()
	words := order.Words()
	require.True(t, slices.IsSorted(words))
	require.Subset(t, words, []string{"ada", "äb", "17", "münchen", "model_failed", "50", "customer"})
	require.NotContains(t, words, "")
	require.NotContains(t, words, "push", "headers are no text of a run")
	require.Empty(t, search.Run{}.Words())
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{`ada "is late"`, `status == "failed" && input.amount > 4`, `output.matches("a+")`, `"`, `[1].exists(output, output == 1)`, `input[0].a in input`} {
		f.Add(text, "application/json", []byte(`{"amount":5}`), "ada")
	}
	f.Fuzz(func(t *testing.T, text, contentType string, input []byte, output string) {
		q, err := search.Parse(text)
		if err != nil {
			return
		}
		run := search.Run{Status: "failed", ContentType: contentType, Input: input, Output: strings.ToValidUTF8(output, "?")}
		if q.Match(t.Context(), run) {
			require.Subset(t, append(run.Words(), ""), q.Words)
		}
	})
}

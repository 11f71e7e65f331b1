// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/stretchr/testify/require"
)

const (
	// mostPerUnit limits the memory per unit of cost, in bytes.
	mostPerUnit = 100
	// mostBeside limits the fixed memory of an evaluation.
	mostBeside = 64 << 10
)

// ones is a list of n ones.
func ones(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }

// largeInput has texts of 60 KB, a list and a map with 1,000 values each, a small value of each
// kind, and a list of 60 long numbers.
func largeInput(t testing.TB) any {
	t.Helper()
	var object strings.Builder
	for i := range 1_000 {
		fmt.Fprintf(&object, `,"k%d":%d`, i, i)
	}
	input, err := decodeInput([]byte(`{"s":"` + strings.Repeat("a1,é ", 10_000) + `","n":7,"t":"2026-07-01T00:00:00Z","w":"ab",
		"list":[0` + strings.Repeat(`,1`, 999) + `],"map":{"k":0` + object.String() + `},"json":"[0` + strings.Repeat(`,[{}]`, 9_000) + `]","deep":[[[["x"]]]],
		"long":[` + strings.Repeat("1"+strings.Repeat("2", 998)+"3,", 60) + `1]}`))
	require.NoError(t, err)
	return input
}

// allocatedBy returns the cost of an evaluation in units and in bytes.
func allocatedBy(t *testing.T, e *evaluation, input any) (cost, bytes uint64) {
	t.Helper()
	values := map[string]any{"input": input, "output": input.(map[string]any)["json"], "error": "", "status": "completed", "context": map[string]any{"input": input}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, cost, _ = e.evaluate(t.Context(), values)
	runtime.ReadMemStats(&after)
	return cost, after.TotalAlloc - before.TotalAlloc
}

// requirePriced evaluates an expression with the limits of keys and conditions and returns its
// highest cost.
func requirePriced(t *testing.T, expression string, input any) (cost uint64) {
	t.Helper()
	for name, with := range map[string]struct {
		environment *cel.Env
		limit       uint64
	}{"key": {environment, maxCost}, "condition": {conditions, maxConditionCost}} {
		checked, err := checkExpression(with.environment, expression)
		if err != nil {
			continue // keys cannot call all functions of conditions
		}
		e, err := planned(with.environment, checked, with.limit)
		require.NoError(t, err, expression)
		units, bytes := allocatedBy(t, e, input)
		cost = max(cost, units)
		require.LessOrEqual(t, units, max(with.limit, e.nodes), "%s: %s", name, expression)
		require.Less(t, bytes, mostBeside+mostPerUnit*units, "%s: %s costs %d units", name, expression, units)
	}
	return cost
}

// The cost determines the allocated memory, regardless of static types.
func TestEvaluation_AllocatesWhatItPaysFor(t *testing.T) { //nolint:paralleltest // it measures
	input, sums := largeInput(t), "a+a+a+a+a+a+a+a"
	lists := "[1,1,1,1,1,1,1,1,1,1]"
	for name, expression := range map[string]string{
		"sums of dyn":           `[dyn("aaaaaaaa")]` + strings.Repeat(".map(a, "+sums+")", 8) + ` == [1]`,
		"sums of bytes":         `[dyn(b"aaaaaaaa")]` + strings.Repeat(".map(a, "+sums+")", 8) + ` == [1]`,
		"sums of lists":         `[[dyn(1)]]` + strings.Repeat(".map(a, "+sums+")", 8) + `.exists(a, a.exists(b, b == 2))`,
		"comparisons":           ones(20) + `.all(x, ` + ones(10) + `.all(y, input.s` + strings.Repeat("+input.s", 9) + ` > "a"))`,
		"bytes":                 lists + ".map(x," + lists + ".map(y," + lists + ".map(z," + lists + `.map(w, bytes(input.s))))).size() == 7`,
		"kept sums":             ones(100) + `.map(x, ` + ones(10) + `.map(x, input.s+input.s+input.s+input.s)) == []`,
		"texts of bytes":        lists + `.all(x, ` + lists + `.all(x, string(bytes(input.s)) == ""))`,
		"keys that are missing": lists + `.all(x, ` + lists + `.all(x, {"a": 1}[input.s] == 1 || true))`,
		"keys of maps":          lists + `.all(x, ` + lists + `.all(x, {input.s + "a": 1} == {} || true))`,
		"maps that are begun":   lists + `.all(x, ` + lists + `.all(x, input.map.exists(k, true)))`,
		"numbers in texts":      lists + `.all(x, ` + lists + `.all(x, int(input.s) == 1 || true))`,
		"equal texts":           lists + `.all(x, ` + lists + `.all(x, input.s == input.s))`,
		"long lists":            lists + `.map(x, ` + lists + `.map(y, ` + lists + `.map(z, ` + ones(300) + `))) == []`,
		"large maps":            lists + `.map(x, ` + lists + `.map(y, ` + lists + `.map(z, {` + strings.Repeat("1:1,", 100) + `2:2}))) == []`,
		"time zones":            lists + `.all(x, ` + lists + `.all(y, timestamp(input.t).getHours("Asia/Tokyo") > 30 || true))`,
		"characters":            lists + `.all(x, ` + lists + `.all(y, input.s.charAt(0) == "a"))`,
		"parts of texts":        lists + `.map(x, ` + lists + `.map(y, input.s.split(""))) == []`,
		"a part of a text":      lists + `.map(x, ` + lists + `.map(y, input.s.substring(1))) == []`,
		"reversed texts":        lists + `.map(x, ` + lists + `.map(y, input.s.reverse())) == []`,
		"quoted texts":          lists + `.map(x, ` + lists + `.map(y, strings.quote(input.s))) == []`,
		"upper case":            lists + `.map(x, ` + lists + `.map(y, input.s.upperAscii())) == []`,
		"decoded texts":         lists + `.map(x, json(input.json)) == []`,
		"formats":               lists + `.map(x, ` + lists + `.map(y, "%.100f%.100f%.100f".format([1e300, 1e300, 1e300]))) == []`,
		"formats of lists":      lists + `.map(x, ` + lists + `.map(y, "%s".format([input.deep]))) == []`,
		"long numbers":          lists + `.all(x, input.long.all(y, !(0.5 in input.long)))`,
		"equal long numbers":    lists + `.all(x, input.long.all(y, !(y in [1, 2]) || y == input.long[0]))`,
		"long numbers in text":  lists + `.all(x, ` + lists + `.all(y, input.long.all(z, double(z) > 0.0)))`,
		"fields of fields":      lists + `.all(x, ` + lists + `.all(y, input` + strings.Repeat(".map", 150) + ` == 1 || true))`,
	} {
		t.Run(name, func(t *testing.T) { requirePriced(t, expression, input) })
	}
}

// writer generates well-typed expressions for most functions of CEL.
type writer struct {
	*rand.Rand
	depth int
	loops int
}

// of writes one of the forms. t, l, m, b and v stand for a text, a list, a map, a bool and any
// value, x for the variable of a loop. Beyond a depth it writes the first form.
func (w *writer) of(forms ...string) string {
	w.depth++
	defer func() { w.depth-- }()
	form := forms[0]
	if w.depth < 6 {
		form = forms[w.IntN(len(forms))]
	}
	var out strings.Builder
	if strings.Contains(form, "$x") {
		w.loops++
		defer func() { w.loops-- }()
	}
	for i := 0; i < len(form); i++ {
		if form[i] != '$' {
			out.WriteByte(form[i])
			continue
		}
		switch i++; form[i] {
		case 't':
			out.WriteString(w.text())
		case 'l':
			out.WriteString(w.list())
		case 'm':
			out.WriteString(w.object())
		case 'b':
			out.WriteString(w.condition())
		case 'v':
			out.WriteString("dyn(" + w.value() + ")")
		case 'x':
			fmt.Fprintf(&out, "x%d", w.loops)
		}
	}
	return out.String()
}

func (w *writer) text() string {
	return w.of(`input.s`, `input.s`, `input.w`, `"ab"`, `($t + $t)`, `($t + $t + $t + $t)`, `string(bytes($t))`, `string(size($l))`, `$t.upperAscii()`, `$t.reverse()`,
		`$t.replace("a", $t)`, `$t.split("b").join($t)`, `"%s %d".format([$v, 1])`, `$t.substring(1)`, `$t.charAt(0)`, `strings.quote($t)`, `($b ? $t : $t)`, `$t.trim()`, `{$t: $t}[$t]`,
		`$l.map($x, $t)[0]`)
}

func (w *writer) list() string {
	return w.of(`input.list`, `input.long`, `[1, 1, 1]`, `[$v, $v]`, `($l + $l)`, `$t.split("a")`, `$l.map($x, $x)`, `$l.map($x, [$x, $x])`, `$l.map($x, $v)`, `$l.map($x, $v)`, `$l.filter($x, $b)`,
		`json(input.json)`, `[$l, $l]`, `$m.map($x, $x)`)
}

func (w *writer) object() string { return w.of(`input.map`, `{$t: $v}`, `{1: $v, "b": $v}`) }

func (w *writer) condition() string {
	return w.of(`true`, `$v == $v`, `$t == $t`, `$l == $l`, `$m == $m`, `$t < $t`, `$v in $l`, `$t in $m`, `$t.contains($t)`, `$t.startsWith($t)`, `$t.indexOf("b") > 3`,
		`$t.matches("a+(b|c)*d")`, `$l.exists($x, $b)`, `$l.all($x, $b)`, `($b || true)`, `($b && $b)`, `$l.exists_one($x, $x == $v)`, `$m[$t] == 1`, `timestamp(input.t).getHours("Asia/Tokyo") > 3`)
}

func (w *writer) value() string {
	forms := []string{`1`, `$t`, `$l`, `$m`, `$b`, `bytes($t)`, `size($t)`}
	for i := range w.loops {
		forms = append(forms, fmt.Sprintf("x%d", i+1), fmt.Sprintf("x%d", i+1))
	}
	return w.of(forms...)
}

// The limit also holds for random expressions.
func TestEvaluation_AllocatesWhatItPaysForWhateverIsWritten(t *testing.T) { //nolint:paralleltest // it measures
	input, large := largeInput(t), 0
	for seed := range uint64(400) {
		w := &writer{Rand: rand.New(rand.NewPCG(seed, 1))}
		expression := w.condition()
		if len(expression) > MaxSize {
			continue
		}
		if requirePriced(t, expression, input) > maxConditionCost/10 {
			large++
		}
	}
	require.Greater(t, large, 50, "few of them cost something")
}

// sized reports whether values of a type have a size.
func sized(of *types.Type) bool {
	switch of.Kind() {
	case types.StringKind, types.BytesKind, types.ListKind, types.MapKind, types.DynKind, types.AnyKind, types.TypeParamKind, types.StructKind:
		return true
	}
	return false
}

// Each function has a price, and its own price if an overload takes a sized argument.
func TestPrices_CoverAllFunctions(t *testing.T) {
	t.Parallel()
	constant := map[string]bool{ // they return an argument or a part of it, or read only its type
		operators.Conditional: true, operators.Index: true, "dyn": true, "type": true,
	}
	for name, of := range map[string]*cel.Env{"keys": environment, "verdicts": verdicts, "words": spoken, "conditions": conditions} {
		t.Run(name, func(t *testing.T) {
			for function, declared := range of.Functions() {
				price, known := prices[function]
				require.True(t, known, "%s has no price", function)
				for _, overload := range declared.OverloadDecls() {
					for _, arg := range overload.ArgTypes() {
						require.True(t, price != nil || constant[function] || !sized(arg), "%s takes a %s and has the price of a constant", overload.ID(), arg)
					}
				}
			}
		})
	}
}

// A function without a price is rejected when the expression is checked.
func TestCheck_RejectsFunctionsWithoutPrice(t *testing.T) {
	t.Parallel()
	with, err := environment.Extend(cel.Function("repeat", cel.Overload("repeat_string", []*cel.Type{cel.StringType}, cel.StringType)))
	require.NoError(t, err)
	_, err = checkExpression(with, `repeat("a")`)
	require.ErrorContains(t, err, "the function repeat is not supported")
	_, err = checkExpression(environment, `google.protobuf.Struct{fields: {"a": input}} == input`)
	require.ErrorContains(t, err, "messages such as google.protobuf.Struct{} are not supported; use maps")
}

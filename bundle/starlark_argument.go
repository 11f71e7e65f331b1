// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.starlark.net/syntax"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/pattern"
)

// docArgument is a parameter of a tool as its docstring describes it.
type docArgument struct {
	name   string
	at     Position
	indent int
	doc    string
	// base is the type of the value, or of the items of the innermost list.
	base string
	// lists is the number of lists around base.
	lists    int
	optional bool
	// min and max are "" without a bound. They limit a number, the characters of a string, or the items of the outer list.
	min, max json.Number
	pattern  string
	oneOf    []any
	// invalid is true if the line has a problem, which is reported.
	invalid bool
}

// docTypes are the types of parameters, "any" for all JSON values.
var docTypes = []string{"string", "integer", "number", "boolean", "object", "any"}

// parseArgument parses a line such as: amount (number, 0.01..10000): In euros. It also returns the problem of the line,
// or "". Without a name it returns nil.
func parseArgument(line docLine) (*docArgument, string) {
	const form = "a line of Args has the form: name (type, …): text"
	a := &docArgument{at: line.at, indent: line.indent}
	name, rest, ok := strings.Cut(line.text, "(")
	if a.name = strings.TrimSpace(name); !ok || !parameterName.MatchString(a.name) {
		return nil, form
	}
	parts, rest, ok := splitSpec(rest)
	rest, colon := strings.CutPrefix(strings.TrimSpace(rest), ":")
	if !ok || !colon {
		return nil, form
	}
	a.doc = strings.TrimSpace(rest)
	if problem := a.setType(parts[0]); problem != "" {
		return a, problem
	}
	for i := 1; i < len(parts); i++ {
		var problem string
		if rest, ok := strings.CutPrefix(parts[i], "one of "); ok {
			last := i + 1
			for last < len(parts) && isLiteralText(parts[last]) {
				last++
			}
			problem = a.setOneOf(append([]string{rest}, parts[i+1:last]...))
			i = last - 1
		} else {
			problem = a.setRule(parts[i])
		}
		if problem != "" {
			return a, fmt.Sprintf("parameter %s: %s", a.name, problem)
		}
	}
	return a, ""
}

// splitSpec splits the text up to the closing bracket at commas outside of quotes.
func splitSpec(text string) (parts []string, rest string, ok bool) {
	begin, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == ',' || c == ')':
			parts = append(parts, strings.TrimSpace(text[begin:i]))
			if begin = i + 1; c == ')' {
				return parts, text[begin:], true
			}
		}
	}
	return nil, "", false
}

func (a *docArgument) setType(text string) string {
	for a.base = text; strings.HasPrefix(a.base, "list of "); a.lists++ {
		a.base = strings.TrimSpace(strings.TrimPrefix(a.base, "list of "))
	}
	if a.lists > maxDepth || !slices.Contains(docTypes, a.base) {
		return fmt.Sprintf("parameter %s: %q is no type; use %s, or list of one of these", a.name, text, strings.Join(docTypes, ", "))
	}
	return ""
}

// setRule sets optional, a pattern or bounds.
func (a *docArgument) setRule(text string) string {
	if text == "optional" {
		a.optional = true
		return ""
	}
	if quoted, ok := strings.CutPrefix(text, "pattern "); ok {
		expression, ok := unquote(strings.TrimSpace(quoted))
		switch _, _, err := pattern.Compile(expression); {
		case !ok:
			return "the pattern must be in quotes"
		case a.base != "string":
			return "only a string has a pattern"
		case err != nil:
			return fmt.Sprintf("the pattern is not a valid regular expression (RE2): %v", err)
		}
		a.pattern = expression
		return ""
	}
	low, high, ok := strings.Cut(text, "..")
	if !ok {
		return fmt.Sprintf(`%q is unknown; use min..max, one of "a", "b", pattern "…" or optional`, text)
	}
	return a.setBounds(strings.TrimSpace(low), strings.TrimSpace(high))
}

func (a *docArgument) setBounds(low, high string) string {
	counts := a.lists > 0 || a.base == "string"
	if !counts && a.base != "number" && a.base != "integer" {
		return fmt.Sprintf("a value of type %s has no bounds", a.base)
	}
	for _, bound := range []string{low, high} {
		n, err := strconv.ParseUint(bound, 10, 31)
		switch {
		case bound == "":
		case !isNumber(bound):
			return fmt.Sprintf("%q is no number", bound)
		case counts && (err != nil || strconv.FormatUint(n, 10) != bound):
			return fmt.Sprintf("%q is no length", bound)
		}
	}
	if a.min, a.max = json.Number(low), json.Number(high); low == "" && high == "" || low != "" && high != "" && isLess(a.max, a.min) {
		return fmt.Sprintf("%s..%s is empty", low, high)
	}
	return ""
}

// setOneOf sets the allowed values.
func (a *docArgument) setOneOf(texts []string) string {
	for _, text := range texts {
		value, ok := parseLiteralText(strings.TrimSpace(text))
		if !ok {
			return fmt.Sprintf("%q is no string in quotes, number, true or false", text)
		}
		item := docArgument{base: a.base}
		if problem := item.misfit(value); problem != "" {
			return fmt.Sprintf("%s %s", text, problem)
		}
		a.oneOf = append(a.oneOf, value)
	}
	return ""
}

// isLiteralText reports whether a text is a further value of "one of", and not the next rule.
func isLiteralText(text string) bool {
	_, ok := parseLiteralText(text)
	return ok
}

func parseLiteralText(text string) (any, bool) {
	switch text {
	case "true", "false":
		return text == "true", true
	}
	if isNumber(text) {
		return json.Number(text), true
	}
	return unquote(text)
}

// unquote removes quotes of either kind. Only a quote can be escaped: patterns contain backslashes.
func unquote(text string) (string, bool) {
	if len(text) < 2 || text[0] != '"' && text[0] != '\'' || text[len(text)-1] != text[0] {
		return "", false
	}
	return strings.ReplaceAll(text[1:len(text)-1], `\`+text[:1], text[:1]), true
}

// isNumber reports whether a text is a number in JSON's syntax.
func isNumber(text string) bool {
	var n json.Number
	return exactjson.Decode([]byte(text), &n) == nil && string(n) == text && len(text) <= maxNumberText
}

// maxNumberText is the maximum length of a number in bytes. With an exponent of a few digits, fractions of such numbers
// stay small.
const maxNumberText = 32

// isLess compares two numbers.
func isLess(a, b json.Number) bool {
	x, err := a.Float64()
	y, err2 := b.Float64()
	if err != nil || err2 != nil || x != y {
		return x < y
	}
	var m, n big.Float
	if _, _, err := m.SetPrec(256).Parse(string(a), 10); err != nil {
		return false
	}
	if _, _, err := n.SetPrec(256).Parse(string(b), 10); err != nil {
		return false
	}
	return m.Cmp(&n) < 0
}

// schema returns the JSON Schema of the parameter.
func (a *docArgument) schema() map[string]any {
	s := map[string]any{}
	if a.base != "any" {
		s["type"] = a.base
	}
	if a.pattern != "" {
		s["pattern"] = a.pattern
	}
	if a.oneOf != nil {
		s["enum"] = a.oneOf
	}
	for range a.lists {
		s = map[string]any{"type": "array", "items": s}
	}
	low, high := "minimum", "maximum"
	switch {
	case a.lists > 0:
		low, high = "minItems", "maxItems"
	case a.base == "string":
		low, high = "minLength", "maxLength"
	}
	if a.min != "" {
		s[low] = a.min
	}
	if a.max != "" {
		s[high] = a.max
	}
	if a.doc != "" {
		s["description"] = a.doc
	}
	return s
}

// misfit returns the reason why a value does not fit the parameter, or "".
func (a *docArgument) misfit(value any) string {
	if a.lists > 0 {
		items, ok := value.([]any)
		if !ok {
			return "is no list"
		}
		if !a.within(json.Number(strconv.Itoa(len(items)))) {
			return "has too few or too many items"
		}
		inner := *a
		inner.lists, inner.min, inner.max = a.lists-1, "", ""
		for _, item := range items {
			if problem := inner.misfit(item); problem != "" {
				return "an item " + problem
			}
		}
		return ""
	}
	if problem := a.misfitBase(value); problem != "" {
		return problem
	}
	if a.oneOf != nil && !slices.ContainsFunc(a.oneOf, func(allowed any) bool { return equalLiterals(allowed, value) }) {
		return "is not one of the allowed values"
	}
	return ""
}

func (a *docArgument) misfitBase(value any) string {
	var ok, bounded bool
	size, pattern := json.Number(""), a.pattern
	switch a.base {
	case "any":
		return ""
	case "object":
		_, ok = value.(map[string]any)
	case "boolean":
		_, ok = value.(bool)
	case "number", "integer":
		size, ok = value.(json.Number)
		bounded = true
		if ok && a.base == "integer" {
			_, ok = new(big.Int).SetString(string(size), 10)
		}
	case "string":
		var text string
		text, ok = value.(string)
		size, bounded = json.Number(strconv.Itoa(utf8.RuneCountInString(text))), true
		if ok && pattern != "" && !matches(pattern, text) {
			return "does not match the pattern"
		}
	}
	switch {
	case !ok:
		return "is not of type " + a.base
	case bounded && !a.within(size):
		return "is out of the bounds"
	}
	return ""
}

func (a *docArgument) within(size json.Number) bool {
	return (a.min == "" || !isLess(size, a.min)) && (a.max == "" || !isLess(a.max, size))
}

func matches(expression, text string) bool {
	compiled, _, err := pattern.Compile(expression)
	return err == nil && compiled.MatchString(text)
}

func equalLiterals(a, b any) bool {
	x, isNumber := a.(json.Number)
	if y, ok := b.(json.Number); isNumber && ok {
		return exactjson.EqualNumbers(x, y)
	}
	return !isNumber && a == b
}

// literalValue returns the value of an expression of literals.
func literalValue(e syntax.Expr) (any, bool) {
	switch x := e.(type) {
	case *syntax.ParenExpr:
		return literalValue(x.X)
	case *syntax.Literal:
		return literalScalar(x)
	case *syntax.Ident:
		value, ok := map[string]any{"None": nil, "True": true, "False": false}[x.Name]
		return value, ok
	case *syntax.UnaryExpr:
		number, ok := x.X.(*syntax.Literal)
		if !ok || x.Op != syntax.MINUS {
			return nil, false
		}
		value, _ := literalScalar(number)
		n, ok := value.(json.Number)
		return "-" + n, ok
	case *syntax.ListExpr:
		list := []any{}
		for _, item := range x.List {
			value, ok := literalValue(item)
			if !ok {
				return nil, false
			}
			list = append(list, value)
		}
		return list, true
	case *syntax.DictExpr:
		return literalMap(x)
	}
	return nil, false
}

func literalMap(x *syntax.DictExpr) (any, bool) {
	values := map[string]any{}
	for _, item := range x.List {
		entry, _ := item.(*syntax.DictEntry)
		key, ok := literalValue(entry.Key)
		name, isText := key.(string)
		value, ok2 := literalValue(entry.Value)
		if !ok || !ok2 || !isText {
			return nil, false
		}
		values[name] = value
	}
	return values, true
}

func literalScalar(x *syntax.Literal) (any, bool) {
	switch v := x.Value.(type) {
	case string:
		return v, x.Token == syntax.STRING
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), true
	case *big.Int:
		return json.Number(v.String()), true
	case float64:
		return json.Number(strconv.FormatFloat(v, 'g', -1, 64)), true
	}
	return nil, false
}

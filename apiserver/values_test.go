// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// constantsOf are the values of all constants of a type in the sources of a package.
func constantsOf(t *testing.T, dir, typeName string) (values []string) {
	t.Helper()
	packages, err := parser.ParseDir(token.NewFileSet(), dir, nil, 0) //nolint:staticcheck // build tags do not matter here
	require.NoError(t, err)
	for _, p := range packages {
		ast.Inspect(p, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if named, ok := spec.Type.(*ast.Ident); ok && named.Name == typeName && len(spec.Values) == 1 {
				if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
					text, err := strconv.Unquote(literal.Value)
					require.NoError(t, err)
					values = append(values, text)
				}
			}
			return true
		})
	}
	require.NotEmpty(t, values, typeName)
	slices.Sort(values)
	return slices.Compact(values)
}

// TestEnumerationsHaveWhatTheStoreKnows: no value is answered that is not described.
func TestEnumerationsHaveWhatTheStoreKnows(t *testing.T) {
	t.Parallel()
	_, schemas := described(t)
	for name, typeName := range map[string]string{
		"RunStatus": "RunStatus", "ConnectorRunStatus": "ConnectorRunStatus", "DeploymentStatus": "DeploymentStatus",
		"DeploymentPhase": "DeploymentPhase", "FailureReason": "FailureReason", "TriggerType": "TriggerType",
		"AuditActorKind": "AuditActorKind",
	} {
		t.Run(name, func(t *testing.T) {
			var described []string
			for _, v := range schemas[name].(node)["enum"].([]any) {
				described = append(described, v.(string))
			}
			slices.Sort(described)
			require.Equal(t, constantsOf(t, "../store", typeName), described)
		})
	}
}

// TestWordsOfKubernetesAndOfTheAPIAreTheSameValues: there and back.
func TestWordsOfKubernetesAndOfTheAPIAreTheSameValues(t *testing.T) {
	t.Parallel()
	_, schemas := described(t)
	for _, word := range schemas["ConnectorMode"].(node)["enum"].([]any) {
		mode := v1alpha1.ConnectorModeOf(word.(string))
		require.NotEmpty(t, mode, word)
		require.Equal(t, word, mode.Word())
	}
	for _, kind := range []v1alpha1.EnvironmentKind{v1alpha1.EnvironmentStandard, v1alpha1.EnvironmentTest} {
		require.Contains(t, schemas["EnvironmentKind"].(node)["enum"], kind.Word())
	}
	var permissions []any
	for _, p := range v1alpha1.Permissions() {
		permissions = append(permissions, string(p))
	}
	require.Equal(t, permissions, schemas["Permission"].(node)["enum"])
	for name := range timeRanges {
		require.Contains(t, schemas["TimeRange"].(node)["enum"], string(name))
	}
	require.Len(t, schemas["TimeRange"].(node)["enum"], len(timeRanges))
}

func TestWhatMayBeNull(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{
		"null":                          Null[Cost]{},
		`{"currency":"EUR","amount":1}`: Null[Cost]{Value: &Cost{Currency: "EUR", Amount: 1}},
		`"testing"`:                     word[DeploymentPhase]("testing"),
		`{"a":1}`:                       Object(`{"a":1}`),
		`"x"`:                           opt("x"),
	} {
		t.Run(want, func(t *testing.T) {
			text, err := json.Marshal(value)
			require.NoError(t, err)
			require.JSONEq(t, want, string(text))
		})
	}
	for _, none := range []any{word[DeploymentPhase](""), Object(nil), opt(""), optTime(nil), optID(nil), Null[Cost]{}} {
		text, err := json.Marshal(none)
		require.NoError(t, err)
		require.Equal(t, "null", string(text), "%T", none)
	}
	var cost Null[Cost]
	require.NoError(t, json.Unmarshal([]byte(`{"currency":"USD","amount":2}`), &cost))
	require.Equal(t, Currency("USD"), cost.Value.Currency)
	require.NoError(t, json.Unmarshal([]byte(`null`), &cost))
	require.Nil(t, cost.Value)
	var object Object
	require.NoError(t, json.Unmarshal([]byte(`{"b":2}`), &object))
	require.JSONEq(t, `{"b":2}`, string(object))
	require.NoError(t, json.Unmarshal([]byte(`null`), &object))
	require.Nil(t, object)
}

func TestTimesAndIDsAsTheyAreShown(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	require.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC), *optTime(&at))
	later := at.Add(1500 * time.Millisecond)
	require.EqualValues(t, 1500, *elapsed(&at, &later))
	require.Nil(t, elapsed(nil, &later))
	require.Nil(t, elapsed(&at, nil))
	id := uuid.MustParse("2B1F6C1E-6D0C-4D2A-9A53-6A0B8D9B7F10")
	require.Equal(t, strings.ToLower("2B1F6C1E-6D0C-4D2A-9A53-6A0B8D9B7F10"), *optID(&id))
	require.Equal(t, []string{}, texts(nil))
	require.Equal(t, []string{id.String()}, texts([]uuid.UUID{id}))
}

// TestCursorsAreOfOneListAndOneForm: what was given is taken back.
func TestCursorsAreOfOneListAndOneForm(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	for _, list := range []byte{runCursor, auditCursor} {
		text := *cursorAfter(list, id)
		require.Regexp(t, `^[A-Za-z0-9_-]+$`, text, "it stands in a URL as it is")
		got, err := readCursor(list, text)
		require.NoError(t, err)
		require.Equal(t, id, *got)
		for _, bad := range []string{"", text + "A", text[1:], text + "=", "!" + text[1:], id.String()} {
			_, err := readCursor(list, bad)
			require.Error(t, err, bad)
		}
	}
	_, err := readCursor(runCursor, *cursorAfter(auditCursor, id))
	require.Error(t, err)
}

// TestAFieldThatStandsTwice: in an object, not in two.
func TestAFieldThatStandsTwice(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{}`: "", `[]`: "", `"a"`: "", `1`: "", `null`: "",
		`{"a":1,"b":1}`:                 "",
		`{"a":1,"a":2}`:                 "a",
		`{"a":"a","b":"a"}`:             "",
		`{"a":{"a":{"a":1}}}`:           "",
		`{"a":{"b":1},"b":{"a":1}}`:     "",
		`{"a":{"b":1,"b":1}}`:           "a.b",
		`[{"a":1},{"a":1}]`:             "",
		`[{"a":1},{"a":1,"a":1}]`:       "[1].a",
		`{"a":[1,2,"a","a"],"b":[]}`:    "",
		`{"a":[{"x":1}],"c":{},"a":[]}`: "a",
		`{"a":1,"\u0061":2}`:            "a",
	} {
		t.Run(text, func(t *testing.T) {
			var into any
			err := readJSON([]byte(text), &into)
			if want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, fmt.Sprintf("the body has the field %q twice", want))
		})
	}
}

func TestETagsThatMatch(t *testing.T) {
	t.Parallel()
	o := &v1alpha1.Connector{}
	o.UID, o.Generation = "u", 3
	require.Equal(t, `"u.3"`, etag(o))
	for header, want := range map[string]bool{
		"": true, "*": true, `"u.3"`: true, `"x", "u.3"`: true, `"u.3","x"`: true,
		`"u.2"`: false, `W/"u.3"`: false, `"x", W/"u.3"`: false, `"u.33"`: false, `"U.3"`: false,
	} {
		t.Run(header, func(t *testing.T) {
			require.Equal(t, want, (&caller{ifMatch: header}).mustMatch(o) == nil)
		})
	}
	for header, want := range map[string]bool{
		"*": true, `"a"`: true, `"a", "b"`: true, `W/"a","b"`: true, `""`: true,
		"a": false, `"a`: false, `"a" "b"`: false, `"a",`: false, `*, "a"`: false, `w/"a"`: false,
	} {
		t.Run(header, func(t *testing.T) {
			require.Equal(t, want, entityTags.MatchString(header))
		})
	}
}

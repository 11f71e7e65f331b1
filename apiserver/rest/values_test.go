// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

type amount struct {
	Currency string  `json:"currency"`
	Amount   float64 `json:"amount"`
}

type phase string

func TestNull_Decodes(t *testing.T) {
	t.Parallel()
	for want, value := range map[string]any{
		"null":                          Null[amount]{},
		`{"currency":"EUR","amount":1}`: Null[amount]{Value: &amount{Currency: "EUR", Amount: 1}},
		`"testing"`:                     OptionalWord[phase]("testing"),
		`{"a":1}`:                       Object(`{"a":1}`),
		`"x"`:                           Optional("x"),
	} {
		t.Run(want, func(t *testing.T) {
			text, err := json.Marshal(value)
			require.NoError(t, err)
			require.JSONEq(t, want, string(text))
		})
	}
	for _, none := range []any{OptionalWord[phase](""), Object(nil), Optional(""), OptionalTime(nil), OptionalID(nil), Null[amount]{}} {
		text, err := json.Marshal(none)
		require.NoError(t, err)
		require.Equal(t, "null", string(text), "%T", none)
	}
	var cost Null[amount]
	require.NoError(t, json.Unmarshal([]byte(`{"currency":"USD","amount":2}`), &cost))
	require.Equal(t, "USD", cost.Value.Currency)
	require.NoError(t, json.Unmarshal([]byte(`null`), &cost))
	require.Nil(t, cost.Value)
	var object Object
	require.NoError(t, json.Unmarshal([]byte(`{"b":2}`), &object))
	require.JSONEq(t, `{"b":2}`, string(object))
	require.NoError(t, json.Unmarshal([]byte(`null`), &object))
	require.Nil(t, object)
}

func TestMoment_Parses(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	require.Equal(t, time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC), *OptionalTime(&at))
	later := at.Add(1500 * time.Millisecond)
	require.EqualValues(t, 1500, *ElapsedMS(&at, &later))
	require.Nil(t, ElapsedMS(nil, &later))
	require.Nil(t, ElapsedMS(&at, nil))
	id := uuid.MustParse("2B1F6C1E-6D0C-4D2A-9A53-6A0B8D9B7F10")
	require.Equal(t, strings.ToLower("2B1F6C1E-6D0C-4D2A-9A53-6A0B8D9B7F10"), *OptionalID(&id))
	require.Equal(t, []string{}, IDTexts(nil))
	require.Equal(t, []string{id.String()}, IDTexts([]uuid.UUID{id}))
}

// A cursor of a response is valid in a request to the same list.
func TestCursor_BelongsToOneList(t *testing.T) {
	t.Parallel()
	id := uuid.New()
	for _, list := range []byte{RunCursor, AuditCursor} {
		text := *NewCursor(list, id)
		require.Regexp(t, `^[A-Za-z0-9_-]+$`, text, "it stands in a URL as it is")
		got, err := readCursor(list, text)
		require.NoError(t, err)
		require.Equal(t, id, *got)
		for _, bad := range []string{"", text + "A", text[1:], text + "=", "!" + text[1:], id.String()} {
			_, err := readCursor(list, bad)
			require.Error(t, err, bad)
		}
	}
	_, err := readCursor(RunCursor, *NewCursor(AuditCursor, id))
	require.Error(t, err)
}

// The last page has no cursor, unless the store stopped before the end of the list.
func TestCutPage_ReturnsCursorOfNextPage(t *testing.T) {
	t.Parallel()
	ids := []uuid.UUID{uuid.New(), uuid.New(), uuid.New()}
	for name, c := range map[string]struct {
		read int        // items that the store returned
		last *uuid.UUID // where the store stopped
		page int
		next *string
	}{
		"no items":                  {0, nil, 0, nil},
		"full last page":            {2, nil, 2, nil},
		"more items":                {3, nil, 2, NewCursor(RunCursor, ids[1])},
		"short page":                {1, &ids[2], 1, NewCursor(RunCursor, ids[2])},
		"more items than the limit": {3, &ids[2], 2, NewCursor(RunCursor, ids[1])},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := PageQuery{Limit: 2}
			page, next := CutPage(q, RunCursor, ids[:c.read], c.last, func(id uuid.UUID) uuid.UUID { return id })
			require.Equal(t, ids[:c.page], page)
			require.Equal(t, c.next, next)
			require.LessOrEqual(t, c.read, q.ReadLimit())
		})
	}
}

// The same name in two objects is valid.
func TestBody_RejectsDuplicateFields(t *testing.T) {
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

// The error of a value of another type states the type to send.
func TestBody_StatesTheExpectedType(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"integer":60.5}`: "must be an integer, not a JSON number 60.5",
		`{"integer":"60"}`: "must be an integer, not a JSON string",
		`{"text":1}`:       "must be a string, not a JSON number",
		`{"flag":"yes"}`:   "must be true or false, not a JSON string",
		`{"list":{}}`:      "must be a list, not a JSON object",
		`{"object":[]}`:    "must be an object, not a JSON array",
		`{"number":"1"}`:   "must be a number, not a JSON string",
		`{"id":1}`:         "must be a string, not a JSON number",
		`{"other":true}`:   "must be a string, not a JSON bool",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var into struct {
				Integer *int               `json:"integer"`
				Number  float64            `json:"number"`
				Text    string             `json:"text"`
				Flag    *bool              `json:"flag"`
				List    []string           `json:"list"`
				Object  map[string]float64 `json:"object"`
				ID      uuid.UUID          `json:"id"`
				Other   *uuid.UUID         `json:"other"`
			}
			require.EqualError(t, readJSON([]byte(text), &into), want)
		})
	}
}

func TestMustMatch_ComparesETags(t *testing.T) {
	t.Parallel()
	o := &v1alpha1.Connector{}
	o.UID, o.Generation = "u", 3
	require.Equal(t, `"u.3"`, ETag(o))
	for header, want := range map[string]bool{
		"": true, "*": true, `"u.3"`: true, `"x", "u.3"`: true, `"u.3","x"`: true,
		`"u.2"`: false, `W/"u.3"`: false, `"x", W/"u.3"`: false, `"u.33"`: false, `"U.3"`: false,
	} {
		t.Run(header, func(t *testing.T) {
			require.Equal(t, want, (&Caller{ifMatch: header}).CheckMatch(o) == nil)
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

// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

const canary = `k4nary-"sëcret" <&> 1/2+3`

// A value is found in the encodings that services return.
func TestSecrets_FindsEncodedValues(t *testing.T) {
	t.Parallel()
	var s Secrets
	s.Add(" "+canary+"\n", "abc", "first line of the key\nend\nthird line of the key")
	inBase64 := base64.StdEncoding.EncodeToString([]byte("user:" + canary + "!"))
	for _, row := range []struct{ name, text, want string }{
		{"plain", "Bearer " + canary, "Bearer [REDACTED]"},
		{"query", "k=k4nary-%22s%C3%ABcret%22+%3C%26%3E+1%2F2%2B3&a=b", "k=[REDACTED]&a=b"},
		{"query in lower case", "k4nary-%22s%c3%abcret%22+%3c%26%3e+1%2f2%2b3", "[REDACTED]"},
		{"path", "/k4nary-%22s%C3%ABcret%22%20%3C&%3E%201%2F2+3", "/[REDACTED]"},
		{"html", "k4nary-&#34;sëcret&#34; &lt;&amp;&gt; 1/2+3", "[REDACTED]"},
		{"json", `{"a":"k4nary-\"sëcret\" <&> 1/2+3"}`, `{"a":"[REDACTED]"}`},
		{"json for html", `k4nary-\"sëcret\" \u003c\u0026\u003e 1/2+3`, "[REDACTED]"},
		{"json in ascii", `k4nary-\"s\u00ebcret\" <&> 1/2+3`, "[REDACTED]"},
		{"base64", base64.StdEncoding.EncodeToString([]byte(canary)), "[REDACTED]"},
		{"base64 for urls", base64.RawURLEncoding.EncodeToString([]byte(canary)), "[REDACTED]"},
		{"basic authorization", inBase64, ""},
		{"line of a key", "third line of the key", "[REDACTED]"},
		{"short line", "the end", "the end"},
		{"short value", "abc", "abc"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := s.RedactText(row.text)
			if row.name == "basic authorization" {
				require.Contains(t, got, SecretMask)
				require.Less(t, len(got), len(SecretMask)+12, "nothing of the value is left")
				return
			}
			require.Equal(t, row.want, got)
		})
	}
}

// A text overlaps a secret if it has the secret or is a part of it.
func TestSecrets_Overlaps(t *testing.T) {
	t.Parallel()
	var s Secrets
	s.Add("https://crm.example/k4nary", "acme")
	for text, want := range map[string]bool{"crm.example": true, "acme.example": true, "other.example": false} {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, want, s.Overlaps(text))
			require.False(t, (*Secrets)(nil).Overlaps(text))
		})
	}
}

// A value in base64 is found at every position of a longer text.
func TestSecrets_FindsAllAlignmentsOfBase64(t *testing.T) {
	t.Parallel()
	var s Secrets
	s.Add("0123456789abcdef")
	for _, before := range []string{"", "u", "us", "use"} {
		for _, after := range []string{"", "a", "ab"} {
			t.Run("between "+before+" and "+after, func(t *testing.T) {
				text := base64.StdEncoding.EncodeToString([]byte(before + "0123456789abcdef" + after))
				require.Contains(t, s.RedactText(text), SecretMask)
			})
		}
	}
}

func TestSecrets_RedactsValues(t *testing.T) {
	t.Parallel()
	var none *Secrets
	require.Equal(t, "a", none.RedactValue("a"))
	require.Equal(t, "a", new(Secrets).RedactText("a"))
	var s Secrets
	s.Add("1234567")
	got := s.RedactValue(map[string]any{"x1234567": []any{"a1234567", json.Number("12345678"), true, nil}, "b": json.Number("1")})
	require.Equal(t, map[string]any{"x[REDACTED]": []any{"a[REDACTED]", "[REDACTED]8", true, nil}, "b": json.Number("1")}, got)
}

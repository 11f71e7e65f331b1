// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"testing"

	"github.com/google/uuid"

	"github.com/stretchr/testify/require"
)

// Each part changes the derived name, and only the owner of the API key can compute it.
func TestDerived_DependsOnEachPart(t *testing.T) {
	t.Parallel()
	base := func() *Caller {
		return &Caller{ProjectID: uuid.Max, IdempotencyKey: "k", Endpoint: &Endpoint{ID: "createConnector"}, proof: [32]byte{1}}
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*Caller) string{
		"itself":                  func(*Caller) string { return "connector" },
		"another noun":            func(*Caller) string { return "link" },
		"another key":             func(c *Caller) string { c.IdempotencyKey = "k2"; return "connector" },
		"another route":           func(c *Caller) string { c.Endpoint = &Endpoint{ID: "createLink"}; return "connector" },
		"another API key":         func(c *Caller) string { c.proof = [32]byte{2}; return "connector" },
		"another project":         func(c *Caller) string { c.ProjectID = uuid.Nil; return "connector" },
		"parts that run together": func(c *Caller) string { c.IdempotencyKey = "kc"; return "onnector" },
	} {
		t.Run(name, func(t *testing.T) {
			c := base()
			noun := change(c)
			got := string(c.DeriveBytes(noun))
			require.Empty(t, seen[got], "%s and %s", name, seen[got])
			seen[got] = name
			require.Equal(t, got, string(c.DeriveBytes(noun)))
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// A repeated request with the same key is the same call, and another request with the key is rejected. A stale ETag
// rejects the call.
func TestEndpoints_RespectIdempotencyKeyAndIfMatch(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	mutating := 0
	for _, r := range apiservertest.SupportedEndpoints(t) {
		if r.Method == http.MethodGet {
			require.Equal(t, rest.EffectNone, r.Effect, r.ID)
			continue
		}
		mutating++
		require.NotEqual(t, rest.EffectNone, r.Effect, "%s must say what it does", r.ID)
		s, ids := rest.Example{Path: r.Example.Path, Body: apiservertest.ExampleBody(r)}, w.NewObjects(t)
		path, content := apiservertest.FillPath(t, s.Path, ids), bodyFor(r)

		stale := w.Request(t, key, r.Method, path, content, "If-Match", `"somebody.7"`)
		if r.Effect != rest.EffectUpdate {
			apiservertest.RequireField(t, stale.Code, stale.Body.Bytes(), "header.If-Match")
		} else {
			require.Equal(t, http.StatusPreconditionFailed, stale.Code, "%s: %s", r.ID, stale.Body)
			require.Equal(t, httpserver.CodePrecondition, apiservertest.Decode[rest.Problem](t, stale.Body.Bytes()).Code)
			malformed := w.Request(t, key, r.Method, path, content, "If-Match", `somebody.7`)
			apiservertest.RequireField(t, malformed.Code, malformed.Body.Bytes(), "header.If-Match")
		}
		for _, headers := range [][]string{
			{"Idempotency-Key", strings.Repeat("k", 256)}, {"Idempotency-Key", ""}, {"Idempotency-Key", "k", "Idempotency-Key", "l"},
		} {
			refused := w.Request(t, key, r.Method, path, content, headers...)
			apiservertest.RequireField(t, refused.Code, refused.Body.Bytes(), "header.Idempotency-Key")
		}

		repeated := "key-" + uuid.NewString()
		first := w.Request(t, key, r.Method, path, content, "Idempotency-Key", repeated)
		require.Equal(t, r.Status, first.Code, "%s: %s", r.ID, first.Body)
		connectors, links := w.CountObjects(t)
		second := w.Request(t, key, r.Method, path, content, "Idempotency-Key", repeated)
		require.Equal(t, r.Status, second.Code, "%s: %s", r.ID, second.Body)
		require.JSONEq(t, first.Body.String(), second.Body.String(), r.ID)
		require.Equal(t, first.Header().Get("Location"), second.Header().Get("Location"))
		require.Equal(t, first.Header().Get("ETag"), second.Header().Get("ETag"))
		nowConnectors, nowLinks := w.CountObjects(t)
		require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks}, "%s: nothing is done twice", r.ID)
		if s.Body == "" {
			continue
		}
		other := w.Request(t, key, r.Method, path, strings.Replace(content, "{", "{ ", 1), "Idempotency-Key", repeated)
		require.Equal(t, http.StatusUnprocessableEntity, other.Code, "%s: %s", r.ID, other.Body)
		require.Equal(t, httpserver.CodeKeyReused, apiservertest.Decode[rest.Problem](t, other.Body.Bytes()).Code)
		ids = w.NewObjects(t)
		ids["environment"] = w.EnvironmentID("staging")
		if apiservertest.FillPath(t, s.Path, ids) == path {
			continue // it is of the project
		}
		elsewhere := w.Request(t, key, r.Method, apiservertest.FillPath(t, s.Path, ids), content, "Idempotency-Key", repeated)
		require.Equal(t, http.StatusUnprocessableEntity, elsewhere.Code, "%s, the same body elsewhere: %s", r.ID, elsewhere.Body)
		require.Equal(t, httpserver.CodeKeyReused, apiservertest.Decode[rest.Problem](t, elsewhere.Body.Bytes()).Code)
	}
	require.NotZero(t, mutating)
}

// The Location and the ETag are valid on another replica at once.
func TestCreate_IsVisibleOnEveryReplica(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	other := w.NewReplica(t, nil)
	key := w.CreateKey(t, nil) // which none of both has seen
	for _, r := range apiservertest.SupportedEndpoints(t) {
		if r.Status != http.StatusCreated {
			continue
		}
		made := w.Request(t, key, r.Method, apiservertest.FillPath(t, r.Example.Path, w.NewObjects(t)), bodyFor(r))
		require.Equal(t, http.StatusCreated, made.Code, "%s: %s", r.ID, made.Body)
		require.NotEmpty(t, made.Header().Get("Location"), r.ID)
		got := w.SendTo(t, other, key, http.MethodGet, made.Header().Get("Location"), "")
		require.Equal(t, http.StatusOK, got.Code, "%s: %s", r.ID, got.Body)
		require.JSONEq(t, made.Body.String(), got.Body.String())
		require.Equal(t, made.Header().Get("ETag"), got.Header().Get("ETag"))
		if r.HasETag {
			require.Regexp(t, `^"[0-9a-f-]{36}\.1"$`, got.Header().Get("ETag"))
		}
	}
}

func TestETag_IsReturnedForSingleObjects(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for _, r := range apiservertest.SupportedEndpoints(t) {
		answer := w.Request(t, key, r.Method, apiservertest.FillPath(t, r.Example.Path, idsForExample(t, w, r)), bodyFor(r))
		require.Equal(t, r.HasETag, answer.Header().Get("ETag") != "", r.ID)
		require.False(t, r.HasETag && strings.HasPrefix(r.ID, "list"), r.ID)
		require.Equal(t, "no-store", answer.Header().Get("Cache-Control"), r.ID)
	}
}

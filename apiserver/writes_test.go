// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// objects counts connectors and links.
func (w *world) objects(t testing.TB) (connectors, links int) {
	t.Helper()
	var (
		c v1alpha1.ConnectorList
		l v1alpha1.ConnectorLinkList
	)
	require.NoError(t, w.client.List(t.Context(), &c, client.InNamespace(w.namespace)))
	require.NoError(t, w.client.List(t.Context(), &l, client.InNamespace(w.namespace)))
	return len(c.Items), len(l.Items)
}

// between is a client that fails what is told of it.
func (w *world) between(fail func(verb string, o client.Object) error) func() {
	working := w.server.client
	w.server.client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := fail("create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := fail("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	return func() { w.server.client = working }
}

// TestEveryMutatingRouteHeedsBothHeaders: a repetition under the same key is the
// same call, another one under it is refused; a stale ETag stops the call.
func TestEveryMutatingRouteHeedsBothHeaders(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	mutating := 0
	for _, r := range served(t) {
		if !changes(r.method) {
			require.Equal(t, reads, r.does, r.id)
			continue
		}
		mutating++
		require.NotEqual(t, reads, r.does, "%s must say what it does", r.id)
		s, ids := samples[r.id], w.fresh(t)
		path, content := s.fill(t, ids), bodyFor(r)

		stale := w.ask(t, key, r.method, path, content, "If-Match", `"somebody.7"`)
		if r.does != alters {
			requireField(t, stale.Code, stale.Body.Bytes(), "header.If-Match")
		} else {
			require.Equal(t, http.StatusPreconditionFailed, stale.Code, "%s: %s", r.id, stale.Body)
			require.Equal(t, httpserver.CodePrecondition, decode[Problem](t, stale.Body.Bytes()).Code)
			malformed := w.ask(t, key, r.method, path, content, "If-Match", `somebody.7`)
			requireField(t, malformed.Code, malformed.Body.Bytes(), "header.If-Match")
		}
		for _, headers := range [][]string{
			{"Idempotency-Key", strings.Repeat("k", 256)}, {"Idempotency-Key", ""}, {"Idempotency-Key", "k", "Idempotency-Key", "l"},
		} {
			refused := w.ask(t, key, r.method, path, content, headers...)
			requireField(t, refused.Code, refused.Body.Bytes(), "header.Idempotency-Key")
		}

		repeated := "key-" + uuid.NewString()
		first := w.ask(t, key, r.method, path, content, "Idempotency-Key", repeated)
		require.Equal(t, r.status, first.Code, "%s: %s", r.id, first.Body)
		connectors, links := w.objects(t)
		second := w.ask(t, key, r.method, path, content, "Idempotency-Key", repeated)
		require.Equal(t, r.status, second.Code, "%s: %s", r.id, second.Body)
		require.JSONEq(t, first.Body.String(), second.Body.String(), r.id)
		require.Equal(t, first.Header().Get("Location"), second.Header().Get("Location"))
		require.Equal(t, first.Header().Get("ETag"), second.Header().Get("ETag"))
		nowConnectors, nowLinks := w.objects(t)
		require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks}, "%s: nothing is done twice", r.id)
		if s.body == "" {
			continue
		}
		other := w.ask(t, key, r.method, path, strings.Replace(content, "{", "{ ", 1), "Idempotency-Key", repeated)
		require.Equal(t, http.StatusUnprocessableEntity, other.Code, "%s: %s", r.id, other.Body)
		require.Equal(t, httpserver.CodeKeyReused, decode[Problem](t, other.Body.Bytes()).Code)
		ids = w.fresh(t)
		ids["environment"] = w.environmentID("staging")
		if s.fill(t, ids) == path {
			continue // it is of the project
		}
		elsewhere := w.ask(t, key, r.method, s.fill(t, ids), content, "Idempotency-Key", repeated)
		require.Equal(t, http.StatusUnprocessableEntity, elsewhere.Code, "%s, the same body elsewhere: %s", r.id, elsewhere.Body)
		require.Equal(t, httpserver.CodeKeyReused, decode[Problem](t, elsewhere.Body.Bytes()).Code)
	}
	require.NotZero(t, mutating)
}

// TestANameUnderAnIdempotencyKeyIsNobodyElses: each part of what it derives from
// makes another one, and only who has the API key can tell it.
func TestANameUnderAnIdempotencyKeyIsNobodyElses(t *testing.T) {
	t.Parallel()
	base := func() *caller {
		return &caller{projectID: uuid.Max, idempotencyKey: "k", route: &route{id: "createConnector"}, proof: [32]byte{1}}
	}
	seen := map[string]string{}
	for name, change := range map[string]func(*caller) string{
		"itself":                  func(*caller) string { return "connector" },
		"another noun":            func(*caller) string { return "link" },
		"another key":             func(c *caller) string { c.idempotencyKey = "k2"; return "connector" },
		"another route":           func(c *caller) string { c.route = &route{id: "createLink"}; return "connector" },
		"another API key":         func(c *caller) string { c.proof = [32]byte{2}; return "connector" },
		"another project":         func(c *caller) string { c.projectID = uuid.Nil; return "connector" },
		"parts that run together": func(c *caller) string { c.idempotencyKey = "kc"; return "onnector" },
	} {
		t.Run(name, func(t *testing.T) {
			c := base()
			noun := change(c)
			got := string(c.derived(noun))
			require.Empty(t, seen[got], "%s and %s", name, seen[got])
			seen[got] = name
			require.Equal(t, got, string(c.derived(noun)))
		})
	}
}

func TestWhatIsCreatedUnderAKeyIsNamedByIt(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	answer := w.ask(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.ids["environment"],
		`{"name":"Köln","type":"webhook"}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
	made := decode[Connector](t, answer.Body.Bytes())
	require.EqualValues(t, 4, uuid.MustParse(made.ID).Version())
	require.Equal(t, uuid.RFC4122, uuid.MustParse(made.ID).Variant())
	var list v1alpha1.ConnectorList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace), client.MatchingFields{"spec.id": made.ID}))
	require.Len(t, list.Items, 1)
	require.Regexp(t, `^connector-[a-z2-7]{16}$`, list.Items[0].Name)
	require.Len(t, list.Items[0].Annotations[annotationRequest], 64)
	var links v1alpha1.ConnectorLinkList
	require.NoError(t, w.client.List(t.Context(), &links, client.InNamespace(w.namespace), client.MatchingFields{"spec.connector": list.Items[0].Name}))
	require.Len(t, links.Items, 1)
	require.Regexp(t, `^link-[a-z2-7]{16}$`, links.Items[0].Name)

	list.Items[0].Annotations = nil
	require.NoError(t, w.client.Update(t.Context(), &list.Items[0]))
	forgotten := w.ask(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.ids["environment"],
		`{"name":"Köln","type":"webhook"}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusUnprocessableEntity, forgotten.Code, "which request made it is not known any more: %s", forgotten.Body)
	require.Equal(t, httpserver.CodeKeyReused, decode[Problem](t, forgotten.Body.Bytes()).Code)
	other := w.ask(t, w.key(t, nil), http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.ids["environment"],
		`{"name":"Bonn","type":"webhook"}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusCreated, other.Code, "another API key's keys are its own: %s", other.Body)
}

// TestARepetitionCompletesWhatACrashLeft: it is cut off between both creates, once
// by an outage and once so that nothing is taken back.
func TestARepetitionCompletesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	post := func(name string, headers ...string) int {
		return w.ask(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.ids["environment"],
			`{"name":"`+name+`","type":"webhook"}`, headers...).Code
	}
	connectors, links := w.objects(t)
	requireMade := func(moreConnectors, moreLinks int, what string) {
		nowConnectors, nowLinks := w.objects(t)
		require.Equal(t, []int{moreConnectors, moreLinks}, []int{nowConnectors - connectors, nowLinks - links}, what)
	}
	noLinks := func(verb string, o client.Object) error {
		if _, link := o.(*v1alpha1.ConnectorLink); link && verb == "create" {
			return apierrors.NewServiceUnavailable("restarting")
		}
		return nil
	}
	heal := w.between(noLinks)
	require.Equal(t, http.StatusServiceUnavailable, post("One"))
	requireMade(0, 0, "without a key it is taken back")
	require.Equal(t, http.StatusServiceUnavailable, post("One", "Idempotency-Key", "one"))
	requireMade(1, 0, "under a key it is left to the repetition")
	heal()
	require.Equal(t, http.StatusCreated, post("One", "Idempotency-Key", "one"))
	requireMade(1, 1, "which completes it")

	heal = w.between(func(verb string, o client.Object) error {
		if _, link := o.(*v1alpha1.ConnectorLink); link && verb == "create" {
			return apierrors.NewForbidden(connectorResource, "x", errors.New("exceeded quota: links"))
		}
		return nil
	})
	require.Equal(t, http.StatusForbidden, post("Two", "Idempotency-Key", "two"))
	requireMade(1, 1, "what is refused for good is taken back")
	heal()

	heal = w.between(func(verb string, o client.Object) error {
		if verb == "delete" {
			return errors.New("crashed")
		}
		return noLinks(verb, o)
	})
	require.Equal(t, http.StatusServiceUnavailable, post("Three", "Idempotency-Key", "three"))
	heal()
	require.Equal(t, http.StatusCreated, post("Three", "Idempotency-Key", "three"))
	requireMade(2, 2, "")
}

// TestADeletedConnectorIsGoneWithItsLinks: and the ETag that it was named by counts.
func TestADeletedConnectorIsGoneWithItsLinks(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, ids := w.key(t, nil), w.fresh(t)
	path := "/connectors/" + ids["connector"]
	connectors, links := w.objects(t)
	tag := w.ask(t, key, http.MethodGet, path, "").Header().Get("ETag")
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodGet, path+"/links/"+ids["link"], "").Code)
	require.Equal(t, http.StatusPreconditionFailed, w.ask(t, key, http.MethodDelete, path, "", "If-Match", "W/"+tag).Code, "a weak tag never matches")
	answer := w.ask(t, key, http.MethodDelete, path, "", "If-Match", `"other", `+tag)
	require.Equal(t, http.StatusOK, answer.Code, "%s", answer.Body)
	require.JSONEq(t, `{"ok":true}`, answer.Body.String())
	nowConnectors, nowLinks := w.objects(t)
	require.Equal(t, []int{1, 1}, []int{connectors - nowConnectors, links - nowLinks})
	for _, gone := range []string{path, path + "/links", path + "/links/" + ids["link"]} {
		require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodGet, gone, "").Code, gone)
	}
	require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodDelete, path, "").Code, "again, without a key")
	require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodDelete, path, "", "Idempotency-Key", "k").Code, "again, under a key of its own")
	require.Equal(t, http.StatusNotFound, w.ask(t, w.key(t, nil), http.MethodDelete, path, "", "Idempotency-Key", "k").Code, "by another API key")
	require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodDelete, "/connectors/"+uuid.NewString(), "", "Idempotency-Key", "k").Code, "what never was")
}

func TestADeletedLinkLeavesItsConnector(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, ids, others := w.key(t, nil), w.fresh(t), w.fresh(t)
	path := "/connectors/" + ids["connector"] + "/links/"
	require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodDelete, path+others["link"], "").Code, "the link of another connector")
	require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodDelete, path+ids["connector"], "").Code, "an id of another kind")
	tag := w.ask(t, key, http.MethodGet, path+ids["link"], "").Header().Get("ETag")
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, path+ids["link"], "", "If-Match", tag).Code)
	require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodGet, path+ids["link"], "").Code)
	_, body := w.call(t, key, http.MethodGet, "/connectors/"+ids["connector"], "")
	require.Empty(t, decode[Connector](t, body).Agents)
	_, body = w.call(t, key, http.MethodGet, "/connectors/"+others["connector"], "")
	require.Equal(t, []string{"hello"}, decode[Connector](t, body).Agents)
}

// TestWhatIsDeletedIsWhatTheETagNamed: somebody changes it between the look and the
// deletion; a controller that writes the status meanwhile is nobody.
func TestWhatIsDeletedIsWhatTheETagNamed(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for name, c := range map[string]struct {
		change func(*v1alpha1.Connector)
		status bool
		want   int
	}{
		"the spec":    {func(c *v1alpha1.Connector) { c.Spec.SecretVersion++ }, false, http.StatusPreconditionFailed},
		"the status":  {func(c *v1alpha1.Connector) { c.Status.SecretVersion++ }, true, http.StatusOK},
		"now in code": {func(c *v1alpha1.Connector) { c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"} }, false, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			ids := w.fresh(t)
			path := "/connectors/" + ids["connector"]
			tag := w.ask(t, key, http.MethodGet, path, "").Header().Get("ETag")
			changed := false
			heal := w.between(func(verb string, o client.Object) error {
				conn, ok := o.(*v1alpha1.Connector)
				if !ok || changed {
					return nil
				}
				changed = true
				now := conn.DeepCopy()
				c.change(now)
				if c.status {
					return w.client.Status().Update(t.Context(), now)
				}
				return w.client.Update(t.Context(), now)
			})
			answer := w.ask(t, key, http.MethodDelete, path, "", "If-Match", tag)
			heal()
			require.Equal(t, c.want, answer.Code, "%s", answer.Body)
			require.True(t, changed)
			left := w.ask(t, key, http.MethodGet, path+"/links/"+ids["link"], "").Code
			require.Equal(t, c.want == http.StatusOK, left == http.StatusNotFound, "what is not deleted keeps its links")
		})
	}
}

// TestADeletionIsRefusedBeforeAnythingIsDeleted: such as by a policy of the cluster.
func TestADeletionIsRefusedBeforeAnythingIsDeleted(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, ids := w.key(t, nil), w.fresh(t)
	connectors, links := w.objects(t)
	heal := w.between(func(_ string, o client.Object) error {
		if _, ok := o.(*v1alpha1.Connector); ok {
			return apierrors.NewForbidden(connectorResource, o.GetName(), errors.New("a policy keeps it"))
		}
		return nil
	})
	require.Equal(t, http.StatusForbidden, w.ask(t, key, http.MethodDelete, "/connectors/"+ids["connector"], "").Code)
	heal()
	nowConnectors, nowLinks := w.objects(t)
	require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks})
}

// TestADeletionThatLeavesLinksSaysSo: their connector is gone, and a repetition is
// told so; the audit log has what was deleted.
func TestADeletionThatLeavesLinksSaysSo(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	for name, refusal := range map[string]error{
		"an outage": apierrors.NewServiceUnavailable("restarting"),
		"a policy":  apierrors.NewForbidden(connectorResource, "x", errors.New("a policy keeps it")),
	} {
		t.Run(name, func(t *testing.T) {
			key, ids := w.key(t, nil), w.fresh(t)
			path := "/connectors/" + ids["connector"]
			heal := w.between(func(_ string, o client.Object) error {
				if _, ok := o.(*v1alpha1.ConnectorLink); ok {
					return refusal
				}
				return nil
			})
			answer := w.ask(t, key, http.MethodDelete, path, "", "Idempotency-Key", "k")
			heal()
			require.Equal(t, http.StatusInternalServerError, answer.Code)
			require.Contains(t, decode[Problem](t, answer.Body.Bytes()).Detail, "the connector is deleted, but not its links")
			require.Equal(t, http.StatusNotFound, w.ask(t, key, http.MethodGet, path, "").Code)
			require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, path, "", "Idempotency-Key", "k").Code)
		})
	}
}

// TestARepetitionNeverDeletesWhatTheFirstCallMade: a quota that it filled, or a
// policy that came since, refuses the second attempt before its name is looked at.
func TestARepetitionNeverDeletesWhatTheFirstCallMade(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	post := func(t *testing.T, name string) (int, string) {
		answer := w.ask(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.ids["environment"],
			`{"name":"`+name+`","type":"webhook"}`, "Idempotency-Key", "once")
		return answer.Code, answer.Body.String()
	}
	status, first := post(t, "One")
	require.Equal(t, http.StatusCreated, status, first)
	connectors, links := w.objects(t)
	for name, refusal := range map[string]error{
		"a quota":   apierrors.NewForbidden(connectorResource, "x", errors.New("exceeded quota: connectors")),
		"an outage": apierrors.NewServiceUnavailable("restarting"),
	} {
		t.Run(name, func(t *testing.T) {
			heal := w.between(func(verb string, _ client.Object) error {
				if verb == "create" {
					return refusal
				}
				return nil
			})
			status, again := post(t, "One")
			other, _ := post(t, "Two")
			heal()
			require.Equal(t, http.StatusCreated, status, "%s", again)
			require.JSONEq(t, first, again)
			require.Equal(t, http.StatusUnprocessableEntity, other)
			nowConnectors, nowLinks := w.objects(t)
			require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks})
		})
	}
}

func TestWhatCodeDefinesIsDeletedThere(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, ids := w.key(t, nil), w.fresh(t)
	var list v1alpha1.ConnectorList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace)))
	for i := range list.Items {
		if conn := &list.Items[i]; conn.Status.ID == ids["connector"] {
			conn.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
			require.NoError(t, w.client.Update(t.Context(), conn))
		}
	}
	connectors, links := w.objects(t)
	path := "/connectors/" + ids["connector"]
	for _, c := range []struct{ method, path, body, says string }{
		{http.MethodDelete, path, "", "remove connectors/"},
		{http.MethodDelete, path + "/links/" + ids["link"], "", "change the file and deploy"},
		{http.MethodPatch, path + "/links/" + ids["link"], `{}`, "change the file and deploy"},
		{http.MethodPost, path + "/links", `{"agent_name":"other"}`, "change the file and deploy"},
	} {
		t.Run(c.method+" "+c.path+" "+c.body, func(t *testing.T) {
			answer := w.ask(t, key, c.method, c.path, c.body)
			require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
			require.Equal(t, httpserver.CodeDefinedInCode, decode[Problem](t, answer.Body.Bytes()).Code)
			require.Contains(t, answer.Body.String(), c.says)
		})
	}
	nowConnectors, nowLinks := w.objects(t)
	require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks})
}

// TestWhatAPOSTAnswersIsThereOnEveryReplica: at once, by its Location and its ETag.
func TestWhatAPOSTAnswersIsThereOnEveryReplica(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	other := w.facade(t, nil)
	key := w.key(t, nil) // which none of both has seen
	for _, r := range served(t) {
		if r.status != http.StatusCreated {
			continue
		}
		made := w.ask(t, key, r.method, samples[r.id].fill(t, w.fresh(t)), bodyFor(r))
		require.Equal(t, http.StatusCreated, made.Code, "%s: %s", r.id, made.Body)
		require.NotEmpty(t, made.Header().Get("Location"), r.id)
		got := w.sendTo(t, other, key, http.MethodGet, made.Header().Get("Location"), "")
		require.Equal(t, http.StatusOK, got.Code, "%s: %s", r.id, got.Body)
		require.JSONEq(t, made.Body.String(), got.Body.String())
		require.Equal(t, made.Header().Get("ETag"), got.Header().Get("ETag"))
		if r.tagged {
			require.Regexp(t, `^"[0-9a-f-]{36}\.1"$`, got.Header().Get("ETag"))
		}
	}
}

// TestSingleObjectsHaveAnETagAndListsHaveNone: as the table says of every route.
func TestSingleObjectsHaveAnETagAndListsHaveNone(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for _, r := range served(t) {
		answer := w.ask(t, key, r.method, samples[r.id].fill(t, w.idsFor(t, r)), bodyFor(r))
		require.Equal(t, r.tagged, answer.Header().Get("ETag") != "", r.id)
		require.False(t, r.tagged && strings.HasPrefix(r.id, "list"), r.id)
		require.Equal(t, "no-store", answer.Header().Get("Cache-Control"), r.id)
	}
}

// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// object reads the Connector of an id.
func (w *world) object(t testing.TB, id string) *v1alpha1.Connector {
	t.Helper()
	var list v1alpha1.ConnectorList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace), client.MatchingFields{"spec.id": id}))
	require.Len(t, list.Items, 1)
	return &list.Items[0]
}

// TestWhatIsCreatedIsWhatWasAskedFor: the object of each request.
func TestWhatIsCreatedIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, path := w.key(t, nil), "/connectors?environment_id="+w.environmentID("staging")
	no, yes, minute := false, true, int32(60)
	for body, want := range map[string]v1alpha1.ConnectorSpec{
		`{"name":"A","type":"webhook"}`: {
			DisplayName: "A", Mode: v1alpha1.ModeInbound, Enabled: &yes, Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationSecret},
		},
		`{"name":"B","type":"webhook","mode":"sync","enabled":false,"config":{"timeout_seconds":60}}`: {
			DisplayName: "B", Mode: v1alpha1.ModeSync, Enabled: &no,
			Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationSecret, TimeoutSeconds: &minute},
		},
		`{"name":"Straße 日本","type":"webhook","mode":"inbound","enabled":true,"config":{"require_authentication":false,"files_required":false}}`: {
			DisplayName: "Straße 日本", Mode: v1alpha1.ModeInbound, Enabled: &yes, Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationNone},
		},
	} {
		t.Run(fmt.Sprintf("%.60s", body), func(t *testing.T) {
			status, answer := w.call(t, key, http.MethodPost, path, body)
			require.Equal(t, http.StatusCreated, status, "%s", answer)
			made := decode[Connector](t, answer)
			got := w.object(t, made.ID)
			require.EqualValues(t, 4, uuid.MustParse(made.ID).Version())
			require.Equal(t, v1alpha1.EnvironmentName("staging"), got.Spec.Environment)
			require.Equal(t, want.DisplayName, got.Spec.DisplayName)
			require.Equal(t, want.Mode, got.Spec.Mode)
			require.Equal(t, want.Enabled, got.Spec.Enabled)
			require.Equal(t, want.Webhook, got.Spec.Webhook)
			require.Empty(t, got.Annotations, "without an Idempotency-Key nothing is noted")
			require.Regexp(t, `^[a-z0-9-]+-[a-z2-7]{5}$`, got.Name)
			holder, err := w.db.Holder(t.Context(), store.Key{ProjectID: w.projectID, ID: uuid.MustParse(made.ID)})
			require.NoError(t, err)
			require.Equal(t, string(got.UID), holder.ObjectUID, "it holds its id at once")
		})
	}
}

// TestWhatIsReadMayBeSent: a config that was answered is one that is taken.
func TestWhatIsReadMayBeSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, path := w.key(t, nil), "/connectors?environment_id="+w.environmentID("staging")
	for i, body := range []string{`"mode":"inbound"`, `"mode":"sync"`, `"mode":"sync","config":{"authentication":"none","timeout_seconds":7}`, `"mode":"outbound","config":{"url":"https://a.example"}`} {
		name := string(rune('A' + i))
		_, answer := w.call(t, key, http.MethodPost, path, `{"name":"`+name+`","type":"webhook",`+body+`}`)
		first := decode[node](t, answer)
		config := string(mustJSON(t, first["config"]))
		mode := first["mode"].(string)
		status, answer := w.call(t, key, http.MethodPost, path, `{"name":"`+name+name+`","type":"webhook","mode":"`+mode+`","config":`+config+`}`)
		require.Equal(t, http.StatusCreated, status, "%s: %s", config, answer)
		require.Equal(t, first["config"], decode[node](t, answer)["config"])
	}
}

// TestEachFailureOfACreateTakesBackWhatItMade: wherever it comes.
func TestEachFailureOfACreateTakesBackWhatItMade(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	path := "/connectors?agent_name=hello&environment_id=" + w.ids["environment"]
	connectors, links := w.objects(t)
	away := apierrors.NewServiceUnavailable("restarting")
	for name, c := range map[string]struct {
		claims Claims
		fail   func(verb string, o client.Object) error
		want   int
	}{
		"the connector":   {w.db, failCreating(store.KindConnector, away), http.StatusServiceUnavailable},
		"the link":        {w.db, failCreating(store.KindConnectorLink, away), http.StatusServiceUnavailable},
		"a mistake":       {w.db, failCreating(store.KindConnectorLink, errors.New("CANARY")), http.StatusInternalServerError},
		"the first claim": {&lostClaims{Claims: w.db, after: 0}, failCreating("", nil), http.StatusConflict},
		"the last claim":  {&lostClaims{Claims: w.db, after: 1}, failCreating("", nil), http.StatusConflict},
		"the answer":      {awayDerivations{w.db}, failCreating("", nil), http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			heal := w.between(c.fail)
			w.server.claims = c.claims
			answer := w.ask(t, key, http.MethodPost, path, `{"name":"New","type":"webhook"}`)
			heal()
			w.server.claims = w.db
			require.Equal(t, c.want, answer.Code, "%s", answer.Body)
			require.NotContains(t, answer.Body.String(), "CANARY")
			nowConnectors, nowLinks := w.objects(t)
			require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks})
		})
	}
}

// failCreating fails creating objects of a kind.
func failCreating(kind string, err error) func(string, client.Object) error {
	return func(verb string, o client.Object) error {
		if object, ok := o.(v1alpha1.ConditionedObject); ok && verb == "create" && object.ObjectKind() == kind {
			return err
		}
		return nil
	}
}

// awayDerivations: the store goes before the secret can be shown.
type awayDerivations struct{ Claims }

func (awayDerivations) DerivationKey(context.Context, store.Key, int64) (string, error) {
	return "", context.DeadlineExceeded
}

// lostClaims refuse ids after some.
type lostClaims struct {
	Claims
	after int
}

func (l *lostClaims) ClaimID(ctx context.Context, key store.Key, ref store.ObjectRef) error {
	if ref.Kind == store.KindAPIKey {
		return l.Claims.ClaimID(ctx, key, ref)
	}
	if l.after--; l.after < 0 {
		return &store.IDTakenError{Holder: ref}
	}
	return l.Claims.ClaimID(ctx, key, ref)
}

// TestARequestThatIsGivenUpIsTakenBackAllTheSame: its client has gone.
func TestARequestThatIsGivenUpIsTakenBackAllTheSame(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	connectors, _ := w.objects(t)
	ctx, cancel := context.WithCancel(t.Context())
	conn := &v1alpha1.Connector{ObjectMeta: w.meta("late"), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	require.NoError(t, w.client.Create(t.Context(), conn))
	cancel()
	w.server.undo(ctx, []v1alpha1.ConditionedObject{conn})
	now, _ := w.objects(t)
	require.Equal(t, connectors, now)

	again := &v1alpha1.Connector{ObjectMeta: w.meta("late"), Spec: conn.Spec}
	require.NoError(t, w.client.Create(t.Context(), again))
	w.server.undo(t.Context(), []v1alpha1.ConditionedObject{conn})
	now, _ = w.objects(t)
	require.Equal(t, connectors+1, now, "another object of the name is somebody else's")
}

// TestWaitingEndsWithTheClient: and without one after its time.
func TestWaitingEndsWithTheClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.connectorNamed(t, "tickets", func(*v1alpha1.Connector) {})
	conn.Status.Conditions = nil
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.server.patience = time.Hour
	w.server.awaitReady(ctx, conn)
	w.server.patience = 0
	w.server.awaitReady(t.Context(), conn)
	w.server.awaitReady(t.Context())
}

// TestWaitingEndsWithKubernetes: what was created is there, whoever can be asked.
func TestWaitingEndsWithKubernetes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	working := w.server.client
	w.server.client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.Connector); ok {
				return apierrors.NewServiceUnavailable("restarting")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w.server.patience = time.Hour
	answer := w.ask(t, key, http.MethodPost, "/connectors?environment_id="+w.environmentID("staging"), `{"name":"A","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
}

// TestLongNamesAndOddOnes: are taken, and name an object.
func TestLongNamesAndOddOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, path := w.key(t, nil), "/connectors?environment_id="+w.environmentID("staging")
	for _, name := range []string{strings.Repeat("a", 63), strings.Repeat("ä", 63), "-", "日本", "a/b?c=d", `"quoted"`, "<b>"} {
		status, answer := w.call(t, key, http.MethodPost, path, string(mustJSON(t, map[string]string{"name": name, "type": "webhook"})))
		require.Equal(t, http.StatusCreated, status, "%s: %s", name, answer)
		require.Equal(t, name, decode[Connector](t, answer).Name)
	}
	status, answer := w.call(t, key, http.MethodPost, path, `{"name":"plain","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	connector := decode[Connector](t, answer).ID
	for _, name := range []string{"", "   ", strings.Repeat("a", 64), "a\u0000", "a\nb", "\x1b]0;a\a", "\u009b31m", "a\u202eb", "a\u2028b", "\u2066a"} {
		status, answer := w.call(t, key, http.MethodPost, path, string(mustJSON(t, map[string]string{"name": name, "type": "webhook"})))
		requireField(t, status, answer, "body.name")
		status, answer = w.call(t, key, http.MethodPost, "/environments", string(mustJSON(t, map[string]string{"name": name})))
		requireField(t, status, answer, "body.name")
		for _, path := range []string{"/environments/" + w.environmentID("staging"), "/connectors/" + connector} {
			status, answer = w.call(t, key, http.MethodPatch, path, string(mustJSON(t, map[string]string{"name": name})))
			requireField(t, status, answer, "body.name")
		}
	}
	status, answer = w.call(t, key, http.MethodPost, "/environments", `{"name":" padded\t"}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	require.Equal(t, "padded", decode[Environment](t, answer).Name)
}

// Names are ordered without regard to case, and always in one way.
func TestCompareNames_IgnoresCase(t *testing.T) {
	t.Parallel()
	names := []string{"beta", "Beta", "alpha", "Zeta", "ALPHA", "gamma"}
	slices.SortFunc(names, compareNames)
	require.Equal(t, []string{"ALPHA", "alpha", "Beta", "beta", "gamma", "Zeta"}, names)
}

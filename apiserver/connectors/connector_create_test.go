// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"context"
	"encoding/json"
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
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/testenv/connectortest"
	"github.com/agentplatform/agentplatform/store"
)

func mustJSON(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return text
}

// Each request creates the expected object.
func TestCreateConnector_CreatesRequestedObject(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, path := w.CreateKey(t, nil), "/connectors?environment_id="+w.EnvironmentID("staging")
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
			status, answer := w.Call(t, key, http.MethodPost, path, body)
			require.Equal(t, http.StatusCreated, status, "%s", answer)
			made := apiservertest.Decode[connectors.Connector](t, answer)
			got := w.ConnectorObject(t, made.ID)
			require.EqualValues(t, 4, uuid.MustParse(made.ID).Version())
			require.Equal(t, v1alpha1.EnvironmentName("staging"), got.Spec.Environment)
			require.Equal(t, want.DisplayName, got.Spec.DisplayName)
			require.Equal(t, want.Mode, got.Spec.Mode)
			require.Equal(t, want.Enabled, got.Spec.Enabled)
			require.Equal(t, want.Webhook, got.Spec.Webhook)
			require.Empty(t, got.Annotations, "without an Idempotency-Key nothing is noted")
			require.Regexp(t, `^[a-z0-9-]+-[a-z2-7]{5}$`, got.Name)
			holder, err := w.Store.Holder(t.Context(), store.Key{ProjectID: w.ProjectID, ID: uuid.MustParse(made.ID)})
			require.NoError(t, err)
			require.Equal(t, string(got.UID), holder.ObjectUID, "it holds its id at once")
		})
	}
}

// A config of a response is valid in a request.
func TestCreateConnector_AcceptsConfigOfResponse(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, path := w.CreateKey(t, nil), "/connectors?environment_id="+w.EnvironmentID("staging")
	bodies := []string{`"type":"webhook","mode":"sync","config":{"authentication":"none","timeout_seconds":7}`}
	for _, kind := range connector.Kinds() {
		bodies = append(bodies, fmt.Sprintf(`"type":%q,"mode":%q,"config":%s`, kind.Type(), kind.Mode(), mustJSON(t, connectortest.Required(kind))))
	}
	for i, body := range bodies {
		name := string(rune('A' + i))
		_, answer := w.Call(t, key, http.MethodPost, path, `{"name":"`+name+`",`+body+`}`)
		first := apiservertest.Decode[rest.Node](t, answer)
		again := mustJSON(t, rest.Node{"name": name + name, "type": first["type"], "mode": first["mode"], "config": first["config"]})
		status, answer := w.Call(t, key, http.MethodPost, path, string(again))
		require.Equal(t, http.StatusCreated, status, "%s: %s", again, answer)
		require.Equal(t, first["config"], apiservertest.Decode[rest.Node](t, answer)["config"])
	}
}

// The objects of the call are deleted at whatever step it fails.
func TestCreateConnector_RemovesObjectsAfterEachFailure(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	path := "/connectors?agent_name=hello&environment_id=" + w.IDs["environment"]
	connectors, links := w.CountObjects(t)
	away := apierrors.NewServiceUnavailable("restarting")
	for name, c := range map[string]struct {
		claims apiserver.Claims
		fail   func(verb string, o client.Object) error
		want   int
	}{
		"creating the connector fails":         {w.Store, failCreating(store.KindConnector, away), http.StatusServiceUnavailable},
		"creating the link fails":              {w.Store, failCreating(store.KindConnectorLink, away), http.StatusServiceUnavailable},
		"creating the link fails unexpectedly": {w.Store, failCreating(store.KindConnectorLink, errors.New("CANARY")), http.StatusInternalServerError},
		"ID claim of the connector is lost":    {&lostClaims{Claims: w.Store, after: 0}, failCreating("", nil), http.StatusConflict},
		"ID claim of the link is lost":         {&lostClaims{Claims: w.Store, after: 1}, failCreating("", nil), http.StatusConflict},
		"reading the response fails":           {awayDerivations{w.Store}, failCreating("", nil), http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			heal := w.FailWrites(c.fail)
			w.Server.Service.Claims, w.Server.Connectors.Derivations = c.claims, c.claims
			answer := w.Request(t, key, http.MethodPost, path, `{"name":"New","type":"webhook"}`)
			heal()
			w.Server.Service.Claims, w.Server.Connectors.Derivations = w.Store, w.Store
			require.Equal(t, c.want, answer.Code, "%s", answer.Body)
			require.NotContains(t, answer.Body.String(), "CANARY")
			nowConnectors, nowLinks := w.CountObjects(t)
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
type awayDerivations struct{ apiserver.Claims }

func (awayDerivations) DerivationKey(context.Context, store.Key, int64) (string, error) {
	return "", context.DeadlineExceeded
}

// lostClaims refuse ids after some.
type lostClaims struct {
	apiserver.Claims
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

// The created object exists even if Kubernetes does not respond.
func TestAwaitReady_EndsIfKubernetesFails(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	working := w.Server.Service.Client
	w.Server.Service.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if _, ok := o.(*v1alpha1.Connector); ok {
				return apierrors.NewServiceUnavailable("restarting")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	w.Server.Service.ReadyTimeout = time.Hour
	answer := w.Request(t, key, http.MethodPost, "/connectors?environment_id="+w.EnvironmentID("staging"), `{"name":"A","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
}

// Long and unusual names are accepted and give valid object names.
func TestCreateConnector_AcceptsUnusualNames(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, path := w.CreateKey(t, nil), "/connectors?environment_id="+w.EnvironmentID("staging")
	for _, name := range []string{strings.Repeat("a", 63), strings.Repeat("ä", 63), "-", "日本", "a/b?c=d", `"quoted"`, "<b>"} {
		status, answer := w.Call(t, key, http.MethodPost, path, string(mustJSON(t, map[string]string{"name": name, "type": "webhook"})))
		require.Equal(t, http.StatusCreated, status, "%s: %s", name, answer)
		require.Equal(t, name, apiservertest.Decode[connectors.Connector](t, answer).Name)
	}
	status, answer := w.Call(t, key, http.MethodPost, path, `{"name":"plain","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	connector := apiservertest.Decode[connectors.Connector](t, answer).ID
	for _, name := range []string{"", "   ", strings.Repeat("a", 64), "a\u0000", "a\nb", "\x1b]0;a\a", "\u009b31m", "a\u202eb", "a\u2028b", "\u2066a"} {
		status, answer := w.Call(t, key, http.MethodPost, path, string(mustJSON(t, map[string]string{"name": name, "type": "webhook"})))
		apiservertest.RequireField(t, status, answer, "body.name")
		status, answer = w.Call(t, key, http.MethodPost, "/environments", string(mustJSON(t, map[string]string{"name": name})))
		apiservertest.RequireField(t, status, answer, "body.name")
		for _, path := range []string{"/environments/" + w.EnvironmentID("staging"), "/connectors/" + connector} {
			status, answer = w.Call(t, key, http.MethodPatch, path, string(mustJSON(t, map[string]string{"name": name})))
			apiservertest.RequireField(t, status, answer, "body.name")
		}
	}
	status, answer = w.Call(t, key, http.MethodPost, "/environments", `{"name":" padded\t"}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	require.Equal(t, "padded", apiservertest.Decode[environments.Environment](t, answer).Name)
}

// Names are ordered without regard to case, and always in one way.
func TestCompareNames_IgnoresCase(t *testing.T) {
	t.Parallel()
	names := []string{"beta", "Beta", "alpha", "Zeta", "ALPHA", "gamma"}
	slices.SortFunc(names, rest.CompareNames)
	require.Equal(t, []string{"ALPHA", "alpha", "Beta", "beta", "gamma", "Zeta"}, names)
}

// Both forms together must agree.
func TestCreateConnector_AcceptsBothFormsOfAuthentication(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/connectors?environment_id="+w.IDs["environment"]
	for config, want := range map[string]string{
		`{}`:                               "secret",
		`{"authentication":"secret"}`:      "secret",
		`{"authentication":"none"}`:        "none",
		`{"require_authentication":true}`:  "secret",
		`{"require_authentication":false}`: "none",
		`{"authentication":"none","require_authentication":false}`:             "none",
		`{"authentication":"secret","require_authentication":true}`:            "secret",
		`{"authentication":"none","require_authentication":true}`:              "body.config.require_authentication",
		`{"authentication":"secret","require_authentication":false}`:           "body.config.require_authentication",
		`{"authentication":"github"}`:                                          "github",
		`{"authentication":"standard_webhooks","require_authentication":true}`: "standard_webhooks",
		`{"authentication":"slack","require_authentication":false}`:            "body.config.require_authentication",
		`{"authentication":"StandardWebhooks"}`:                                "body.config.authentication",
		`{"context_headers":["Authorization"]}`:                                "body.config.context_headers",
		`{"context_headers":["a b"]}`:                                          "body.config.context_headers",
		`{"context_headers":"a"}`:                                              "body.config.context_headers",
		`{"authentication":"Secret"}`:                                          "body.config.authentication",
	} {
		t.Run(config, func(t *testing.T) {
			status, answer := w.Call(t, key, http.MethodPost, path, `{"name":"`+uuid.NewString()+`","type":"webhook","config":`+config+`}`)
			if strings.HasPrefix(want, "body.") {
				apiservertest.RequireField(t, status, answer, want)
				return
			}
			require.Equal(t, http.StatusCreated, status, "%s", answer)
			conn := apiservertest.Decode[connectors.Connector](t, answer)
			shown := conn.Config.Value.(map[string]any)
			require.Equal(t, want, shown["authentication"])
			require.Equal(t, want != "none", shown["require_authentication"])
			require.Equal(t, want != "none", conn.Secret != nil)
		})
	}
}

func TestCreateConnector_DerivesNameFromIdempotencyKey(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	answer := w.Request(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.IDs["environment"],
		`{"name":"Köln","type":"webhook"}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
	made := apiservertest.Decode[connectors.Connector](t, answer.Body.Bytes())
	require.EqualValues(t, 4, uuid.MustParse(made.ID).Version())
	require.Equal(t, uuid.RFC4122, uuid.MustParse(made.ID).Variant())
	var list v1alpha1.ConnectorList
	require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace), client.MatchingFields{"spec.id": made.ID}))
	require.Len(t, list.Items, 1)
	require.Regexp(t, `^connector-[a-z2-7]{16}$`, list.Items[0].Name)
	require.Len(t, list.Items[0].Annotations["agentplatform.dev/request-digest"], 64)
	var links v1alpha1.ConnectorLinkList
	require.NoError(t, w.Client.List(t.Context(), &links, client.InNamespace(w.Namespace), client.MatchingFields{"spec.connector": list.Items[0].Name}))
	require.Len(t, links.Items, 1)
	require.Regexp(t, `^link-[a-z2-7]{16}$`, links.Items[0].Name)

	list.Items[0].Annotations = nil
	require.NoError(t, w.Client.Update(t.Context(), &list.Items[0]))
	forgotten := w.Request(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.IDs["environment"],
		`{"name":"Köln","type":"webhook"}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusUnprocessableEntity, forgotten.Code, "which request made it is not known any more: %s", forgotten.Body)
	require.Equal(t, httpserver.CodeKeyReused, apiservertest.Decode[rest.Problem](t, forgotten.Body.Bytes()).Code)
	other := w.Request(t, w.CreateKey(t, nil), http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.IDs["environment"],
		`{"name":"Bonn","type":"webhook"}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusCreated, other.Code, "another API key's keys are its own: %s", other.Body)
}

// SPDX-License-Identifier: Apache-2.0

package environments_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/secrets"
)

// openVariable is the value of a sealed variable, as its controller opens it.
func openVariable(t testing.TB, w *apiservertest.Project, environment string, v *v1alpha1.EnvironmentVariable) string {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(v.SealedValue)
	require.NoError(t, err)
	plain, err := w.PlatformKeys.Open(secrets.VariableField(w.ProjectID, uuid.MustParse(environment), string(v.Name)), raw)
	require.NoError(t, err)
	return string(plain)
}

// createVariables is the environment "staging" with a variable of each sort, by its id.
func createVariables(t testing.TB, w *apiservertest.Project, key string) string {
	t.Helper()
	id := w.EnvironmentID("staging")
	e := w.EnvironmentObject(t, id)
	e.Spec.Variables = []v1alpha1.EnvironmentVariable{
		{Name: "TOKEN", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "crm", Key: "token"}},
		{Name: "HIDDEN", Value: ptr.To("plain in the object"), Sensitive: true},
	}
	require.NoError(t, w.Client.Update(t.Context(), e))
	got := w.Request(t, key, http.MethodPut, "/environments/"+id+"/variables", `[
		{"name":"REGION","value":"eu","sensitive":false}, {"name":"PASSWORD","value":"hush","sensitive":true},
		{"name":"HIDDEN","sensitive":true}, {"name":"TOKEN","value":"********","sensitive":true,"secret_ref":{"name":"crm","key":"token"}}]`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	return id
}

func TestReplaceVariables_ReplacesList(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	id := createVariables(t, w, key)
	path := "/environments/" + id + "/variables"
	got := w.Request(t, key, http.MethodGet, path, "")
	require.JSONEq(t, `[
		{"name":"HIDDEN","value":"********","sensitive":true,"secret_ref":null},
		{"name":"PASSWORD","value":"********","sensitive":true,"secret_ref":null},
		{"name":"REGION","value":"eu","sensitive":false,"secret_ref":null},
		{"name":"TOKEN","value":"********","sensitive":true,"secret_ref":{"name":"crm","key":"token"}}]`, got.Body.String())
	e := w.EnvironmentObject(t, id)
	require.Equal(t, []string{"TOKEN", "HIDDEN", "REGION", "PASSWORD"}, []string{
		string(e.Spec.Variables[0].Name), string(e.Spec.Variables[1].Name), string(e.Spec.Variables[2].Name), string(e.Spec.Variables[3].Name),
	}, "existing variables keep their order")
	require.Equal(t, "hush", openVariable(t, w, id, e.Variable("PASSWORD")))
	require.Equal(t, "token", e.Variable("TOKEN").SecretKeyRef.Key)
	require.Equal(t, "plain in the object", *e.Variable("HIDDEN").Value)

	again := w.Request(t, key, http.MethodPut, path, got.Body.String(), "If-Match", got.Header().Get("ETag"))
	require.Equal(t, http.StatusOK, again.Code, again.Body)
	require.Equal(t, got.Header().Get("ETag"), again.Header().Get("ETag"), "sending the response back changes nothing")
	require.Equal(t, e.Spec.Variables, w.EnvironmentObject(t, id).Spec.Variables)

	change := func(body string) *v1alpha1.Environment {
		got := w.Request(t, key, http.MethodPut, path, body)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
		return w.EnvironmentObject(t, id)
	}
	e = change(`[{"name":"REGION","value":"","sensitive":false},{"name":"PASSWORD","value":"","sensitive":true},{"name":"TOKEN","value":"mine","sensitive":true}]`)
	require.Empty(t, *e.Variable("REGION").Value, "an empty value is one")
	require.Equal(t, "hush", openVariable(t, w, id, e.Variable("PASSWORD")), "of a sensitive one it stands for the stored one")
	require.Nil(t, e.Variable("TOKEN").SecretKeyRef)
	require.Equal(t, "mine", openVariable(t, w, id, e.Variable("TOKEN")))
	require.Nil(t, e.Variable("HIDDEN"), "an omitted variable is removed")
	change(`[{"name":"REGION","value":"us","sensitive":false}]`)
	e = change(`[{"name":"REGION","value":"********","sensitive":true}]`)
	require.Equal(t, "us", openVariable(t, w, id, e.Variable("REGION")), "what becomes sensitive is sealed")
	e = change(`[{"name":"REGION","value":"open","sensitive":false}]`)
	require.Equal(t, "open", *e.Variable("REGION").Value)
	require.Empty(t, e.Variable("REGION").SealedValue)
	require.Empty(t, change(`[]`).Spec.Variables)
	require.JSONEq(t, `[]`, w.Request(t, key, http.MethodGet, path, "").Body.String())
}

func TestReplaceVariables_RejectsInvalidInput(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	id := createVariables(t, w, key)
	path, before := "/environments/"+id+"/variables", w.EnvironmentObject(t, id).Spec.Variables
	long := strings.Repeat("ä", 8192)
	for body, location := range map[string]string{
		`[{"name":"region","value":"CANARY","sensitive":false}]`:                                                           "body[0].name",
		`[{"name":"REGION","value":"CANARY"}]`:                                                                             "body[0].sensitive",
		`[{"name":"REGION","value":"CANARY","sensitive":false},{"name":"REGION","value":"a","sensitive":false}]`:           "body[1].name",
		`[{"name":"NEW","sensitive":false}]`:                                                                               "body[0].value",
		`[{"name":"NEW","value":"********","sensitive":true}]`:                                                             "body[0].value",
		`[{"name":"NEW","value":"","sensitive":true}]`:                                                                     "body[0].value",
		`[{"name":"PASSWORD","sensitive":false}]`:                                                                          "body[0].sensitive",
		`[{"name":"TOKEN","value":"********","sensitive":false}]`:                                                          "body[0].sensitive",
		`[{"name":"HIDDEN","value":"********","sensitive":false}]`:                                                         "body[0].sensitive",
		`[{"name":"NEW","sensitive":true,"secret_ref":{"name":"crm","key":"token"}}]`:                                      "body[0].secret_ref",
		`[{"name":"TOKEN","sensitive":true,"secret_ref":{"name":"other","key":"token"}}]`:                                  "body[0].secret_ref",
		`[{"name":"TOKEN","value":"CANARY","sensitive":true,"secret_ref":{"name":"crm","key":"token"}}]`:                   "body[0].value",
		`[{"name":"NEW","value":"` + long + `","sensitive":true}]`:                                                         "body[0].value",
		`[` + strings.TrimSuffix(strings.Repeat(`{"name":"A","value":"CANARY","sensitive":false},`, 101), ",") + `]`:       "body",
		`[` + strings.TrimSuffix(repeatItem(40, `{"name":"NAME","value":"`+long[:8192]+`","sensitive":true},`), ",") + `]`: "body",
	} {
		t.Run(fmt.Sprintf("%.60s", body), func(t *testing.T) {
			got := w.Request(t, key, http.MethodPut, path, body)
			apiservertest.RequireField(t, got.Code, got.Body.Bytes(), location)
			require.NotContains(t, got.Body.String(), "CANARY")
		})
	}
	require.Equal(t, before, w.EnvironmentObject(t, id).Spec.Variables)
	stale := w.Request(t, key, http.MethodPut, path, `[]`, "If-Match", `"nothing.1"`)
	require.Equal(t, http.StatusPreconditionFailed, stale.Code, stale.Body)
}

// Null without a value is rejected. An omitted reference stays, and null is valid for a variable without a reference.
func TestReplaceVariables_RemovesSecretRefOnlyWithValue(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	id := createVariables(t, w, key)
	path, before := "/environments/"+id+"/variables", w.EnvironmentObject(t, id).Spec.Variables
	const rest = `{"name":"REGION","value":"eu","sensitive":false,"secret_ref":null},{"name":"PASSWORD","sensitive":true,"secret_ref":null},{"name":"HIDDEN","sensitive":true}`
	for _, value := range []string{``, `"value":"********",`, `"value":"",`} {
		for _, ref := range []string{``, `"secret_ref":null,`, `"secret_ref":{"name":"crm","key":"token"},`} {
			got := w.Request(t, key, http.MethodPut, path, `[`+rest+`,{"name":"TOKEN",`+value+ref+`"sensitive":true}]`)
			if ref == `"secret_ref":null,` {
				apiservertest.RequireField(t, got.Code, got.Body.Bytes(), "body[3].value")
				require.Contains(t, got.Body.String(), "send a value, or leave secret_ref out")
			} else {
				require.Equal(t, http.StatusOK, got.Code, "%s%s: %s", value, ref, got.Body)
			}
			require.Equal(t, before, w.EnvironmentObject(t, id).Spec.Variables, "%s%s", value, ref)
		}
	}
	got := w.Request(t, key, http.MethodPut, path, `[`+rest+`,{"name":"TOKEN","value":"mine","sensitive":true,"secret_ref":null}]`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Nil(t, w.EnvironmentObject(t, id).Variable("TOKEN").SecretKeyRef)
}

// A key that can only update neither adds nor removes names and sees no value.
func TestReplaceVariables_RequiresPermissionsOfChange(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	id := createVariables(t, w, w.CreateKey(t, nil))
	path := "/environments/" + id + "/variables"
	as := func(permissions ...v1alpha1.Permission) string {
		return w.CreateKey(t, func(k *v1alpha1.APIKeySpec) { k.Access, k.Permissions = v1alpha1.AccessSelected, permissions })
	}
	const kept = `{"name":"REGION","sensitive":false},{"name":"PASSWORD","sensitive":true},{"name":"HIDDEN","sensitive":true},{"name":"TOKEN","sensitive":true}`
	const added = `[` + kept + `,{"name":"NEW","value":"x","sensitive":false}]`
	update := as("variables.update")
	for body, lacks := range map[string]string{added: "variables.create", `[]`: "variables.delete"} {
		t.Run(body, func(t *testing.T) {
			got := w.Request(t, update, http.MethodPut, path, body)
			require.Equal(t, http.StatusForbidden, got.Code, got.Body)
			require.Contains(t, got.Body.String(), lacks)
		})
	}
	got := w.Request(t, update, http.MethodPut, path, `[`+kept+`]`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	for _, v := range apiservertest.Decode[[]environments.Variable](t, got.Body.Bytes()) {
		require.Equal(t, rest.Masked, v.Value, v.Name)
	}
	got = w.Request(t, as("variables.update", "variables.create", "variables.view"), http.MethodPut, path, added)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Contains(t, got.Body.String(), `"eu"`)
	require.Equal(t, http.StatusOK, w.Request(t, as("variables.update", "variables.delete"), http.MethodPut, path, `[]`).Code)
}

// repeatItem repeats an item under other names.
func repeatItem(times int, item string) (out string) {
	for i := range times {
		out += strings.Replace(item, "NAME", "N"+strings.Repeat("X", i), 1)
	}
	return out
}

func TestReplaceVariables_AuditsNamesOnly(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	id := createVariables(t, w, w.CreateKey(t, nil))
	entry := w.NewestAuditEntry(t)
	require.Equal(t, "replaceVariables", entry.Operation)
	require.Equal(t, id, entry.Object.ID)
	require.JSONEq(t, `{"variables":["HIDDEN","TOKEN"]}`, string(entry.Outcome.Before))
	require.JSONEq(t, `{"variables":["HIDDEN","PASSWORD","REGION","TOKEN"],"changed":["PASSWORD","REGION"]}`, string(entry.Outcome.After))
}

// A GitOps controller would restore them.
func TestReplaceVariables_RejectsGitOpsVariables(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	e := &v1alpha1.Environment{ObjectMeta: w.Meta("staging")}
	require.NoError(t, w.Client.Patch(t.Context(), e, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"variables":[{"name":"REGION","value":"eu"}]}}`)),
		client.FieldOwner("argocd-controller")))
	path := "/environments/" + w.EnvironmentID("staging") + "/variables"
	got := w.Request(t, w.CreateKey(t, nil), http.MethodPut, path, `[{"name":"REGION","value":"us","sensitive":false}]`)
	require.Equal(t, http.StatusConflict, got.Code, got.Body)
	require.Equal(t, httpserver.CodeGitOps, apiservertest.Decode[rest.Problem](t, got.Body.Bytes()).Code)
	got = w.Request(t, w.CreateKey(t, nil), http.MethodPut, path, `[{"name":"REGION","value":"eu","sensitive":false}]`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
}

func TestCreateEnvironment_CopiesVariables(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	id := createVariables(t, w, key)
	app := v1alpha1.OAuthApp{
		Name: "crm", TokenURL: "https://login.example.com/token", ClientID: "agents", Scopes: []v1alpha1.OAuthScope{"crm.read"},
		ClientSecretRef: v1alpha1.SecretKeyReference{Name: "crm", Key: "secret"},
	}
	source := w.EnvironmentObject(t, id)
	source.Spec.OAuthApps = []v1alpha1.OAuthApp{app}
	require.NoError(t, w.Client.Update(t.Context(), source))
	create := func(key, source string) (int, string) {
		got := w.Request(t, key, http.MethodPost, "/environments", `{"name":"copy `+uuid.NewString()[:8]+`","copy_from_environment_id":"`+source+`"}`)
		return got.Code, got.Body.String()
	}
	status, body := create(key, id)
	require.Equal(t, http.StatusCreated, status, body)
	made := apiservertest.Decode[environments.Environment](t, []byte(body))
	copied := w.EnvironmentObject(t, made.ID)
	require.Len(t, copied.Spec.Variables, 4)
	require.Equal(t, []v1alpha1.OAuthApp{app}, copied.Spec.OAuthApps)
	require.Equal(t, "eu", *copied.Variable("REGION").Value)
	require.Equal(t, "crm", string(copied.Variable("TOKEN").SecretKeyRef.Name))
	require.True(t, copied.Variable("HIDDEN").Sensitive)
	require.Equal(t, "hush", openVariable(t, w, made.ID, copied.Variable("PASSWORD")), "sealed for the new one")

	for _, lacking := range []v1alpha1.Permission{"variables.view", "variables.create"} {
		some := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
			k.Access = v1alpha1.AccessSelected
			for _, p := range v1alpha1.Permissions() {
				if p != lacking {
					k.Permissions = append(k.Permissions, p)
				}
			}
		})
		for _, source := range []string{id, uuid.NewString()} {
			status, body = create(some, source)
			require.Equal(t, http.StatusForbidden, status, body)
			require.Contains(t, body, string(lacking), "before anything is looked up")
		}
		status = w.Request(t, some, http.MethodPost, "/environments", `{"name":"without `+string(lacking)+`"}`).Code
		require.Equal(t, http.StatusCreated, status)
	}
	status, body = create(key, uuid.NewString())
	require.Equal(t, http.StatusNotFound, status, body)
	status, body = create(key, uuid.Nil.String())
	require.Equal(t, http.StatusNotFound, status, body)

	e := w.EnvironmentObject(t, id)
	e.Variable("PASSWORD").SealedValue = copied.Variable("PASSWORD").SealedValue
	require.NoError(t, w.Client.Update(t.Context(), e))
	status, body = create(key, id)
	require.Equal(t, http.StatusConflict, status, body)
	require.Contains(t, body, `\"PASSWORD\" in the source environment cannot be decrypted`)
}

// A value that is sent back is sealed with the current platform key.
func TestReplaceVariables_SealsWithCurrentKey(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	id := createVariables(t, w, key)
	before := w.EnvironmentObject(t, id).Variable("PASSWORD").SealedValue
	ring, err := w.PlatformKeys.Ring()
	require.NoError(t, err)
	ring, added, err := ring.WithNewKey(secrets.Sealing)
	require.NoError(t, err)
	require.NoError(t, w.PlatformKeys.Set(ring, append(ring.IDs(secrets.Derivation), added)))
	got := w.Request(t, key, http.MethodPut, "/environments/"+id+"/variables", `[{"name":"PASSWORD","sensitive":true}]`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	after := w.EnvironmentObject(t, id).Variable("PASSWORD")
	require.NotEqual(t, before, after.SealedValue)
	require.Equal(t, "hush", openVariable(t, w, id, after))
}

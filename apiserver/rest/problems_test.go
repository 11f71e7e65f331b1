// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

func fieldAt(location, message string) FieldError {
	return FieldError{Location: location, Message: message}
}

// The error names the field of the request and leaves out the value.
func TestProblem_MapsFieldsOfKubernetesRules(t *testing.T) {
	t.Parallel()
	path := field.NewPath("spec")
	for _, c := range []struct {
		kind string
		err  *field.Error
		want FieldError
	}{
		{"Connector", field.Invalid(path.Child("displayName"), "CANARY", "must not: be so"), fieldAt("body.name", "must not: be so")},
		{"Connector", field.Invalid(path.Child("displayName"), `CANARY": x`, "is wrong"), fieldAt("body.name", "is wrong")},
		{"Connector", field.Invalid(path.Child("webhook", "timeoutSeconds"), 66601, "should be less than 900"), fieldAt("body.config.timeout_seconds", "should be less than 900")},
		{"Connector", field.Invalid(path.Child("webhook", "timeoutSeconds"), 66601, "spec.webhook.timeoutSeconds in body should be less than or equal to 900"), fieldAt("body.config.timeout_seconds", "should be less than or equal to 900")},
		{"Connector", field.Invalid(path.Child("webhook"), "x", "is wrong"), fieldAt("body.config", "is wrong")},
		{"Connector", field.Invalid(path.Child("headers").Index(3), "x", "is wrong"), fieldAt("body", "is wrong")},
		{"Connector", field.NotSupported(path.Child("mode"), "CANARY", []string{"Sync"}), fieldAt("body.mode", `supported values: "Sync"`)},
		{"Connector", field.Required(path.Child("environment"), "CANARY"), fieldAt("query.environment_id", "is required")},
		{"Connector", field.TooLong(path.Child("displayName"), "CANARY", 63), fieldAt("body.name", "may not be more than 63 bytes")},
		{"Connector", field.Duplicate(path.Child("displayName"), "CANARY"), fieldAt("body.name", "is not valid")},
		{"ConnectorLink", field.Invalid(path.Child("agent"), "CANARY", "must be a name"), fieldAt("body.agent_name", "must be a name")},
		{"Unheard", field.Invalid(path.Child("agent"), map[string]string{"a": "CANARY: x"}, "must be a name"), fieldAt("body", "is not valid")},
	} {
		t.Run(c.kind+" "+c.err.Error(), func(t *testing.T) {
			err := apierrors.NewInvalid(schema.GroupKind{Kind: c.kind}, "crm", field.ErrorList{c.err})
			require.Equal(t, []FieldError{c.want}, causes(err), "%v", c.err)
		})
	}
	require.Equal(t, "body", causes(errors.New("x"))[0].Location)
	for _, kind := range connector.Kinds() {
		for _, f := range kind.Fields() {
			path := "spec." + kind.Type() + "." + crd.FieldName(f.Name)
			if _, isField := map[string]bool{"require_authentication": true, "headers": true}[f.Name]; !isField { // not fields of the spec
				require.Equal(t, "body.config."+f.Name, location(store.KindConnector, path), path)
			}
		}
	}
	for kind, fields := range requestFields {
		for path, at := range fields {
			require.True(t, strings.HasPrefix(path, "spec"), "%s %s", kind, path)
			require.Regexp(t, `^(body|query|path)(\.[a-z_]+)*$`, at)
		}
	}
}

// A problem names at most 20 fields, and says how many more there are.
func TestProblem_BoundsErrors(t *testing.T) {
	t.Parallel()
	ConfigureHuma()
	var many []error
	for i := range 1000 {
		many = append(many, &huma.ErrorDetail{Location: fmt.Sprintf("body[%d].", i) + strings.Repeat("ä", 5000), Message: strings.Repeat("m", 5000)})
	}
	for name, err := range map[string]error{
		"of huma":     huma.NewError(http.StatusUnprocessableEntity, "", many...),
		"of handlers": Invalid(make([]FieldError, 1000)...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var p httpserver.Problem
			require.True(t, errors.As(err, &p))
			require.Len(t, p.Errors, 20)
			require.Contains(t, p.Detail, "980 more errors")
			require.Less(t, len(p.Detail), 1000)
			for _, field := range p.Errors {
				require.Less(t, len(field.Location)+len(field.Message), 1000)
				require.True(t, utf8.ValidString(field.Location))
			}
		})
	}
}

func TestProblem_ErrorsAreNeverNull(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(NotFound("run"))
	require.NoError(t, err)
	require.JSONEq(t, `{"title":"Not Found","status":404,"detail":"this project has no such run","code":"not_found","errors":[]}`, string(text))
}

// Each kind of error has a status with a description and an example, and one source of its detail.
func TestProblem_DescribesEachFailure(t *testing.T) {
	t.Parallel()
	shown := map[int]bool{}
	for _, p := range errorExamples {
		shown[p.Status] = true
		require.NotEmpty(t, meanings[p.Status], "%d", p.Status)
		require.NotEmpty(t, p.Detail)
		require.Equal(t, http.StatusText(p.Status), p.Title)
	}
	require.Len(t, shown, len(meanings))
	for i, f := range failures {
		require.NotNil(t, f.is, i)
		require.NotEqual(t, f.detail != "", f.detailOf != nil, "row %d has one detail", i)
		require.True(t, shown[f.status], "%d", f.status)
	}
	for status := range byStatus {
		require.True(t, shown[status], "%d", status)
	}
}

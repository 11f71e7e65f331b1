// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/internal/testenv/connectortest"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// Package crd reads the settings of connectors by their names.
func init() {
	const reader = "connector/crd/crd.go: range specFields(kind)"
	for _, kind := range connector.Kinds() {
		for _, f := range kind.Fields() {
			readers["Connector."+kind.Type()+"."+crd.FieldName(f.Name)] = reader
		}
	}
	for _, f := range connector.RetryFields() {
		readers["Connector.webhook.retry."+crd.FieldName(f.Name)] = reader
	}
	for _, other := range []string{"requireAuthentication", "retry"} { // a value of authentication, and a group
		delete(readers, "Connector.webhook."+other)
	}
}

// fieldsOf returns the fields of a spec with settings of a kind.
func fieldsOf(t *testing.T, kind connector.Kind, settings connector.Config) (fields map[string]json.RawMessage) {
	t.Helper()
	spec := &v1alpha1.ConnectorSpec{}
	crd.SetConfig(spec, kind, settings)
	text, err := json.Marshal(spec)
	require.NoError(t, err)
	var parts map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(text, &parts))
	require.NoError(t, json.Unmarshal(parts[kind.Type()], &fields))
	return fields
}

// kube-apiserver accepts the settings of a kind, and rejects settings that only other kinds of its type have.
func TestConnector_HasSettingsOfItsKind(t *testing.T) {
	t.Parallel()
	control, tried := kube.Start(t), 0
	for _, kind := range connector.Kinds() {
		for _, owner := range connector.KindsOf(kind.Type()) {
			for _, f := range owner.Fields() {
				name := crd.FieldName(f.Name)
				value, isField := fieldsOf(t, owner, connectortest.With(t, connector.Config{}, f))[name]
				has := slices.ContainsFunc(kind.Fields(), func(own connector.Field) bool { return own.Name == f.Name })
				if !isField || has && owner != kind { // tried with its own bounds
					continue
				}
				tried++
				t.Run(string(kind)+" "+f.Name+" of "+string(owner), func(t *testing.T) {
					t.Parallel()
					fields := fieldsOf(t, kind, connectortest.Required(kind))
					fields[name] = value
					text, err := json.Marshal(map[string]any{kind.Type(): fields})
					require.NoError(t, err)
					c := newConnector()
					c.SetNamespace(control.Namespace(t))
					c.Spec.Webhook, c.Spec.Mode = nil, v1alpha1.ConnectorModeOf(kind.Mode())
					require.NoError(t, json.Unmarshal(text, &c.Spec))
					if err = control.Client.Create(t.Context(), c); has {
						require.NoError(t, err)
					} else {
						require.ErrorContains(t, err, "spec")
					}
				})
			}
		}
	}
	require.Greater(t, tried, 20)
}

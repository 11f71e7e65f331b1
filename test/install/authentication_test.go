// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// The CRD, the files of a repository and the gateway
// know the same ways to authenticate callers, by the same words.
func TestAuthentication_AgreesBetweenForms(t *testing.T) {
	t.Parallel()
	var inCRD []string
	for _, of := range crdWebhook(t).Properties["authentication"].Enum {
		inCRD = append(inCRD, v1alpha1.WebhookAuthentication(strings.Trim(string(of.Raw), `"`)).EnumValue())
	}
	words := []string{"secret", "none"}
	for _, scheme := range signature.Schemes {
		words = append(words, string(scheme))
	}
	require.ElementsMatch(t, words, inCRD)
	for _, word := range words {
		require.NoError(t, inRepository("inbound", "authentication: "+word), word)
	}
}

// Context headers have the same bounds in the CRD and in the files of a repository.
func TestContextHeaders_AgreeBetweenForms(t *testing.T) {
	t.Parallel()
	crd := crdWebhook(t).Properties["contextHeaders"]
	require.EqualValues(t, connector.MaxContextHeaders, *crd.MaxItems)
	require.EqualValues(t, store.MaxContextHeaders, *crd.MaxItems)
	for _, field := range connector.Inbound.Fields() {
		if field.Name == "context_headers" {
			require.EqualValues(t, field.MaxItems, *crd.MaxItems)
		}
	}
	require.EqualValues(t, connector.MaxContextHeaderName, *crd.Items.Schema.MaxLength)
	require.EqualValues(t, store.MaxHeaderName, *crd.Items.Schema.MaxLength)
	rule := crd.Items.Schema.XValidations[1].Rule
	require.Equal(t, len(connector.WithheldHeaders), strings.Count(rule, "'")/2)
	for _, name := range connector.WithheldHeaders {
		require.Contains(t, rule, "'"+name+"'")
		require.Error(t, inRepository("inbound", "context_headers: ["+name+"]"), name)
	}
}

// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// An APIKey's manifest may be public in Git. A copy of the manifest neither contains the key nor affects it.
func TestAPIKey_CopiedManifest(t *testing.T) {
	p := start(t)
	attacker, victim := p.settle(), p.settle() // the attacker's namespace sorts first in lists
	victim.populate()
	attacker.populate()
	copied := victim.object(store.KindAPIKey, forged, "", victim.ids[store.KindAPIKey]).(*v1alpha1.APIKey)
	copied.Namespace = attacker.namespace
	attacker.create(copied)
	attacker.eventually(func() bool {
		attacker.read(copied)
		return v1alpha1.IsReady(copied)
	}, "%+v", copied)

	p.stop() // drops the facade's cache of keys
	p.run(p.path)
	victim.works()
	other := attacker.rest(victim.key.String(), http.MethodGet, "/v1/projects/"+attacker.project.String()+"/environments", "")
	require.Equal(t, http.StatusForbidden, other.status, "its owner may nothing there: %s", other.body)
	attacker.ask(victim, victim.ids)

	require.NoError(t, p.client.Delete(t.Context(), copied))
	victim.works()
}

// Also where it was rotated with a grace before.
func TestSecret_LeakedEndsWithoutGrace(t *testing.T) {
	p := start(t)
	tenant := p.settle()
	tenant.populate()
	leaked := tenant.secret
	connector := tenant.object(store.KindConnector, kindName(store.KindConnector), missing, "").(*v1alpha1.Connector)
	change := func(edit func(*v1alpha1.ConnectorSpec)) {
		t.Helper()
		tenant.read(connector)
		before := connector.DeepCopy()
		edit(&connector.Spec)
		require.NoError(t, p.client.Patch(t.Context(), connector, client.MergeFrom(before)))
		tenant.eventually(func() bool {
			tenant.read(connector)
			return v1alpha1.IsReady(connector) && connector.Status.ObservedGeneration == connector.Generation
		}, "%+v", connector)
		tenant.secret = tenant.token(kindName(store.KindConnector)+"-connector", "secret")
	}
	answers := func(secret string, status int) {
		t.Helper()
		tenant.eventually(func() bool { return p.hook(tenant.hookPath(), secret, `{}`).status == status }, "not answered %d", status)
	}

	change(func(s *v1alpha1.ConnectorSpec) { s.SecretVersion = 2 })
	require.NotEqual(t, leaked, tenant.secret)
	answers(tenant.secret, http.StatusOK)
	answers(leaked, http.StatusOK)
	change(func(s *v1alpha1.ConnectorSpec) { s.SecretGracePeriodSeconds = ptr.To(int32(0)) })
	answers(leaked, http.StatusUnauthorized)
	answers(tenant.secret, http.StatusOK)
	second := tenant.secret
	change(func(s *v1alpha1.ConnectorSpec) { s.SecretVersion = 3 })
	answers(second, http.StatusUnauthorized)
	answers(leaked, http.StatusUnauthorized)
	answers(tenant.secret, http.StatusOK)
}

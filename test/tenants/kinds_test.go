// SPDX-License-Identifier: Apache-2.0

package tenants_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
)

// forged is the name of objects with an id of another project.
const forged = "forged"

// forgeries make, for each field of a spec that takes an id, an object of the
// attacker's with an id of the victim's in it.
var forgeries = map[string]func(attacker *tenant, environment, id string) v1alpha1.ConditionedObject{
	"Environment.spec.id":   withID(store.KindEnvironment),
	"Deployment.spec.id":    withID(store.KindDeployment),
	"Connector.spec.id":     withID(store.KindConnector),
	"ConnectorLink.spec.id": withID(store.KindConnectorLink),
	"APIKey.spec.id":        withID(store.KindAPIKey),
	"Deployment.spec.redeployOf": func(attacker *tenant, environment, id string) v1alpha1.ConditionedObject {
		o := attacker.object(store.KindDeployment, forged, environment, "").(*v1alpha1.Deployment)
		o.Spec.RedeployOf = v1alpha1.DeploymentID(id)
		return o
	},
}

func withID(kind string) func(*tenant, string, string) v1alpha1.ConditionedObject {
	return func(attacker *tenant, environment, id string) v1alpha1.ConditionedObject {
		return attacker.object(kind, forged, environment, id)
	}
}

// idFields returns the fields of a schema that accept an ID, as "<path>.<field>".
func idFields(path string, schema apiextensionsv1.JSONSchemaProps) (out []string) {
	for _, rule := range schema.XValidations {
		if strings.Contains(rule.Rule, "-[0-9a-fA-F]{4}") {
			out = append(out, path)
		}
	}
	for name, property := range schema.Properties {
		out = append(out, idFields(path+"."+name, property)...)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		out = append(out, idFields(path+"[]", *schema.Items.Schema)...)
	}
	return out
}

// A field that is new has its line above.
func TestKinds_ForgeAllIDFields(t *testing.T) {
	var fields []string
	for _, o := range kube.Manifests(t, "config/crd") {
		crd := apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &crd))
		for _, version := range crd.Spec.Versions {
			fields = append(fields, idFields(crd.Spec.Names.Kind+".spec", version.Schema.OpenAPIV3Schema.Properties["spec"])...)
		}
	}
	slices.Sort(fields)
	require.Equal(t, slices.Sorted(maps.Keys(forgeries)), fields)
}

// forge creates an object with an ID of the victim and uses the resulting IDs in further requests, until it deletes the object.
func (attacker *tenant) forge(victim *tenant, field, environment string) {
	attacker.t.Helper()
	kind, path, _ := strings.Cut(field, ".")
	id, own := victim.ids[kind], path == "spec.id"
	o := forgeries[field](attacker, environment, id)
	attacker.create(o.(client.Object))
	attacker.eventually(func() bool {
		attacker.read(o.(client.Object))
		return o.CommonStatus().Condition(v1alpha1.ConditionReady) != nil && (!own || o.CommonStatus().ID == id)
	}, "%s: %+v", field, o)
	spy := *attacker
	if environment != missing {
		spy.adopt(kind)
	}
	spy.ask(victim, map[string]string{field: id, "derived": victim.all()["derived "+kind]})
	attacker.remove(kind, forged, o.CommonStatus().ID)
}

// adopt makes the attacker use the tokens and secrets of the forged object.
func (attacker *tenant) adopt(kind string) {
	attacker.t.Helper()
	switch kind {
	case store.KindEnvironment:
		attacker.runnerToken = attacker.token(forged+"-runner-token", base.TokenKey)
	case store.KindDeployment:
		deployment := &v1alpha1.Deployment{ObjectMeta: attacker.meta(forged)}
		attacker.eventually(func() bool {
			attacker.read(deployment)
			return deployment.Status.Phase != ""
		}, "%+v", deployment)
		if deployment.Status.Phase.Terminal() {
			return // it was made before, and ended when it was deleted
		}
		attacker.buildToken = attacker.token(forged+"-build-token", base.TokenKey)
	case store.KindConnector:
		attacker.secret = attacker.token(forged+"-connector", "secret")
	}
}

// forgeAll forges each field.
func (attacker *tenant) forgeAll(victim *tenant) {
	attacker.t.Helper()
	for field := range forgeries {
		attacker.forge(victim, field, kindName(store.KindEnvironment))
	}
}

// The controllers reject a foreign ID in every state of its object.
func TestKinds_RejectForeignIDs(t *testing.T) {
	p := start(t)
	victim, attacker := p.settle(), p.settle()
	attacker.populate()

	t.Log("the victim's objects are not yet made")
	attacker.forgeAll(victim)
	victim.populate()

	t.Log("they are in effect")
	before := victim.rows()
	attacker.forgeAll(victim)
	for _, field := range []string{"Deployment.spec.id", "Connector.spec.id", "ConnectorLink.spec.id"} {
		attacker.forge(victim, field, missing) // claimed, and never in effect
	}
	require.Equal(t, before, victim.rows())
	victim.works()

	t.Log("another one of the victim's own wants the id and is refused")
	for _, kind := range kinds {
		victim.refuse(kind)
	}
	before = victim.rows()
	attacker.forgeAll(victim)
	require.Equal(t, before, victim.rows())
	victim.works()

	t.Log("they are deleted")
	for _, kind := range slices.Backward(kinds) {
		require.NoError(t, p.client.Delete(t.Context(), victim.object(kind, "second", missing, "").(client.Object)))
		victim.remove(kind, kindName(kind), victim.ids[kind])
	}
	before = victim.rows()
	attacker.forgeAll(victim)
	require.Equal(t, before, victim.rows())
}

// Another tenant claims the ID in the meantime and keeps it. The claim has no effect on the restored object.
func TestKinds_RestoreReleasedID(t *testing.T) {
	p := start(t)
	victim, attacker := p.settle(), p.settle()
	victim.populate()
	attacker.populate()
	for _, kind := range slices.Backward(kinds) {
		victim.remove(kind, kindName(kind), victim.ids[kind])
		attacker.squat(kind, victim.ids[kind])
	}
	for _, kind := range kinds {
		victim.apply(kind)
	}
	for _, kind := range kinds {
		victim.inEffect(kind)
	}
	victim.works()
	attacker.ask(victim, victim.all())
	path := "/hooks/" + attacker.project.String() + "/" + victim.ids[store.KindConnector]
	require.Equal(t, http.StatusUnauthorized, p.hook(path, victim.secret, `{}`).status)
	require.True(t, p.hook(path, attacker.token(forged+"-connector", "secret"), `{}`).ok(), "it is a webhook of the attacker's")
}

// squat creates an object with an ID in its own project and waits until the object holds the ID.
func (t *tenant) squat(kind, id string) {
	t.t.Helper()
	o := t.object(kind, forged, kindName(store.KindEnvironment), id)
	t.create(o.(client.Object))
	t.eventually(func() bool {
		t.read(o.(client.Object))
		return o.CommonStatus().ID == id
	}, "%s: %+v", kind, o)
}

// refuse creates a second object of the tenant with the ID of the first object.
func (t *tenant) refuse(kind string) {
	t.t.Helper()
	o := t.object(kind, "second", kindName(store.KindEnvironment), t.ids[kind])
	t.create(o.(client.Object))
	t.eventually(func() bool {
		t.read(o.(client.Object))
		return v1alpha1.IsStalled(o) && o.CommonStatus().Condition(v1alpha1.ConditionStalled).Reason == v1alpha1.ReasonIDTaken
	}, "%s: %+v", kind, o)
}

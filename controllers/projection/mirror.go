// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

// Mirror has the objects that mirror one file of connectors/.
type Mirror struct {
	// Key is the stem of the file.
	Key       string
	Connector *v1alpha1.Connector
	Links     []*v1alpha1.ConnectorLink
}

// MirrorOf returns the objects that mirror a file in an environment. They have no owner, because a
// connector outlives the deployment that created it.
func MirrorOf(namespace string, environment v1alpha1.EnvironmentName, c *bundle.Connector) Mirror {
	labels := MirrorLabels(environment)
	spec := connectorSpec(c)
	spec.Environment = environment
	name := v1alpha1.CodeConnectorName(environment, c.Key)
	m := Mirror{Key: c.Key, Connector: &v1alpha1.Connector{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: spec,
	}}
	for i, link := range c.AllLinks() {
		at := maps.Clone(labels)
		at[v1alpha1.LabelPosition] = strconv.Itoa(i)
		m.Links = append(m.Links, &v1alpha1.ConnectorLink{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.CodeLinkName(name, link.Agent), Labels: at},
			Spec: v1alpha1.ConnectorLinkSpec{
				Connector: v1alpha1.ConnectorName(name), Agent: v1alpha1.AgentName(link.Agent), FilesRequired: link.FilesRequired,
				Outbound: outboundLink(environment, c, link),
			},
		})
	}
	return m
}

// outboundLink returns the outbound settings of a link in a file, or nil.
func outboundLink(environment v1alpha1.EnvironmentName, c *bundle.Connector, link bundle.Link) *v1alpha1.OutboundLink {
	if link.Outbound == nil {
		return nil
	}
	policy := *link.Outbound
	policy.ActionName, policy.SourceConnectors = c.ActionName(link), nil
	for _, key := range link.Outbound.SourceConnectors {
		policy.SourceConnectors = append(policy.SourceConnectors, v1alpha1.CodeConnectorName(environment, key))
	}
	return crd.OutboundLink(policy)
}

// MirrorLabels returns the labels of the mirrors of an environment.
func MirrorLabels(environment v1alpha1.EnvironmentName) map[string]string {
	return map[string]string{
		base.LabelManagedBy: base.ManagedBy, v1alpha1.LabelDefinedInCode: "true", v1alpha1.LabelEnvironment: string(environment),
	}
}

// connectorSpec returns the spec for a file, with the defaults of the API server.
func connectorSpec(c *bundle.Connector) v1alpha1.ConnectorSpec {
	spec := v1alpha1.ConnectorSpec{
		DisplayName: v1alpha1.DisplayName(c.DisplayName), Mode: v1alpha1.ConnectorModeOf(c.Mode), Enabled: ptr.To(c.Enabled),
		SecretVersion: 1, SecretGracePeriodSeconds: ptr.To(int32(v1alpha1.DefaultSecretGracePeriod.Seconds())),
	}
	crd.SetConfig(&spec, c.Kind(), c.Config)
	return spec
}

// SetActivation sets the fields of an activation on the mirror. existing is the current object, or nil. Fields
// that users may change stay: the version of its secrets with the grace period of that rotation, and
// enabled until the next activation.
func (m *Mirror) SetActivation(existing *v1alpha1.Connector, rank int64) {
	if existing != nil {
		m.Connector.Spec.SecretVersion = existing.SecretVersion()
		m.Connector.Spec.SecretGracePeriodSeconds = existing.Spec.SecretGracePeriodSeconds
		if grace, rotated := existing.Annotations[v1alpha1.AnnotationRotationGrace]; rotated {
			m.Connector.Annotations = map[string]string{v1alpha1.AnnotationRotationGrace: grace}
		}
		if rank != 0 && existing.Activation() == rank && !existing.Retired() {
			m.Connector.Spec.Enabled = existing.Spec.Enabled
		}
	}
	if rank == 0 {
		return
	}
	m.Connector.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(rank, 10)
	for _, link := range m.Links {
		link.Labels[v1alpha1.LabelActivation] = strconv.FormatInt(rank, 10)
	}
}

// Rows returns the rows of the mirror's links for an activation.
func (m *Mirror) Rows(project uuid.UUID) []store.Link {
	connector := objectKey(project, store.KindConnector, m.Connector.Name)
	out := make([]store.Link, len(m.Links))
	for i, link := range m.Links {
		var sources []uuid.UUID
		for _, name := range link.SourceConnectors() {
			sources = append(sources, objectKey(project, store.KindConnector, string(name)).ID)
		}
		out[i] = LinkRow(mirrorRef(link), link, objectKey(project, store.KindConnectorLink, link.Name), connector)
		out[i].Outbound = Policy(link, m.Connector, sources)
	}
	return out
}

// Row returns the row of the mirror's connector for an activation. c is the connector with expanded
// texts.
func (m *Mirror) Row(c *v1alpha1.Connector, ids Identity, secret, keyID string) (store.Connector, error) {
	return Row(mirrorRef(m.Connector), c, ids, secret, keyID)
}

// Identity returns the IDs of the mirror's connector.
func (m *Mirror) Identity(environment store.Key) Identity {
	return Identity{environment.ProjectID, environment.ID, objectKey(environment.ProjectID, store.KindConnector, m.Connector.Name).ID}
}

// mirrorRef returns the reference of an object that mirrors the store, without a UID.
func mirrorRef(o v1alpha1.ConditionedObject) store.ObjectRef {
	return store.ObjectRef{Namespace: o.GetNamespace(), Kind: o.ObjectKind(), Name: o.GetName()}
}

// IsMirror reports whether an object is a mirror that the platform created in the environment. Other
// objects with its name are neither used nor changed. Labels alone prove nothing for an object with
// another name, because any user can write them.
func IsMirror(o v1alpha1.ConditionedObject, environment v1alpha1.EnvironmentName) bool {
	labels := o.GetLabels()
	return strings.HasPrefix(o.GetName(), string(environment)+".") && labels[v1alpha1.LabelDefinedInCode] == "true" && labels[base.LabelManagedBy] == base.ManagedBy &&
		labels[v1alpha1.LabelEnvironment] == string(environment) && o.SpecID() == ""
}

// IsCreatedByPlatform reports whether the platform created an object as a mirror, according to its field manager.
// Labels prove less.
func IsCreatedByPlatform(o v1alpha1.ConditionedObject) bool {
	return o.SpecID() == "" && slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == base.FieldManager && f.Subresource == "" && f.Operation == metav1.ManagedFieldsOperationUpdate
	})
}

// SameConnector reports whether an object equals its mirror.
func SameConnector(a, b *v1alpha1.Connector) bool {
	x, y := a.Spec.DeepCopy(), b.Spec.DeepCopy()
	if x.Cron != nil && y.Cron != nil {
		if !sameJSON(x.Cron.Payload, y.Cron.Payload) {
			return false
		}
		x.Cron.Payload, y.Cron.Payload = nil, nil
	}
	return equality.Semantic.DeepEqual(x, y)
}

func sameJSON(a, b *runtime.RawExtension) bool {
	if a == nil || b == nil {
		return a == b
	}
	return bytes.Equal(crd.CanonicalJSON(a.Raw), crd.CanonicalJSON(b.Raw))
}

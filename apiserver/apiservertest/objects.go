// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"database/sql"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
)

// Meta returns the metadata of an object of the project.
func (p *Project) Meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.Namespace, Name: name}
}

// Create creates an object and sets its status like its controller.
func (p *Project) Create(t testing.TB, o client.Object) {
	t.Helper()
	require.NoError(t, p.Client.Create(t.Context(), o))
	if object, ok := o.(v1alpha1.ConditionedObject); ok {
		p.SetReady(t, object)
	}
}

// SetReady claims the ID of an object and sets its status like its controller.
func (p *Project) SetReady(t testing.TB, object v1alpha1.ConditionedObject) {
	t.Helper()
	id, err := v1alpha1.ObjectID(p.ProjectID, object)
	require.NoError(t, err)
	require.NoError(t, p.Store.ClaimID(t.Context(), store.Key{ProjectID: p.ProjectID, ID: id}, p.ObjectRef(object)))
	object.CommonStatus().ID = id.String()
	v1alpha1.MarkReady(object, "")
	switch o := object.(type) {
	case *v1alpha1.Connector:
		o.MarkRoutesReady()
	case *v1alpha1.Environment:
		o.Status.Slug = o.WantedSlug()
	}
	require.NoError(t, p.Client.Status().Update(t.Context(), object.(client.Object)))
}

// ObjectRef returns the reference to an object in the store.
func (p *Project) ObjectRef(o v1alpha1.ConditionedObject) store.ObjectRef {
	return store.ObjectRef{
		Namespace: o.GetNamespace(), Kind: o.ObjectKind(), Name: o.GetName(),
		ObjectUID: string(o.GetUID()), Generation: o.GetGeneration(),
	}
}

// EnvironmentID returns the ID of an environment.
func (p *Project) EnvironmentID(name string) string {
	return v1alpha1.ProjectObjectID(p.ProjectID, "Environment", name).String()
}

// Allow binds a user to a new role with one rule in the namespace.
func (p *Project) Allow(t testing.TB, role, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	defer kube.Start(t).AwaitGranted(t, v1alpha1.Subject{User: user}, p.Namespace, rule)
	p.Create(t, &rbacv1.Role{ObjectMeta: p.Meta(role), Rules: []rbacv1.PolicyRule{rule}})
	p.Create(t, &rbacv1.RoleBinding{
		ObjectMeta: p.Meta(role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

// CreateKey creates an API key of the user anna. change may change its spec.
func (p *Project) CreateKey(t testing.TB, change func(*v1alpha1.APIKeySpec)) string {
	t.Helper()
	key := keys.Generate()
	object := &v1alpha1.APIKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, GenerateName: "key-"},
		Spec: v1alpha1.APIKeySpec{
			Hash: key.Hash(), KeyID: key.ID(), Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
		},
	}
	if change != nil {
		change(&object.Spec)
	}
	require.NoError(t, p.Client.Create(t.Context(), object))
	return key.String()
}

// Quantity parses a quantity.
func Quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

// NewestAuditEntry returns the newest entry of the audit log.
func (p *Project) NewestAuditEntry(t *testing.T) store.AuditEntry {
	t.Helper()
	list, err := p.Store.ListAudit(t.Context(), store.AuditQuery{ProjectID: p.ProjectID, Limit: 1})
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// EnvironmentObject reads the Environment with an ID from Kubernetes. It returns nil if there is none.
func (p *Project) EnvironmentObject(t testing.TB, id string) *v1alpha1.Environment {
	t.Helper()
	var list v1alpha1.EnvironmentList
	require.NoError(t, p.Client.List(t.Context(), &list, client.InNamespace(p.Namespace)))
	for i := range list.Items {
		if string(list.Items[i].Spec.ID) == id || v1alpha1.ProjectObjectID(p.ProjectID, "Environment", list.Items[i].Name).String() == id {
			return &list.Items[i]
		}
	}
	return nil
}

// ProjectObject reads the Project from Kubernetes.
func (p *Project) ProjectObject(t testing.TB) *v1alpha1.Project {
	t.Helper()
	project := &v1alpha1.Project{}
	require.NoError(t, p.Client.Get(t.Context(), client.ObjectKey{Namespace: p.Namespace, Name: v1alpha1.ProjectName}, project))
	return project
}

// CountAuditEntries returns the number of entries of the audit log.
func (p *Project) CountAuditEntries(t testing.TB) int {
	t.Helper()
	list, err := p.Store.ListAudit(t.Context(), store.AuditQuery{ProjectID: p.ProjectID, Limit: 10000})
	require.NoError(t, err)
	return len(list)
}

// ExecuteSQL changes the SQLite database of the store.
func (p *Project) ExecuteSQL(t testing.TB, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+p.StorePath+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}

// StoredRef returns the reference to an object in the store, or a made-up one if the store lacks it.
func (p *Project) StoredRef(t testing.TB, kind, name string) store.ObjectRef {
	t.Helper()
	claims, err := p.Store.Holders(t.Context(), p.ProjectID, kind)
	require.NoError(t, err)
	for _, claim := range claims {
		if claim.Ref.Name == name {
			return claim.Ref
		}
	}
	return store.ObjectRef{Namespace: p.Namespace, Kind: kind, Name: name, ObjectUID: name, Generation: 1}
}

// CountObjects counts the connectors and links in Kubernetes.
func (p *Project) CountObjects(t testing.TB) (connectors, links int) {
	t.Helper()
	var (
		c v1alpha1.ConnectorList
		l v1alpha1.ConnectorLinkList
	)
	require.NoError(t, p.Client.List(t.Context(), &c, client.InNamespace(p.Namespace)))
	require.NoError(t, p.Client.List(t.Context(), &l, client.InNamespace(p.Namespace)))
	return len(c.Items), len(l.Items)
}

// CreateConnector creates an inbound connector in the environment production.
func (p *Project) CreateConnector(t testing.TB, name string, change func(*v1alpha1.Connector)) *v1alpha1.Connector {
	t.Helper()
	conn := &v1alpha1.Connector{ObjectMeta: p.Meta(name), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	if change != nil {
		change(conn)
	}
	p.Create(t, conn)
	return conn
}

// GetConnector reads a connector by REST.
func (p *Project) GetConnector(t testing.TB, key string, conn *v1alpha1.Connector) connectors.Connector {
	t.Helper()
	status, body := p.Call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	return Decode[connectors.Connector](t, body)
}

// ConnectorObject reads the Connector with an ID from Kubernetes.
func (p *Project) ConnectorObject(t testing.TB, id string) *v1alpha1.Connector {
	t.Helper()
	var list v1alpha1.ConnectorList
	require.NoError(t, p.Client.List(t.Context(), &list, client.InNamespace(p.Namespace), client.MatchingFields{"spec.id": id}))
	require.Len(t, list.Items, 1)
	return &list.Items[0]
}

// CreateOutboundConnector creates an outbound connector by REST.
func (p *Project) CreateOutboundConnector(t *testing.T, key, name, config string) connectors.Connector {
	t.Helper()
	status, body := p.Call(t, key, http.MethodPost, "/connectors?environment_id="+p.EnvironmentID("production"),
		`{"name":"`+name+`","type":"webhook","mode":"outbound","config":`+config+`}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	return Decode[connectors.Connector](t, body)
}

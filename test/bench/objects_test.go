// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

const (
	manyConnectors, linksEach = 1000, 5
	// writersAtOnce is the number of objects that are applied concurrently.
	writersAtOnce = 16
	// quiet is the length of the idle period for counting writes.
	quiet = time.Minute
)

// BenchmarkObjects applies 1,000 connectors with 5,000 links at once and compares three figures:
//   - the time until all are ready, with the time to apply the same manifests without a manager,
//   - the time of another project's connector in the middle of the load, with its time on an idle manager,
//   - the writes and the memory of the manager once all objects are ready.
func BenchmarkObjects(b *testing.B) {
	s := newObjects(b)
	unmanaged := s.namespace("unmanaged")
	idle := s.apply(unmanaged)

	many, other := s.namespace("many"), s.namespace("other")
	manager := s.manager(many, other)
	alone := s.until(other, "alone")

	begun := time.Now()
	var work errgroup.Group
	work.Go(func() error { s.apply(many); return nil })
	s.eventually(func() bool {
		l := linkOf(many, nameOf(manyConnectors/5), 0)
		return s.Get(b.Context(), client.ObjectKeyFromObject(l), l) == nil
	})
	beside := s.until(other, "beside")
	require.NoError(b, work.Wait())
	s.untilAllReady(many)
	print(b, Cost("objects/1000 connectors and 5000 links until Ready", "s", time.Since(begun).Seconds(), idle.Seconds(), 0))
	print(b, Cost("objects/another project's connector beside them", "s", beside.Seconds(), alone.Seconds(), 0))

	<-time.After(settle)
	before := s.versions(many)
	<-time.After(quiet)
	written := 0
	for name, version := range s.versions(many) {
		if before[name] != version {
			written++
		}
	}
	print(b, Cost("objects/written in a minute at rest", "objects", float64(written), float64(len(before)), 0))
	print(b, Cost("objects/memory of the manager with them", "MiB", manager.resident(b), float64(len(before))/1024, 0))
}

// objects is a control plane and its clients.
type objects struct {
	*testing.B
	client.Client
	dir, bin string
}

func newObjects(b *testing.B) *objects {
	s := &objects{B: b, dir: b.TempDir(), bin: filepath.Join(b.TempDir(), "agentplatform")}
	out, err := exec.CommandContext(b.Context(), "go", "build", "-ldflags", "-s -w", "-o", s.bin, "../../cmd/agentplatform").CombinedOutput()
	require.NoError(b, err, string(out))
	config := kube.Start(b).Config
	config.QPS = -1
	require.NoError(b, clientcmd.WriteToFile(kubeconfigOf(config), filepath.Join(s.dir, "kubeconfig")))
	known := runtime.NewScheme()
	require.NoError(b, scheme.AddToScheme(known))
	require.NoError(b, v1alpha1.AddToScheme(known))
	s.Client, err = client.New(config, client.Options{Scheme: known})
	require.NoError(b, err)
	return s
}

// manager starts one on PostgreSQL that works in some namespaces.
func (s *objects) manager(namespaces ...string) *process {
	db, dsn := openPostgres(s.B), filepath.Join(s.dir, "dsn")
	require.NoError(s, os.WriteFile(dsn, []byte(db.dsn), 0o600))
	s.Setenv("KUBECONFIG", filepath.Join(s.dir, "kubeconfig"))
	return start(s.B, s.bin, "manager", "--leader-elect=false", "--image=agentplatform:dev", "--dispatch-url=http://127.0.0.1:1",
		"--store-dsn-file="+dsn, "--system-namespace=default",
		"--watch-namespaces="+strings.Join(namespaces, ","))
}

// namespace creates a project with one environment and returns its namespace.
func (s *objects) namespace(name string) string {
	require.NoError(s, s.Create(s.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	require.NoError(s, s.Create(s.Context(), &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.ProjectName}}))
	require.NoError(s, s.Create(s.Context(), &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "dev"}}))
	return name
}

func connectorNamed(namespace, name string) *v1alpha1.Connector {
	return &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.ConnectorSpec{
		Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
}

// nameOf is the i-th connector's name.
func nameOf(i int) string { return fmt.Sprintf("c%d", i) }

// linkOf returns the i-th link of a connector.
func linkOf(namespace, connector string, i int) *v1alpha1.ConnectorLink {
	return &v1alpha1.ConnectorLink{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", connector, i)},
		Spec:       v1alpha1.ConnectorLinkSpec{Connector: v1alpha1.ConnectorName(connector), Agent: v1alpha1.AgentName(fmt.Sprintf("a%d", i))},
	}
}

// apply creates all connectors and links, and returns how long that took.
func (s *objects) apply(namespace string) time.Duration {
	begun := time.Now()
	var work errgroup.Group
	work.SetLimit(writersAtOnce)
	for i := range manyConnectors {
		work.Go(func() error { return s.connect(s.Context(), namespace, nameOf(i)) })
	}
	require.NoError(s, work.Wait())
	return time.Since(begun)
}

// connect creates a connector with its links.
func (s *objects) connect(ctx context.Context, namespace, name string) error {
	if err := s.Create(ctx, connectorNamed(namespace, name)); err != nil {
		return err
	}
	for i := range linksEach {
		if err := s.Create(ctx, linkOf(namespace, name, i)); err != nil {
			return err
		}
	}
	return nil
}

// until creates a connector and returns how long it took to become Ready.
func (s *objects) until(namespace, name string) time.Duration {
	c, begun := connectorNamed(namespace, name), time.Now()
	require.NoError(s, s.Create(s.Context(), c))
	s.eventually(func() bool {
		return s.Get(s.Context(), client.ObjectKeyFromObject(c), c) == nil && v1alpha1.IsReady(c)
	})
	return time.Since(begun)
}

// untilAllReady waits until all objects of apply are ready. It reads one object at a time, because listing all of them would
// dominate the load of kube-apiserver.
func (s *objects) untilAllReady(namespace string) {
	for i := range manyConnectors {
		wait := func(o v1alpha1.ConditionedObject) {
			s.eventually(func() bool {
				return s.Get(s.Context(), client.ObjectKeyFromObject(o.(client.Object)), o.(client.Object)) == nil && v1alpha1.IsReady(o)
			})
		}
		wait(connectorNamed(namespace, nameOf(i)))
		for j := range linksEach {
			wait(linkOf(namespace, nameOf(i), j))
		}
	}
}

// versions returns the resourceVersions of all objects that the manager may write.
func (s *objects) versions(namespace string) map[string]string {
	out := map[string]string{}
	for _, list := range []client.ObjectList{
		&v1alpha1.ProjectList{}, &v1alpha1.EnvironmentList{}, &v1alpha1.ConnectorList{}, &v1alpha1.ConnectorLinkList{}, &corev1.SecretList{},
	} {
		require.NoError(s, s.List(s.Context(), list, client.InNamespace(namespace)))
		require.NoError(s, meta.EachListItem(list, func(o runtime.Object) error {
			object := o.(client.Object)
			out[fmt.Sprintf("%T/%s", o, object.GetName())] = object.GetResourceVersion()
			return nil
		}))
	}
	return out
}

func (s *objects) eventually(ok func() bool) {
	require.Eventually(s, ok, 10*time.Minute, 20*time.Millisecond)
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/diff"
	"github.com/argoproj/gitops-engine/pkg/engine"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

const (
	// manager is the field manager of Argo CD.
	manager = "argocd-controller"
	// tracking is the annotation that marks the objects of Argo CD. Its value names the annotated object, so that a copy of the
	// object has no owner.
	tracking = "argocd.argoproj.io/tracking-id"
)

// application is an Argo CD application: the manifests of a namespace.
type application struct {
	name, namespace string
	serverSide      bool
	out             io.Writer

	config  *rest.Config
	cluster cache.ClusterCache
	close   func()
	engine  engine.GitOpsEngine
}

// connect reads the objects in the namespace.
func (a *application) connect(config *rest.Config) error {
	log := logr.Discard()
	a.config = config
	a.cluster = cache.NewClusterCache(config, cache.SetLogr(log), cache.SetNamespaces([]string{a.namespace}),
		cache.SetPopulateResourceInfoHandler(func(object *unstructured.Unstructured, _ bool) (any, bool) {
			own := a.owns(object)
			return own, own
		}))
	a.engine = engine.NewEngine(config, a.cluster, engine.WithLogr(log))
	stop, err := a.engine.Run()
	if err != nil {
		return fmt.Errorf("reading the namespace: %w", err)
	}
	a.close = stop
	return nil
}

func (a *application) owns(object *unstructured.Unstructured) bool {
	return object.GetAnnotations()[tracking] == a.trackingID(object)
}

func (a *application) trackingID(object *unstructured.Unstructured) string {
	kind := object.GroupVersionKind()
	return fmt.Sprintf("%s:%s/%s:%s/%s", a.name, kind.Group, kind.Kind, a.namespace, object.GetName())
}

func managed(r *cache.Resource) bool {
	own, ok := r.Info.(bool)
	return ok && own
}

// track marks the manifests as the application's.
func (a *application) track(target []*unstructured.Unstructured) {
	for _, object := range target {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[tracking] = a.trackingID(object)
		object.SetAnnotations(annotations)
		object.SetNamespace(a.namespace)
	}
}

// sync applies the manifests to the cluster and removes the objects that the manifests no longer contain.
func (a *application) sync(ctx context.Context, target []*unstructured.Unstructured) error {
	a.track(target)
	results, err := a.engine.Sync(ctx, target, managed, "manifests", a.namespace, sync.WithPrune(true), sync.WithLogr(logr.Discard()),
		sync.WithServerSideApply(a.serverSide), sync.WithServerSideApplyManager(manager))
	if err != nil {
		return fmt.Errorf("syncing: %w", err)
	}
	var failed []string
	for _, r := range results {
		fmt.Fprintf(a.out, "%s/%s: %s: %s\n", r.ResourceKey.Kind, r.ResourceKey.Name, r.Status, r.Message)
		if r.Status == common.ResultCodeSyncFailed {
			failed = append(failed, r.ResourceKey.String()+": "+r.Message)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not synced: %s", strings.Join(failed, "; "))
	}
	return nil
}

// diff prints each object that differs from the manifests, including objects of the application that no manifest contains.
func (a *application) diff(target []*unstructured.Unstructured) error {
	a.track(target)
	live, err := a.cluster.GetManagedLiveObjs(target, managed)
	if err != nil {
		return fmt.Errorf("reading what is there: %w", err)
	}
	options, done, err := a.comparison()
	if err != nil {
		return err
	}
	defer done()
	pairs := sync.Reconcile(target, live, a.namespace, a.cluster)
	all, err := diff.DiffArray(pairs.Target, pairs.Live, options...)
	if err != nil {
		return fmt.Errorf("comparing: %w", err)
	}
	for i, d := range all.Diffs {
		if !d.Modified {
			continue
		}
		fmt.Fprintf(a.out, "%s\n  is        %s\n  should be %s\n", name(pairs.Target[i], pairs.Live[i]), d.NormalizedLive, d.PredictedLive)
	}
	fmt.Fprintf(a.out, "compared %d objects\n", len(all.Diffs))
	if all.Modified {
		return errDiffers
	}
	return nil
}

// comparison returns the comparison mode of Argo CD: by the last applied manifest, or by a dry run on the server.
func (a *application) comparison() (options []diff.Option, done func(), err error) {
	options = []diff.Option{diff.WithLogr(logr.Discard()), diff.WithManager(manager), diff.WithGVKParser(a.cluster.GetGVKParser())}
	if !a.serverSide {
		return options, func() {}, nil
	}
	applier, done, err := kube.ManageServerSideDiffDryRuns(a.config, a.cluster.GetOpenAPISchema(), tracing.NopTracer{}, logr.Discard(), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("preparing dry runs: %w", err)
	}
	return append(options, diff.WithServerSideDiff(true), diff.WithServerSideDryRunner(diff.NewK8sServerSideDryRunner(applier))), done, nil
}

func name(objects ...*unstructured.Unstructured) string {
	for _, object := range objects {
		if object != nil {
			return object.GetKind() + "/" + object.GetName()
		}
	}
	return ""
}

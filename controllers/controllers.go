// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/controllers/apikey"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/certificate"
	"github.com/agentplatform/agentplatform/controllers/code"
	"github.com/agentplatform/agentplatform/controllers/commitstatus"
	"github.com/agentplatform/agentplatform/controllers/connector"
	"github.com/agentplatform/agentplatform/controllers/connectorlink"
	"github.com/agentplatform/agentplatform/controllers/deployment"
	"github.com/agentplatform/agentplatform/controllers/environment"
	"github.com/agentplatform/agentplatform/controllers/gitfollower"
	"github.com/agentplatform/agentplatform/controllers/platformkeys"
	"github.com/agentplatform/agentplatform/controllers/project"
	"github.com/agentplatform/agentplatform/controllers/rates"
	"github.com/agentplatform/agentplatform/controllers/runnerpool"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/plan"
)

// Register adds all controllers and background loops to the manager.
func Register(ctx context.Context, mgr ctrl.Manager, opts Options) error {
	if err := opts.validate(); err != nil {
		return err
	}
	if err := base.IndexFields(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	opts.Store = namespacedStore{opts.Store, opts.Namespaces}
	rules, err := opts.Egress.Rules()
	if err != nil {
		return err
	}
	trust, anew, damper := make(chan event.GenericEvent), make(chan event.GenericEvent), &connector.ReportDamper{}
	pods := base.PodOptions{
		Image: opts.Image, DispatchURL: opts.DispatchURL, TrustDispatchCA: opts.DispatchTLSSecret != "", Egress: opts.Egress,
	}
	for _, c := range []struct {
		name       string
		controller interface{ SetupWithManager(ctrl.Manager) error }
	}{
		{"project", &project.Reconciler{Base: newBase(mgr, opts, "project"), Store: opts.Store, Keys: opts.Keys, Network: project.Network{
			SystemNamespace: opts.SystemNamespace, DispatchTLSSecret: opts.DispatchTLSSecret, Egress: rules,
		}, TrustChanged: trust, GatewayURL: opts.GatewayURL}},
		{"deployment", &deployment.Reconciler{
			Base: newBase(mgr, opts, "deployment"), Store: opts.Store, Keys: opts.Keys, Pods: pods,
		}},
		{"commitstatus", &commitstatus.Reconciler{Base: newBase(mgr, opts, "deployment"), Guard: egress.New(rules)}},
		{"connector", &connector.Reconciler{
			Base: newBase(mgr, opts, "connector"), Store: opts.Store,
			Keys: opts.Keys, Changed: anew, Damper: damper, GatewayURL: opts.GatewayURL, Metrics: opts.Metrics,
		}},
		{"code", &code.Reconciler{Base: newBase(mgr, opts, "code"), Store: opts.Store}},
		{"connectorlink", &connectorlink.Reconciler{Base: newBase(mgr, opts, "connectorlink"), Store: opts.Store}},
		{"apikey", &apikey.Reconciler{Base: newBase(mgr, opts, "apikey"), Audit: opts.Store}},
		{"certificate", certificates(mgr, opts, trust)},
	} {
		if err := c.controller.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("registering controller %q: %w", c.name, err)
		}
	}
	if err := addEnvironments(mgr, opts, rules, pods); err != nil {
		return err
	}
	return addLoops(mgr, opts, anew, damper)
}

// addEnvironments adds the controller of Environments, with their runner pools and the branches that they
// follow.
func addEnvironments(mgr ctrl.Manager, opts Options, rules egress.Rules, pods base.PodOptions) error {
	base, changed := newBase(mgr, opts, "environment"), make(chan event.GenericEvent)
	pools, heads := runnerpool.NewPools(opts.StabilizationWindow), gitfollower.NewHeads()
	pushes := gitfollower.NewPushes(opts.Store, opts.Hints, opts.Namespaces)
	environments := &environment.Reconciler{
		Base: base, Store: opts.Store, Changed: changed, Git: &gitfollower.Follower{Base: base, Store: opts.Store, Heads: heads},
		Pool: &runnerpool.Reconciler{Base: base, Store: opts.Store, Keys: opts.Keys, Pods: pods, Pools: pools, Changed: changed},
	}
	if err := environments.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("registering controller %q: %w", "environment", err)
	}
	branches := &gitfollower.Reconciler{
		Base: base, Guard: egress.New(rules), Heads: heads, Changed: changed, Pushes: pushes, Metrics: opts.Metrics,
	}
	if err := branches.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("registering controller %q: %w", "branches", err)
	}
	if err := mgr.Add(pushes); err != nil {
		return fmt.Errorf("registering the push listener: %w", err)
	}
	if err := mgr.Add(&environment.DriftWatch{
		Store: opts.Store, Changed: changed, Namespaces: opts.Namespaces, Logger: slog.Default(),
	}); err != nil {
		return fmt.Errorf("registering the check of MCP tools: %w", err)
	}
	if err := mgr.Add(&runnerpool.Scaler{
		Store: opts.Store, Hints: opts.Hints, Pools: pools, Clock: clock.RealClock{}, Changed: changed, Metrics: opts.Metrics, Logger: slog.Default(),
	}); err != nil {
		return fmt.Errorf("registering the scaler of runner pools: %w", err)
	}
	return nil
}

// addLoops adds the background loops to the manager. The loops send to anew the connectors to
// reconcile. damper records the notifications of the connectors.
func addLoops(mgr ctrl.Manager, opts Options, anew chan event.GenericEvent, damper *connector.ReportDamper) error {
	if err := mgr.Add(newSweep(mgr.GetAPIReader(), mgr.GetClient(), opts)); err != nil {
		return fmt.Errorf("registering the sweep: %w", err)
	}
	if err := mgr.Add(&connector.Destinations{
		Store: opts.Store, Changed: anew, Namespaces: opts.Namespaces, Logger: slog.Default(), Damper: damper,
	}); err != nil {
		return fmt.Errorf("registering the check of destinations: %w", err)
	}
	if err := mgr.Add(newRejections(newBase(mgr, opts, "connector"), opts.Store)); err != nil {
		return fmt.Errorf("registering the reports of rejected webhooks: %w", err)
	}
	if err := addRates(mgr, opts); err != nil {
		return err
	}
	if opts.KeyKeeper != nil {
		opts.KeyKeeper.Changed, opts.KeyKeeper.Namespaces = anew, opts.Namespaces
		if err := errors.Join(mgr.Add(opts.KeyKeeper), mgr.Add(platformkeys.Reporter{Follower: opts.KeyKeeper.Follower})); err != nil {
			return fmt.Errorf("registering the keeper of the keys: %w", err)
		}
	}
	if opts.Lease != nil {
		if err := mgr.Add(opts.Lease); err != nil {
			return fmt.Errorf("registering the lease on the store: %w", err)
		}
	}
	return nil
}

// addRates adds the loop that fetches exchange rates, if a URL is set.
func addRates(mgr ctrl.Manager, opts Options) error {
	rules, err := opts.Egress.Rules()
	if err != nil || opts.RatesURL == "" {
		return err
	}
	follower, err := rates.New(rates.Options{
		URL: opts.RatesURL, Client: egress.New(rules).Client(egress.Rates, rates.ClientOptions), Store: opts.Store,
		Metrics: opts.Metrics, Clock: clock.RealClock{}, Logger: slog.Default(),
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(follower); err != nil {
		return fmt.Errorf("registering the fetch of exchange rates: %w", err)
	}
	return nil
}

func newBase(mgr ctrl.Manager, opts Options, name string) *base.Base {
	platform := plan.Default()
	if opts.Plan != nil {
		platform = *opts.Plan
	}
	return &base.Base{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Store: opts.Store,
		Events: mgr.GetEventRecorder("agentplatform-" + name), PlatformID: opts.PlatformID,
		Namespaces: opts.Namespaces, PlatformPlan: platform, Workers: cmp.Or(opts.Workers, base.DefaultWorkers),
	}
}

// facadeService is the name of the facade's Service in config/.
const facadeService = "agentplatform-api"

// certificates reconciles the Secrets with TLS certificates that the options name: for the dispatch
// host, and for the names of the facade's Service. It sends to changed when build and runner pods must
// trust another certificate.
func certificates(mgr ctrl.Manager, opts Options, changed chan<- event.GenericEvent) *certificate.Reconciler {
	serving := map[string][]string{}
	if opts.DispatchTLSSecret != "" {
		if dispatch, err := url.Parse(opts.DispatchURL); err == nil {
			serving[opts.DispatchTLSSecret] = []string{dispatch.Hostname()}
		}
	}
	if opts.APITLSSecret != "" {
		inNamespace := facadeService + "." + opts.SystemNamespace
		serving[opts.APITLSSecret] = []string{inNamespace + ".svc", inNamespace + ".svc.cluster.local", inNamespace, facadeService, "localhost"}
	}
	return &certificate.Reconciler{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Namespace: opts.SystemNamespace, Serving: serving,
		Trusted: opts.DispatchTLSSecret, Changed: changed, Now: time.Now,
	}
}

// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/agentplatform/agentplatform/controllers/apikey"
	"github.com/agentplatform/agentplatform/controllers/connector"
	"github.com/agentplatform/agentplatform/controllers/connectorlink"
	"github.com/agentplatform/agentplatform/controllers/deployment"
	"github.com/agentplatform/agentplatform/controllers/environment"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/project"
)

// Register adds all controllers and the start-up sweep to a manager.
func Register(mgr ctrl.Manager, opts Options) error {
	if err := opts.validate(); err != nil {
		return err
	}
	for _, c := range []struct {
		name       string
		controller interface{ SetupWithManager(ctrl.Manager) error }
	}{
		{"project", &project.Reconciler{Keeper: keeper(mgr, opts, "project"), Data: opts.Store}},
		{"environment", &environment.Reconciler{
			Keeper: keeper(mgr, opts, "environment"), Data: opts.Store,
			Image: opts.Image, DispatchURL: opts.DispatchURL, AllowedEgress: opts.AllowedEgress,
		}},
		{"deployment", &deployment.Reconciler{
			Keeper: keeper(mgr, opts, "deployment"), Data: opts.Store,
			Image: opts.Image, DispatchURL: opts.DispatchURL, AllowedEgress: opts.AllowedEgress,
		}},
		{"connector", &connector.Reconciler{
			Keeper: keeper(mgr, opts, "connector"), Data: opts.Store,
			DerivationKey: opts.DerivationKey, Sealer: opts.Sealer, GatewayURL: opts.GatewayURL,
		}},
		{"connectorlink", &connectorlink.Reconciler{Keeper: keeper(mgr, opts, "connectorlink"), Data: opts.Store}},
		{"apikey", &apikey.Reconciler{Keeper: keeper(mgr, opts, "apikey")}},
	} {
		if err := c.controller.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("registering controller %q: %w", c.name, err)
		}
	}
	if err := mgr.Add(newSweep(mgr.GetAPIReader(), opts)); err != nil {
		return fmt.Errorf("registering the sweep: %w", err)
	}
	return nil
}

func keeper(mgr ctrl.Manager, opts Options, name string) *object.Keeper {
	return &object.Keeper{
		Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Store: opts.Store,
		Events: mgr.GetEventRecorder("agentplatform-" + name), ClusterUID: opts.ClusterUID,
	}
}

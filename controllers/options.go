// SPDX-License-Identifier: Apache-2.0

// Package controllers lists all controllers of the platform and what a manager
// process needs to run them.
package controllers

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/controllers/platformkeys"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/store"
)

// Options are what controllers depend on.
type Options struct {
	// Store is the store as this cluster's manager may write it.
	Store store.Control
	// Hints are the store's, by which the manager hears of runs and of what is asked of it.
	Hints store.Notifier
	// Lease keeps the store this cluster's while the controllers run; nil keeps nothing.
	Lease *Lease
	// Keys derive connectors' secrets and seal credentials.
	Keys *keyring.Keys
	// KeyKeeper keeps the platform's keys while the controllers run; nil leaves them as they are.
	KeyKeeper *platformkeys.Keeper
	// Image is the image of build and runner pods.
	Image string
	// DispatchURL is where those pods reach the gateway's internal port.
	DispatchURL string
	// GatewayURL is the public start of webhook URLs.
	GatewayURL string
	// SystemNamespace is where the platform's own pods and Secrets are.
	SystemNamespace string
	// DispatchTLSSecret and APITLSSecret are the Secrets there with the certificates
	// of the dispatch port and of the facade, which are made and renewed where they
	// are absent. What the first one trusts (ca.crt) build and runner pods trust.
	// Empty: the ports speak plain HTTP, or somebody else sees to it.
	DispatchTLSSecret, APITLSSecret string
	// PlatformID is what the ids of all projects are made of; see platformkeys.Secret.
	PlatformID uuid.UUID
	// Egress is what build and runner pods may reach beside dispatch.
	Egress egress.Flags
	// RatesURL is where the European Central Bank's exchange rates are; empty asks for none.
	RatesURL string
	// Namespaces are those that the manager works in; rows of objects elsewhere
	// are left alone.
	Namespaces namespaces.Set
	// SweepLimit is how many objects of a kind a sweep may remove from the store
	// that are most of that kind; 0: DefaultSweepLimit.
	SweepLimit int
	// StabilizationWindow is how long pools that scale keep runners that they needed; 0:
	// environment.DefaultStabilizationWindow.
	StabilizationWindow time.Duration
	// Metrics count what controllers see; nil counts nowhere.
	Metrics *metrics.Manager
	// Workers is how many objects of a kind are reconciled at once; 0:
	// object.DefaultWorkers.
	Workers int
	// Plan is what projects may have whose Namespace says nothing else; nil:
	// plan.Default().
	Plan *plan.Plan
}

func (o Options) validate() error {
	switch {
	case o.Store == nil:
		return errors.New("controllers need a store")
	case o.Hints == nil:
		return errors.New("controllers need the store's hints")
	case o.Keys == nil:
		return errors.New("controllers need the platform's keys")
	case o.Image == "":
		return errors.New("controllers need the image of build and runner pods (--image)")
	case o.DispatchURL == "":
		return errors.New("controllers need the address of the dispatch port (--dispatch-url)")
	case o.SystemNamespace == "":
		return errors.New("controllers need the namespace of the platform itself (--system-namespace)")
	case o.DispatchTLSSecret != "" && !strings.HasPrefix(o.DispatchURL, "https://"):
		return errors.New("a certificate of the dispatch port (--dispatch-tls-secret) needs an https --dispatch-url")
	case o.GatewayURL == "":
		return errors.New("controllers need the public address of the gateway (--gateway-url)")
	case o.StabilizationWindow != 0 && (o.StabilizationWindow < 10*time.Second || o.StabilizationWindow > 24*time.Hour):
		return fmt.Errorf("the window of pools that scale (--scale-down-window) is 10s to 24h, not %s", o.StabilizationWindow)
	case o.PlatformID == uuid.Nil:
		return errors.New("controllers need the platform's id")
	}
	return nil
}

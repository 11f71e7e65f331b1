// SPDX-License-Identifier: Apache-2.0

// Package controllers wires all controllers of the platform into a manager process.
package controllers

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/controllers/platformkeys"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// Options are the dependencies of the controllers.
type Options struct {
	// Store is the store with the write access of this cluster's manager.
	Store store.Control
	// Hints delivers the store's notifications about runs and requests.
	Hints store.Notifier
	// Lease keeps the store assigned to this cluster while the controllers run. If nil, nothing renews
	// the lease.
	Lease *Lease
	// Keys derives the secrets of connectors and seals credentials.
	Keys *secrets.Keys
	// KeyKeeper maintains the platform's keys while the controllers run. If nil, the keys stay
	// unchanged.
	KeyKeeper *platformkeys.Keeper
	// Image is the image of build and runner pods.
	Image string
	// DispatchURL is the URL of the gateway's internal port for build and runner pods.
	DispatchURL string
	// GatewayURL is the public base of webhook URLs.
	GatewayURL string
	// SystemNamespace is the namespace of the platform's pods and Secrets.
	SystemNamespace string
	// DispatchTLSSecret and APITLSSecret name the Secrets in SystemNamespace with the certificates of
	// the dispatch port and the facade. The manager creates and renews them if they are missing. Build
	// and runner pods trust the CA of the first one (ca.crt). If empty, the port uses plain HTTP or its
	// certificate is managed elsewhere.
	DispatchTLSSecret, APITLSSecret string
	// PlatformID is the base of all project IDs; see platformkeys.Secret.
	PlatformID uuid.UUID
	// Egress lists the destinations that build and runner pods can reach besides dispatch.
	Egress egress.Flags
	// RatesURL is the URL of the European Central Bank's exchange rates. If empty, no rates are
	// fetched.
	RatesURL string
	// Namespaces limits the manager to some namespaces. Rows of objects in other namespaces stay
	// unchanged.
	Namespaces namespaces.Set
	// SweepLimit is the number of objects of a kind that a sweep may remove even if they are most of
	// that kind. If 0, DefaultSweepLimit is used.
	SweepLimit int
	// StabilizationWindow is how long an autoscaled pool keeps runners after the last demand for them.
	// If 0, runnerpool.DefaultStabilizationWindow is used.
	StabilizationWindow time.Duration
	// Metrics receives the metrics of the controllers. If nil, nothing is recorded.
	Metrics *metrics.Manager
	// Workers is the number of objects of a kind that are reconciled concurrently. If 0,
	// object.DefaultWorkers is used.
	Workers int
	// Plan is the plan of projects whose Namespace has no plan annotation. If nil, plan.Default() is
	// used.
	Plan *plan.Plan
}

func (o Options) validate() error {
	switch {
	case o.Store == nil:
		return errors.New("controllers need a store")
	case o.Hints == nil:
		return errors.New("controllers need the store's notifications")
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
		return fmt.Errorf("--scale-down-window must be 10s to 24h, not %s", o.StabilizationWindow)
	case o.PlatformID == uuid.Nil:
		return errors.New("controllers need the platform ID")
	}
	return nil
}

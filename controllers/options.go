// SPDX-License-Identifier: Apache-2.0

// Package controllers lists all controllers of the platform and what a manager
// process needs to run them.
package controllers

import (
	"errors"

	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// Store is what the controllers need of the store.
type Store interface {
	store.Projector
	store.Sweeper
	store.Catalog
	store.Deployments
	store.Activations
	store.Tokens
}

// Options are what controllers depend on.
type Options struct {
	Store Store
	// DerivationKey derives connectors' secrets, Sealer seals credentials; see
	// EnsureKeys.
	DerivationKey seal.DerivationKey
	Sealer        *seal.Sealer
	// Image is the image of build and runner pods.
	Image string
	// DispatchURL is where those pods reach the gateway's internal port.
	DispatchURL string
	// GatewayURL is the public start of webhook URLs.
	GatewayURL string
	// AllowedEgress is what the runner's --allow-egress takes; empty opens nothing.
	AllowedEgress string
	// ClusterUID names the cluster in the store; see Keys.
	ClusterUID string
}

func (o Options) validate() error {
	switch {
	case o.Store == nil:
		return errors.New("controllers need a store")
	case o.Sealer == nil:
		return errors.New("controllers need a sealing keyset")
	case o.Image == "":
		return errors.New("controllers need the image of build and runner pods (--image)")
	case o.DispatchURL == "":
		return errors.New("controllers need the address of the dispatch port (--dispatch-url)")
	case o.GatewayURL == "":
		return errors.New("controllers need the public address of the gateway (--gateway-url)")
	case o.ClusterUID == "":
		return errors.New("controllers need the cluster's uid")
	}
	return nil
}

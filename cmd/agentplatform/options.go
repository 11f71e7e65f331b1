// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/cmd/internal/open"
)

// options are the flags of all subcommands.
type options struct {
	store                                                  open.Options
	gatewayURL, dispatchURL, image, namespace              string
	allowEgress                                            string
	publicAddr, internalAddr, apiAddr, healthAddr, metrics string
	grace                                                  time.Duration
	leaderElect                                            bool
}

func (o *options) bind(flags *pflag.FlagSet) {
	o.store.Bind(flags)
	flags.StringVar(&o.gatewayURL, "gateway-url", "http://localhost:8080", "public URL of the gateway, the start of webhook URLs")
	flags.StringVar(&o.dispatchURL, "dispatch-url", "", "URL at which runners and builds reach the gateway's internal port")
	flags.StringVar(&o.image, "image", "agentplatform:dev", "image of build and runner pods")
	flags.StringVar(&o.namespace, "system-namespace", "agentplatform-system", "namespace of the platform itself, where its keys are kept")
	flags.StringVar(&o.allowEgress, "allow-egress", "", "private ranges that may be dialled, by purpose: git=10.0.0.0/8,model=10.1.0.0/16")
	flags.StringVar(&o.publicAddr, "public-addr", ":8080", "address of the webhook port")
	flags.StringVar(&o.internalAddr, "internal-addr", ":8081", "address of the dispatch port")
	flags.StringVar(&o.apiAddr, "api-addr", ":8082", "address of the REST facade")
	flags.StringVar(&o.healthAddr, "health-addr", ":8083", "address of the manager's health and readiness")
	flags.StringVar(&o.metrics, "metrics-addr", "0", "address of the manager's metrics, 0 for none")
	flags.DurationVar(&o.grace, "shutdown-grace", 25*time.Second, "how long open requests may take to end after SIGTERM")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "elect a leader among managers")
}

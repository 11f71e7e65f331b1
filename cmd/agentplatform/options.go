// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/cmd/internal/gateway"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/rates"
	"github.com/agentplatform/agentplatform/controllers/runnerpool"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

// options are the flags of all subcommands.
type options struct {
	gateway.Flags
	gatewayURL, dispatchURL, image, namespace, platformID string
	planFile, ratesURL                                    string
	apiTLS                                                httpserver.TLSFiles
	dispatchTLSSecret, apiTLSSecret, apiAddr              string
	podName, containerName                                string
	stabilization                                         time.Duration
	leaderElect                                           bool
	watchNamespaces, gitOpsManagers                       []string
	sweepLimit, workers                                   int
}

// bindFlags adds the flags that have an effect on a subcommand.
func (o *options) bindFlags(flags *pflag.FlagSet, command string) {
	o.Store.Bind(flags)
	o.Observe.Bind(flags)
	flags.StringVar(&o.gatewayURL, "gateway-url", "http://localhost:8080", "public URL of the gateway; webhook URLs start with it")
	flags.StringVar(&o.namespace, "system-namespace", "agentplatform-system", "namespace of the platform, which holds its keys")
	flags.StringSliceVar(&o.watchNamespaces, "watch-namespaces", nil,
		"namespaces of projects that the manager and the REST API serve, with RoleBindings there; if empty, all namespaces")
	if command != metrics.ProcessFacade {
		o.Egress.Bind(flags)
		o.bindManager(flags)
	}
	if command != metrics.ProcessManager {
		o.BindServer(flags)
		o.bindFacade(flags)
	}
	if command == metrics.ProcessAll {
		o.BindGateway(flags)
	}
}

// bindManager adds the flags of the controllers.
func (o *options) bindManager(flags *pflag.FlagSet) {
	flags.StringVar(&o.dispatchURL, "dispatch-url", "", "URL of the gateway's internal port for runner and build pods")
	flags.StringVar(&o.image, "image", "", "image of build and runner pods; if empty, the image of this process's own container")
	flags.StringVar(&o.podName, "pod-name", "", "name of this process's pod in the system namespace, from the downward API; required without --image")
	flags.StringVar(&o.containerName, "container-name", "", "name of this process's container in that pod")
	flags.StringVar(&o.platformID, "platform-id", "", "UUID from which the IDs of all projects are derived, to keep in Git; if empty, the one created with the keys")
	flags.StringVar(&o.dispatchTLSSecret, "dispatch-tls-secret", "",
		"Secret in the system namespace with the certificate of the internal port (tls.crt, tls.key), created if absent; build and runner pods trust its ca.crt")
	flags.StringVar(&o.apiTLSSecret, "api-tls-secret", "", "Secret in the system namespace with the certificate of the REST API, created if absent")
	flags.StringVar(&o.planFile, "plan-file", "", "file with the limits of projects; the annotation of a Namespace overrides it")
	flags.StringVar(&o.ratesURL, "rates-url", rates.DefaultURL,
		"file of the European Central Bank with exchange rates, which convert costs; if empty, costs are not converted")
	flags.IntVar(&o.sweepLimit, "sweep-limit", controllers.DefaultSweepLimit,
		"objects of a kind that a sweep may remove from the store if Kubernetes lacks most objects of that kind; raise it for one start after a deletion on purpose")
	flags.IntVar(&o.workers, "workers", base.DefaultWorkers, "objects of a kind that the manager reconciles at once, round-robin by project")
	flags.DurationVar(&o.stabilization, "scale-down-window", runnerpool.DefaultStabilizationWindow,
		"time that a scaled pool keeps its runners before it removes them, also before it scales to zero; 10s to 24h")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "elect a leader among managers")
}

// bindFacade adds the flags of the REST API.
func (o *options) bindFacade(flags *pflag.FlagSet) {
	flags.StringVar(&o.apiAddr, "api-addr", ":8082", "address of the REST API")
	o.apiTLS.Bind(flags, "api", "the REST API")
	flags.StringSliceVar(&o.gitOpsManagers, "gitops-managers", rest.DefaultGitOpsManagers,
		"field managers of GitOps controllers. The REST API neither overwrites their fields nor deletes their objects; an empty value turns this off")
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/controllers/environment"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/rates"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw"
)

// options are the flags of all subcommands.
type options struct {
	store                                                 open.Options
	gatewayURL, dispatchURL, image, namespace, platformID string
	planFile, ratesURL                                    string
	trustedProxies, keysDir                               string
	egress                                                egress.Flags
	publicTLS, internalTLS, apiTLS                        httpserver.TLSFiles
	dispatchTLSSecret, apiTLSSecret                       string
	publicAddr, internalAddr, apiAddr                     string
	podName, containerName                                string
	observe                                               observe.Flags
	drain, stabilization, retention                       time.Duration
	leaderElect                                           bool
	watchNamespaces, gitOpsManagers                       []string
	sweepLimit, workers, connections                      int
	reviewBudget                                          int64
}

func (o *options) bind(flags *pflag.FlagSet) {
	o.store.Bind(flags)
	flags.StringVar(&o.gatewayURL, "gateway-url", "http://localhost:8080", "public URL of the gateway, the start of webhook URLs")
	flags.StringVar(&o.dispatchURL, "dispatch-url", "", "URL at which runners and builds reach the gateway's internal port")
	flags.StringVar(&o.image, "image", "", "image of build and runner pods; without it that of this process's own container")
	flags.StringVar(&o.podName, "pod-name", "", "name of this process's own pod, in the system namespace, from the downward API; needed without --image")
	flags.StringVar(&o.containerName, "container-name", "", "name of this process's container in that pod")
	flags.StringVar(&o.namespace, "system-namespace", "agentplatform-system", "namespace of the platform itself, where its keys are kept")
	flags.StringVar(&o.keysDir, "keys-dir", "", "folder where the Secret of the platform's keys is mounted, for the facade; without it the facade reads the Secret. For all: from there deliveries are signed while Kubernetes is away")
	flags.StringVar(&o.platformID, "platform-id", "", "UUID that the ids of all projects are made of, to keep in Git; without it the one that was made with the keys")
	flags.StringVar(&o.trustedProxies, "trusted-proxies", "", "ranges of proxies whose X-Forwarded-For is believed: 10.0.0.0/8,10.1.0.0/16")
	flags.StringVar(&o.dispatchTLSSecret, "dispatch-tls-secret", "", "Secret of the system namespace with the dispatch port's certificate (tls.crt, tls.key), made where it is absent; build and runner pods trust its ca.crt")
	flags.StringVar(&o.apiTLSSecret, "api-tls-secret", "", "Secret of the system namespace with the facade's certificate, made where it is absent")
	o.egress.Bind(flags)
	flags.StringVar(&o.planFile, "plan-file", "", "file with what a project may have, unless its Namespace's annotation says otherwise")
	flags.StringVar(&o.ratesURL, "rates-url", rates.DefaultURL, "file of the European Central Bank with the exchange rates of some days, by which costs are converted; empty asks for none, and costs are not converted")
	flags.StringVar(&o.publicAddr, "public-addr", ":8080", "address of the webhook port")
	flags.StringVar(&o.internalAddr, "internal-addr", ":8081", "address of the dispatch port")
	flags.StringVar(&o.apiAddr, "api-addr", ":8082", "address of the REST facade")
	o.publicTLS.Bind(flags, "public", "the webhook port")
	o.internalTLS.Bind(flags, "internal", "the dispatch port")
	o.apiTLS.Bind(flags, "api", "the REST facade")
	o.observe.Bind(flags)
	flags.DurationVar(&o.drain, "drain", webhookgw.DefaultDrain, "how long open requests may take to end after SIGTERM, webhooks included that wait for an agent's answer; the pod's grace period must be 20 s longer")
	flags.Int64Var(&o.reviewBudget, "review-budget", store.DefaultReviewBudget, "how many bytes of an event's files agents are given; the content of those beyond is stored, and omitted from what models are asked; 0 for the default")
	flags.DurationVar(&o.retention, "retention", store.Retention, "how long history is kept, by whole days in UTC: runs, their contents, deliveries and the audit log; at least 48h, 0 for the default")
	flags.IntVar(&o.connections, "max-connections", httpserver.DefaultConnections, "how many connections each port has at a time; for those beyond, idle ones are closed, and where none is they wait")
	flags.StringSliceVar(&o.watchNamespaces, "watch-namespaces", nil, "namespaces of projects that manager and facade work in, by the rights of RoleBindings there; without it all")
	flags.StringSliceVar(&o.gitOpsManagers, "gitops-managers", apiserver.DefaultGitOpsManagers, "field managers of GitOps controllers: the facade writes over none of their fields, and deletes nothing of theirs; an empty one for none")
	flags.IntVar(&o.sweepLimit, "sweep-limit", controllers.DefaultSweepLimit, "how many objects of a kind that Kubernetes does not have a sweep may remove from the store where they are most of that kind; raise it for one start after a deletion on purpose")
	flags.IntVar(&o.workers, "workers", object.DefaultWorkers, "how many objects of a kind the manager reconciles at once; projects take turns")
	flags.DurationVar(&o.stabilization, "scale-down-window", environment.DefaultStabilizationWindow, "how long a pool that scales keeps the runners that it needed, and goes to zero after its last run; 10s to 24h")
	flags.BoolVar(&o.leaderElect, "leader-elect", true, "elect a leader among managers")
}

// grace is --drain as servers take it, for which 0 means their default.
func (o *options) grace() time.Duration { return max(o.drain, 1) }

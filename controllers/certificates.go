// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/url"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/controllers/certificate"
)

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

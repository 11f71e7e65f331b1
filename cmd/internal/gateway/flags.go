// SPDX-License-Identifier: Apache-2.0

// Package gateway declares the flags of the processes that serve webhooks: webhookgw, and agentplatform with its subcommand
// "all".
package gateway

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw"
)

// Flags are the settings of the gateway.
type Flags struct {
	Store                    open.Options
	PublicAddr, InternalAddr string
	PublicTLS, InternalTLS   httpserver.TLSFiles
	TrustedProxies           string
	MaxConnections           int
	Drain, Retention         time.Duration
	ReviewBudget             int64
	KeysDir                  string
	Egress                   egress.Flags
	Observe                  observe.Flags
}

// Bind adds all flags.
func (f *Flags) Bind(flags *pflag.FlagSet) {
	f.Store.Bind(flags)
	f.Observe.Bind(flags)
	f.Egress.Bind(flags)
	f.BindServer(flags)
	f.BindGateway(flags)
}

// BindServer adds the flags of every public server: the webhook port and the REST API.
func (f *Flags) BindServer(flags *pflag.FlagSet) {
	flags.StringVar(&f.TrustedProxies, "trusted-proxies", "",
		"CIDR ranges of trusted proxies, such as 10.0.0.0/8,10.1.0.0/16. Their X-Forwarded-For is used, and their connections are closed last")
	flags.IntVar(&f.MaxConnections, "max-connections", httpserver.DefaultConnections,
		"connection limit of each port. At the limit, the server closes idle connections; if none is idle, new connections wait")
	flags.DurationVar(&f.Drain, "drain", webhookgw.DefaultDrain,
		"time after SIGTERM for open requests to finish, including webhooks that wait for a run. The pod's grace period must be 20 s longer")
	flags.StringVar(&f.KeysDir, "keys-dir", "",
		"folder with the mounted Secret of the platform keys. The gateway needs it to sign deliveries; the REST API reads the Secret itself if the flag is empty")
}

// BindGateway adds the flags that only the gateway uses.
func (f *Flags) BindGateway(flags *pflag.FlagSet) {
	flags.StringVar(&f.PublicAddr, "public-addr", ":8080", "address of the webhook port")
	flags.StringVar(&f.InternalAddr, "internal-addr", ":8081", "address of the internal port for runners and builds")
	f.PublicTLS.Bind(flags, "public", "the webhook port")
	f.InternalTLS.Bind(flags, "internal", "the internal port")
	flags.DurationVar(&f.Retention, "retention", store.Retention,
		"retention of history (runs, their contents, deliveries, audit log) in whole UTC days; at least 48h; 0 is the default")
	flags.Int64Var(&f.ReviewBudget, "review-budget", store.DefaultReviewBudget,
		"bytes of attachments per event that agents receive. Content beyond it is stored, but omitted from model requests; 0 is the default")
}

// Grace returns the drain time as servers take it. They use a default for 0.
func (f *Flags) Grace() time.Duration { return max(f.Drain, 1) }

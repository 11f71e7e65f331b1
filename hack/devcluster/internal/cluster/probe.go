// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/kubeapi"
	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

const probeTimeout = 3 * time.Second

// probeComponent returns an error if the component is not healthy.
func (l *local) probeComponent(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	switch name {
	case layout.Etcd:
		return connect(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", layout.PortEtcd))
	case layout.Containerd:
		return connect(ctx, "unix", l.Dir.Socket())
	case layout.APIServer:
		api, err := kubeapi.New(l.Dir)
		if err != nil {
			return err
		}
		return api.Get(ctx, "/readyz", nil)
	case layout.ControllerManager:
		return healthz(ctx, "https", layout.PortController, "/healthz")
	case layout.Scheduler:
		return healthz(ctx, "https", layout.PortScheduler, "/healthz")
	case layout.Kubelet:
		return healthz(ctx, "http", layout.PortHealthNode, "/healthz")
	case layout.Proxy:
		return healthz(ctx, "http", layout.PortProxy, "/healthz")
	case layout.CoreDNS:
		return healthz(ctx, "http", layout.PortHealthDNS, "/ready")
	}
	return nil // the provisioner has no port: that it runs must do
}

func connect(ctx context.Context, network, address string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

// loopback trusts any certificate: the components make their own for their
// ports on 127.0.0.1, and all that is asked is whether they are well.
var loopback = &http.Client{Transport: &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // #nosec G402 -- see above
	DisableKeepAlives: true,
}}

func healthz(ctx context.Context, scheme string, port int, path string) error {
	url := fmt.Sprintf("%s://127.0.0.1:%d%s", scheme, port, path)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("forming the question for %s: %w", url, err)
	}
	resp, err := loopback.Do(req)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, resp.Status)
	}
	return nil
}

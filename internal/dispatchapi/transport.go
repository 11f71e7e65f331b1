// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// newTransport connects to the port inside the cluster, never through a proxy. A connection carries
// one request at a time. If it hangs with its gateway, it is closed, and the next one may reach
// another gateway.
func newTransport(caFile string) *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.MaxIdleConnsPerHost = 64
	transport.ForceAttemptHTTP2 = false
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP1(true)
	if caFile != "" {
		transport.DialTLSContext = trusting(caFile)
	}
	return transport
}

// trusting dials and verifies with the current authorities of the file.
func trusting(caFile string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		roots, err := readRoots(caFile)
		if err != nil {
			return nil, err
		}
		dialer := tls.Dialer{
			NetDialer: &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second},
			Config:    &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		}
		return dialer.DialContext(ctx, network, address)
	}
}

// readRoots returns nil for an empty file, which means the system's authorities.
func readRoots(caFile string) (*x509.CertPool, error) {
	data, err := os.ReadFile(caFile) //nolint:gosec // the operator's flag
	if err != nil {
		return nil, fmt.Errorf("reading the authorities of the dispatch port: %w", err)
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(data) {
		return nil, errors.New("reading the authorities of the dispatch port: " + caFile + ": the file contains no PEM certificate")
	}
	return roots, nil
}

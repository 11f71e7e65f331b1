// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// forwardAPI is the command that makes the REST API reachable at a port of this machine.
const forwardAPI = "kubectl -n agentplatform-system port-forward service/agentplatform-api 18082:80"

// restOptions name the project whose REST API a command calls, and the API key.
type restOptions struct {
	server, project, key, keyFile string
	// plainHTTP allows http to other hosts than this one.
	plainHTTP bool
}

func (o *restOptions) bindFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.server, "server", "", "URL of the REST API, such as https://agents.example")
	flags.StringVar(&o.project, "project", "", "ID of the project, as in status.id of its Project object")
	flags.StringVar(&o.key, "api-key", "", "API key of the project; other users of this machine can read flags, so prefer the environment variable or a file")
	flags.StringVar(&o.keyFile, "api-key-file", "", "file with the API key")
	flags.BoolVar(&o.plainHTTP, "plain-http", false,
		"send keys and secrets unencrypted to http URLs; only for networks that you trust, such as the network of a cluster on this machine")
}

// apiClient is the client of a project's REST API, with lookups by name.
type apiClient struct{ *restclient.API }

// serverURL returns the URL of the server, which may receive API keys.
func (o *restOptions) serverURL() (string, error) {
	server, err := url.Parse(strings.TrimSuffix(o.server, "/"))
	switch {
	case err != nil || server.Host == "" || server.Scheme != "https" && server.Scheme != "http":
		return "", errors.New("--server, or " + flagenv.Name("server") + ": must be the URL of the REST API, such as https://agents.example, " +
			"or http://127.0.0.1:18082 for a forwarded port: " + forwardAPI)
	case server.Scheme == "http" && !o.plainHTTP && !isLoopback(server.Hostname()):
		return "", errors.New("--server: the API key would cross the network unencrypted; use https, or forward a port and use http to 127.0.0.1: " +
			forwardAPI + "; in a network that you trust --plain-http, or " + flagenv.Name("plain-http") + "=true, allows it")
	}
	return server.String(), nil
}

// newClient checks the options and returns the client that they describe.
func (o *restOptions) newClient() (*apiClient, error) {
	server, err := o.serverURL()
	if err != nil {
		return nil, err
	}
	project, err := uuid.Parse(o.project)
	if err != nil {
		return nil, errors.New("--project, or " + flagenv.Name("project") + ": must be the ID of a project, as printed by: kubectl -n NAMESPACE get project project -o jsonpath={.status.id}")
	}
	key := o.key
	if o.keyFile != "" {
		text, err := os.ReadFile(o.keyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the API key: %w", err)
		}
		key = strings.TrimSpace(string(text))
	}
	if _, err := keys.Parse(key); err != nil {
		return nil, fmt.Errorf("--api-key or --api-key-file, or %s or %s: %w; `agentctl apikey create` creates a key", flagenv.Name("api-key"), flagenv.Name("api-key-file"), err)
	}
	return &apiClient{restclient.New(restclient.Options{Server: server, Project: project.String(), Key: key, Explain: explainUnreachable(server)})}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// explainUnreachable returns a function that adds the remedy to the error of a request that got no response.
func explainUnreachable(server string) func(error) error {
	host := server
	if parsed, err := url.Parse(server); err == nil {
		host = parsed.Host
	}
	return func(err error) error {
		var name *net.DNSError
		var dial *net.OpError
		switch {
		case errors.Is(err, context.Canceled): // The user did it.
		case errors.As(err, &name):
			return fmt.Errorf("--server: no address is known for %s (%s); correct the name, or forward a port and use http://127.0.0.1:18082: %s",
				printable(name.Name), printable(name.Err), forwardAPI)
		case errors.As(err, &dial) && dial.Op == "dial":
			return fmt.Errorf("--server: cannot connect to %s (%w); if it is a forwarded port, forward it again: %s",
				printable(host), dial.Err, forwardAPI)
		}
		return fmt.Errorf("calling the REST API: %w", err)
	}
}

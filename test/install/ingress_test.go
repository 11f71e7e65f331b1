// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/webhookgw/ingress"
)

const (
	ingresses = "config/samples/ingress/"
	// longestSync is the maximum of a connector's timeoutSeconds.
	longestSync = 900 * time.Second
	// slowestBody is the gateway's read timeout for a body of ingress.MaxBody: 5 s plus a second for each 64 KiB.
	slowestBody = 5*time.Second + ingress.MaxBody/(64<<10)*time.Second
)

// backend is the target of a path.
type backend struct{ path, service, port string }

// httpRoute holds the fields of the Gateway API's HTTPRoute that these tests read.
type httpRoute struct {
	Spec struct {
		Rules []struct {
			Matches []struct {
				Path struct{ Type, Value string }
			}
			BackendRefs []struct {
				Name string
				Port int
			}
		}
	}
}

// backends returns the backends of all Ingresses and HTTPRoutes among objects.
func backends(t *testing.T, objects []*unstructured.Unstructured) (out []backend) {
	t.Helper()
	for _, i := range of[networkingv1.Ingress](t, objects, "Ingress") {
		for _, rule := range i.Spec.Rules {
			for _, path := range rule.HTTP.Paths {
				require.Equal(t, networkingv1.PathTypePrefix, *path.PathType)
				out = append(out, backend{path.Path, path.Backend.Service.Name, path.Backend.Service.Port.Name})
			}
		}
	}
	for _, o := range objects {
		if o.GetKind() != "HTTPRoute" {
			continue
		}
		text, err := json.Marshal(o.Object)
		require.NoError(t, err)
		var route httpRoute
		require.NoError(t, json.Unmarshal(text, &route))
		for _, rule := range route.Spec.Rules {
			ref := rule.BackendRefs[0]
			for _, match := range rule.Matches {
				require.Equal(t, "PathPrefix", match.Path.Type)
				out = append(out, backend{match.Path.Value, ref.Name, "#" + strconv.Itoa(ref.Port)})
			}
		}
	}
	return out
}

// Every sample routes webhooks to the gateway's public port and /v1 to the facade's port, by Service names. No sample routes to
// the dispatch port.
func TestIngress_LeadsToPublicPorts(t *testing.T) {
	t.Parallel()
	for _, sample := range []string{"traefik", "nginx", "gateway-api"} {
		objects := build(t, ingresses+sample, "")
		ports := map[backend]string{}
		for _, service := range of[corev1.Service](t, objects, "Service") {
			for _, port := range service.Spec.Ports {
				ports[backend{service: service.Name, port: port.Name}] = port.TargetPort.StrVal
				ports[backend{service: service.Name, port: "#" + strconv.Itoa(int(port.Port))}] = port.TargetPort.StrVal
			}
		}
		reached := map[string]string{}
		for _, b := range backends(t, objects) {
			reached[b.path] = ports[backend{service: b.service, port: b.port}]
		}
		require.Equal(t, map[string]string{"/hooks": "public", "/git": "public", "/v1": "api"}, reached, sample)
	}
}

// Every sample sets --trusted-proxies only for the components that read client addresses. The last --gateway-url of each other
// component is the proxy's URL.
func TestIngress_NamesTrustedProxies(t *testing.T) {
	t.Parallel()
	for _, sample := range []string{"traefik", "nginx", "gateway-api"} {
		for _, w := range workloads(t, build(t, ingresses+sample, "")) {
			args := w.template.Spec.Containers[0].Args
			reads := w.name == "agentplatform-webhookgw" || w.name == "agentplatform-apiserver"
			require.Equal(t, reads, slices.Contains(args, "--trusted-proxies=192.0.2.0/24"), "%s %s", sample, w.name)
			var urls []string
			for _, arg := range args {
				if url, is := strings.CutPrefix(arg, "--gateway-url="); is {
					urls = append(urls, url)
				}
			}
			if w.name != "agentplatform-webhookgw" {
				require.NotEmpty(t, urls, "%s %s", sample, w.name)
				require.Equal(t, "https://agents.example.com", urls[len(urls)-1], "%s %s: the last one counts", sample, w.name)
			}
		}
	}
}

// So that callers get the gateway's own answers.
func TestNginx_AllowsGatewayLimits(t *testing.T) {
	t.Parallel()
	for _, i := range of[networkingv1.Ingress](t, build(t, ingresses+"nginx", ""), "Ingress") {
		require.Equal(t, "nginx", *i.Spec.IngressClassName)
		about := map[string]string{}
		for key, value := range i.Annotations {
			name, is := strings.CutPrefix(key, "nginx.ingress.kubernetes.io/")
			require.True(t, is, key)
			about[name] = value
		}
		if i.Name != "agentplatform-hooks" {
			require.Equal(t, "HTTPS", about["backend-protocol"])
			require.Equal(t, "agentplatform-api.agentplatform-system.svc", about["proxy-ssl-name"])
			require.Equal(t, "on", about["proxy-ssl-verify"])
			continue
		}
		size := resource.MustParse(strings.ToUpper(about["proxy-body-size"]) + "i")
		require.Greater(t, size.Value(), int64(ingress.MaxBody))
		waits, err := strconv.Atoi(about["proxy-read-timeout"])
		require.NoError(t, err)
		require.Greater(t, time.Duration(waits)*time.Second, longestSync)
		for _, buffers := range []string{"proxy-buffering", "proxy-request-buffering"} {
			require.Equal(t, "off", about[buffers], buffers)
		}
	}
}

// Its time-outs are in the file that it is started
// with. test/e2e starts it with this very file and these Ingresses.
func TestTraefik_AllowsGatewayLimits(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../" + ingresses + "traefik/static.yaml")
	require.NoError(t, err)
	var static struct {
		EntryPoints map[string]struct {
			Transport struct {
				RespondingTimeouts struct{ ReadTimeout, WriteTimeout, IdleTimeout string }
				LifeCycle          struct{ RequestAcceptGraceTimeout, GraceTimeOut string }
			}
		}
		Providers map[string]struct{ IngressClass string }
	}
	require.NoError(t, yaml.Unmarshal(text, &static))
	seconds := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		return d
	}
	secure := static.EntryPoints["websecure"].Transport
	require.Greater(t, seconds(secure.RespondingTimeouts.ReadTimeout), slowestBody)
	require.Zero(t, seconds(secure.RespondingTimeouts.WriteTimeout))
	for _, i := range of[networkingv1.Ingress](t, build(t, ingresses+"traefik", ""), "Ingress") {
		require.Equal(t, static.Providers["kubernetesIngress"].IngressClass, *i.Spec.IngressClassName)
		entry := i.Annotations["traefik.ingress.kubernetes.io/router.entrypoints"]
		require.Contains(t, static.EntryPoints, entry)
		require.Equal(t, "true", i.Annotations["traefik.ingress.kubernetes.io/router.tls"], "without it the way in is for plain HTTP")
	}
}

// The Traefik and Gateway API samples verify the facade by the Service name in its certificate.
func TestIngress_VerifiesFacadeName(t *testing.T) {
	t.Parallel()
	names := map[string][]string{"ServersTransport": {"spec", "serverName"}, "BackendTLSPolicy": {"spec", "validation", "hostname"}}
	found := 0
	for _, sample := range []string{"traefik", "gateway-api"} {
		for _, o := range build(t, ingresses+sample, "") {
			if at, is := names[o.GetKind()]; is {
				name, _, err := unstructured.NestedString(o.Object, at...)
				require.NoError(t, err)
				require.Equal(t, "agentplatform-api.agentplatform-system.svc", name, sample)
				found++
			}
		}
	}
	require.Equal(t, 2, found)
}

// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	ingressSamples = "../../config/samples/ingress/"
	sampleHost     = "agents.example.com"
)

// front is a reverse proxy with a separate host name: a Traefik on this machine with the timeouts of its sample. It reads one
// sample from Kubernetes. Traefik also understands the annotations of nginx and the Gateway API.
type front struct {
	sample string
	port   int
	client *http.Client
}

// samples maps each sample in config/samples/ingress to the Traefik provider that reads it. The file of Traefik's own sample
// names its provider.
var samples = map[string]string{"traefik": "", "nginx": "kubernetesIngressNGINX", "gateway-api": "kubernetesGateway"}

func (f front) host() string { return f.sample + ".example.com" }

// startFronts starts the proxies that hack/traefik.sh has built.
func startFronts(ctx context.Context) map[string]front {
	GinkgoHelper()
	built := os.Getenv("E2E_TRAEFIK")
	Expect(built).NotTo(BeEmpty(), "E2E_TRAEFIK is not set: it is the folder that hack/traefik.sh prints")
	for _, definitions := range []string{"crds.yaml", "gateway.yaml"} { // not deleted, because the cluster is deleted
		file := filepath.Join(built, definitions)
		out, err := kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-f", file)
		Expect(err).NotTo(HaveOccurred(), out)
	}
	out, err := kubectl(ctx, "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	Expect(err).NotTo(HaveOccurred(), out)
	roots, fronts := certificate(ctx), map[string]front{}
	for sample := range samples {
		f := front{sample: sample, port: freePort()}
		f.client = &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, local(f.port))
			},
		}}
		f.apply(ctx)
		f.run(filepath.Join(built, "traefik"))
		fronts[sample] = f
	}
	return fronts
}

// local returns the address of a port on this machine.
func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func freePort() int {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

// run starts it with the static configuration of Traefik's sample at ports of this machine.
func (f front) run(program string) {
	GinkgoHelper()
	text, err := os.ReadFile(ingressSamples + "traefik/static.yaml")
	Expect(err).NotTo(HaveOccurred())
	var static map[string]any
	Expect(yaml.Unmarshal(text, &static)).To(Succeed())
	for name, port := range map[string]int{"web": freePort(), "websecure": f.port} {
		static["entryPoints"].(map[string]any)[name].(map[string]any)["address"] = local(port)
	}
	if provider := samples[f.sample]; provider != "" {
		static["providers"] = map[string]any{provider: map[string]any{}}
	}
	text, err = yaml.Marshal(static)
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "static.yaml")
	Expect(os.WriteFile(file, text, 0o600)).To(Succeed())

	command := exec.Command(program, "--configfile="+file)
	command.Stdout, command.Stderr = GinkgoWriter, GinkgoWriter
	Expect(command.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
	})
}

// certificate creates the certificate of all hosts in the Secret that the samples name. It returns the pool that trusts the
// certificate.
func certificate(ctx context.Context) *x509.CertPool {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: sampleHost}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	for sample := range samples {
		template.DNSNames = append(template.DNSNames, front{sample: sample}.host())
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	private, err := x509.MarshalPKCS8PrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "agents-example-com-tls"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{
			corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		},
	}
	makeUntilCleanup(ctx, secret)
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(secret.Data[corev1.TLSCertKey])).To(BeTrue())
	return roots
}

// makeUntilCleanup creates an object and deletes it at the end.
func makeUntilCleanup(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Eventually(ctx, func() error { // the object's kind may be only just defined
		if err := client.IgnoreNotFound(cluster.Delete(ctx, o)); err != nil { // of tests that were broken off
			return err
		}
		o.SetResourceVersion("")
		return cluster.Create(ctx, o)
	}).WithTimeout(patience).WithPolling(2 * interval).Should(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(cluster.Delete(ctx, o))).To(Succeed()) })
}

// apply creates the objects of a sample for a separate host. It creates the objects of the facade only if the facade uses TLS,
// as the samples state.
func (f front) apply(ctx context.Context) {
	GinkgoHelper()
	switch f.sample {
	case "gateway-api":
		class := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"controllerName": "traefik.io/gateway-controller"}}}
		class.SetAPIVersion("gateway.networking.k8s.io/v1")
		class.SetKind("GatewayClass")
		class.SetName("traefik")
		makeUntilCleanup(ctx, class)
	default:
		controller := map[string]string{"traefik": "traefik.io/ingress-controller", "nginx": "k8s.io/ingress-nginx"}[f.sample]
		makeUntilCleanup(ctx, &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: f.sample}, Spec: networkingv1.IngressClassSpec{Controller: controller}})
	}
	files, err := filepath.Glob(ingressSamples + f.sample + "/*.yaml")
	Expect(err).NotTo(HaveOccurred())
	for _, file := range files {
		if name := filepath.Base(file); name == "kustomization.yaml" || name == "static.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		text = bytes.ReplaceAll(text, []byte(sampleHost), []byte(f.host()))
		text = bytes.ReplaceAll(text, []byte("port: 8443"), []byte("port: "+strconv.Itoa(f.port)))
		for decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096); ; {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(&o.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			Expect(err).NotTo(HaveOccurred(), file)
			if o.GetName() == "agentplatform-api" && !cluster.split {
				continue
			}
			if o.GetKind() == "Ingress" {
				o.SetName(o.GetName() + "-" + f.sample)
			}
			makeUntilCleanup(ctx, o)
		}
	}
	if f.sample != "nginx" && cluster.split {
		f.trustFacade(ctx)
	}
}

// trustFacade makes the proxy trust the facade's certificate, as the kustomization of Traefik's sample does and as the Gateway
// API sample tells its reader to do.
func (f front) trustFacade(ctx context.Context) {
	GinkgoHelper()
	if f.sample == "gateway-api" {
		certificate := &corev1.Secret{}
		Expect(cluster.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: "agentplatform-api-tls"}, certificate)).To(Succeed())
		makeUntilCleanup(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "agentplatform-api-ca"}, Data: map[string]string{"ca.crt": string(certificate.Data["ca.crt"])},
		})
		return
	}
	text, err := os.ReadFile(ingressSamples + f.sample + "/kustomization.yaml")
	Expect(err).NotTo(HaveOccurred())
	var kustomization struct{ Patches []struct{ Patch string } }
	Expect(yaml.Unmarshal(text, &kustomization)).To(Succeed())
	patch, err := yaml.YAMLToJSON([]byte(kustomization.Patches[0].Patch))
	Expect(err).NotTo(HaveOccurred())
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "agentplatform-api"}}
	Expect(cluster.Patch(ctx, service, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		before := service.DeepCopy()
		for key := range service.Annotations {
			if strings.HasPrefix(key, "traefik.ingress.kubernetes.io/") {
				delete(service.Annotations, key)
			}
		}
		Expect(cluster.Patch(ctx, service, client.MergeFrom(before))).To(Succeed())
	})
}

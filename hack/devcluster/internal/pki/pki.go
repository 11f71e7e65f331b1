// SPDX-License-Identifier: Apache-2.0

// Package pki creates the certificates, keys and kubeconfigs of a cluster.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

const (
	validity = 365 * 24 * time.Hour
	// skew is how far in the past a certificate becomes valid, because clocks may differ.
	skew = time.Hour
)

// request is one certificate to issue.
type request struct {
	name   string   // of its files
	user   string   // common name
	groups []string // organizations
	dns    []string
	ips    []string
	config bool // also a kubeconfig for the user
}

// requests returns all certificates of a cluster except for the authority's.
func requests() []request {
	return []request{
		{name: "etcd", user: "etcd", dns: []string{"localhost"}, ips: []string{"127.0.0.1"}},
		{name: "etcd-client", user: "kube-apiserver-etcd-client"},
		{name: layout.APIServer, user: "kube-apiserver",
			dns: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc." + layout.Domain},
			ips: []string{"127.0.0.1", layout.ServiceAPI, layout.BridgeAddress}},
		{name: "kubelet-client", user: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}},
		{name: "kubelet-server", user: "system:node:" + layout.Node, groups: []string{"system:nodes"},
			dns: []string{layout.Node}, ips: []string{layout.BridgeAddress}},
		{name: "admin", user: "devcluster-admin", groups: []string{"system:masters"}, config: true},
		{name: layout.ControllerManager, user: "system:kube-controller-manager", config: true},
		{name: layout.Scheduler, user: "system:kube-scheduler", config: true},
		{name: layout.Kubelet, user: "system:node:" + layout.Node, groups: []string{"system:nodes"}, config: true},
		{name: layout.Proxy, user: "system:kube-proxy", config: true},
		{name: layout.CoreDNS, user: "system:coredns", config: true},
	}
}

// Ensure creates all missing files in dir. It reuses an existing authority.
func Ensure(dir layout.Dir) error {
	if err := os.MkdirAll(dir.Path("pki"), 0o700); err != nil {
		return fmt.Errorf("making the folder of certificates: %w", err)
	}
	if _, err := os.Stat(dir.Kubeconfig()); err == nil {
		return nil // written last: all the rest is there
	}
	ca, err := newAuthority(dir, time.Now())
	if err != nil {
		return err
	}
	for _, r := range requests() {
		if err := ca.issueFiles(dir, r); err != nil {
			return fmt.Errorf("issuing the certificate %s: %w", r.name, err)
		}
	}
	if err := newSigningKey(dir); err != nil {
		return fmt.Errorf("making the key of service accounts: %w", err)
	}
	return writeAdminKubeconfig(dir)
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	now  time.Time
}

func newAuthority(dir layout.Dir, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the authority's key: %w", err)
	}
	ca := &authority{key: key, now: now, cert: &x509.Certificate{
		Subject: pkix.Name{CommonName: "devcluster"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}}
	der, err := ca.signCertificate(ca.cert, key.Public())
	if err != nil {
		return nil, err
	}
	if ca.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("reading the authority's certificate: %w", err)
	}
	return ca, writePair(dir, "ca", der, key)
}

// signCertificate fills in serial and times and returns the certificate in DER.
func (a *authority) signCertificate(cert *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choosing a serial number: %w", err)
	}
	cert.SerialNumber, cert.NotBefore, cert.NotAfter = serial, a.now.Add(-skew), a.now.Add(validity)
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	return der, nil
}

// issueFiles writes certificate and key of r, and its kubeconfig.
func (a *authority) issueFiles(dir layout.Dir, r request) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	der, err := a.signCertificate(r.template(), key.Public())
	if err != nil {
		return err
	}
	if err := writePair(dir, r.name, der, key); err != nil {
		return err
	}
	if !r.config {
		return nil
	}
	return writeKubeconfig(dir.ComponentKubeconfig(r.name), dir, r.name)
}

// template is the certificate that r asks for, not signed yet.
func (r request) template() *x509.Certificate {
	cert := &x509.Certificate{
		Subject:     pkix.Name{CommonName: r.user, Organization: r.groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:    r.dns,
	}
	for _, ip := range r.ips {
		cert.IPAddresses = append(cert.IPAddresses, net.ParseIP(ip))
	}
	if len(r.dns)+len(r.ips) > 0 { // etcd's is both: its peers are its clients
		cert.ExtKeyUsage = append(cert.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return cert
}

// newSigningKey creates the key pair that signs the tokens of service accounts.
func newSigningKey(dir layout.Dir) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		writePEM(dir.Path("pki", "service-accounts.pub"), "PUBLIC KEY", public),
		writePEM(dir.Key("service-accounts"), "PRIVATE KEY", private))
}

func writePair(dir layout.Dir, name string, der []byte, key crypto.Signer) error {
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding a key: %w", err)
	}
	return errors.Join(
		writePEM(dir.Cert(name), "CERTIFICATE", der),
		writePEM(dir.Key(name), "PRIVATE KEY", private))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

type object = map[string]any

// writeKubeconfig writes a kubeconfig with embedded certificates, so that it can be copied elsewhere. It writes JSON, which is
// valid YAML.
func writeKubeconfig(path string, dir layout.Dir, name string) error {
	var pems [3][]byte
	for i, file := range []string{dir.Cert("ca"), dir.Cert(name), dir.Key(name)} {
		content, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a certificate for a kubeconfig: %w", err)
		}
		pems[i] = content
	}
	content, err := json.MarshalIndent(kubeconfig(pems[0], pems[1], pems[2]), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding a kubeconfig: %w", err)
	}
	return os.WriteFile(path, append(content, '\n'), 0o600)
}

// kubeconfig is the one of a user with a client certificate.
func kubeconfig(ca, cert, key []byte) object {
	const name = "devcluster"
	return object{
		"apiVersion": "v1", "kind": "Config", "current-context": name,
		"clusters": []object{{"name": name, "cluster": object{
			"server": layout.ServerURL(), "certificate-authority-data": ca, // a []byte becomes base64
		}}},
		"users":    []object{{"name": name, "user": object{"client-certificate-data": cert, "client-key-data": key}}},
		"contexts": []object{{"name": name, "context": object{"cluster": name, "user": name}}},
	}
}

// writeAdminKubeconfig writes the users' kubeconfig. The user that called sudo can read it.
func writeAdminKubeconfig(dir layout.Dir) error {
	if err := writeKubeconfig(dir.Kubeconfig(), dir, "admin"); err != nil {
		return err
	}
	uid, err := strconv.Atoi(os.Getenv("SUDO_UID"))
	if err != nil {
		return nil // not by sudo
	}
	return os.Chown(dir.Kubeconfig(), uid, -1)
}

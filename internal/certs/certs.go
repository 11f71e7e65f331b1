// SPDX-License-Identifier: Apache-2.0

// Package certs creates certificates for the ports inside the cluster if the platform operator
// brings none: the platform's own authority and its serving certificates.
package certs

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	authorityLifetime = 10 * 365 * 24 * time.Hour
	servingLifetime   = 90 * 24 * time.Hour
	// skew is the tolerated delay of clocks.
	skew = time.Hour
)

// Pair is a certificate with its key, PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority creates an authority.
func NewAuthority(now time.Time) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making the authority's key: %w", err)
	}
	return signAuthority(key, now)
}

// Renew extends the life of an authority. Its key and name stay, so its certificates are valid with
// the old and the new authority certificate.
func (p Pair) Renew(now time.Time) (Pair, error) {
	_, key, err := p.parsePair()
	if err != nil {
		return Pair{}, err
	}
	return signAuthority(key, now)
}

func signAuthority(key crypto.Signer, now time.Time) (Pair, error) {
	template := newTemplate("Agent Platform", now, authorityLifetime)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	return signCertificate(template, template, key, key)
}

// Issue signs a serving certificate for hosts, DNS names or IP addresses.
func (p Pair) Issue(hosts []string, now time.Time) (Pair, error) {
	authority, signer, err := p.parsePair()
	if err != nil {
		return Pair{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, fmt.Errorf("making a key: %w", err)
	}
	template := newTemplate(hosts[0], now, servingLifetime)
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return signCertificate(template, authority, key, signer)
}

// Worn returns the reason to replace a certificate, or "": it cannot be read, or less than a third
// of its life remains.
func (p Pair) Worn(now time.Time) string {
	cert, _, err := p.parsePair()
	switch {
	case err != nil:
		return "it cannot be read"
	case now.Add(cert.NotAfter.Sub(cert.NotBefore) / 3).After(cert.NotAfter):
		return "it ends soon"
	}
	return ""
}

// Unfit returns the reason to issue a serving certificate again, or "": it is worn, lacks a host,
// or belongs to another authority.
func (p Pair) Unfit(authority Pair, hosts []string, now time.Time) string {
	if worn := p.Worn(now); worn != "" {
		return worn
	}
	cert, _, err := p.parsePair()
	if err != nil {
		return "it cannot be read"
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.Cert)
	if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return "it is of another authority"
	}
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return "it is not for " + host
		}
	}
	return ""
}

func (p Pair) parsePair() (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("reading a certificate: %w", err)
	}
	key, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, nil, errors.New("reading a certificate: its key cannot sign")
	}
	return pair.Leaf, key, nil
}

func newTemplate(name string, now time.Time, lifetime time.Duration) *x509.Certificate {
	return &x509.Certificate{
		Subject:   pkix.Name{CommonName: name, Organization: []string{"Agent Platform"}},
		NotBefore: now.Add(-skew), NotAfter: now.Add(lifetime),
	}
}

func signCertificate(template, parent *x509.Certificate, key, signer crypto.Signer) (Pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, fmt.Errorf("signing a certificate: %w", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Pair{}, fmt.Errorf("writing a key: %w", err)
	}
	var out [2]bytes.Buffer
	for i, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := pem.Encode(&out[i], block); err != nil {
			return Pair{}, fmt.Errorf("writing a certificate: %w", err)
		}
	}
	return Pair{Cert: out[0].Bytes(), Key: out[1].Bytes()}, nil
}

// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/spf13/pflag"
)

// maxStreams limits concurrent requests on one HTTP/2 connection.
const maxStreams = 100

// TLSFiles name a certificate (PEM, with its chain) and its key. They are checked for each
// connection, so they can be replaced at any time.
type TLSFiles struct{ Cert, Key string }

// Bind adds the flags --PREFIX-tls-cert-file and --PREFIX-tls-key-file.
func (f *TLSFiles) Bind(flags *pflag.FlagSet, prefix, port string) {
	flags.StringVar(&f.Cert, prefix+"-tls-cert-file", "", "certificate file of "+port+", reloaded when it changes; if empty, the port serves plain HTTP")
	flags.StringVar(&f.Key, prefix+"-tls-key-file", "", "key file of that certificate")
}

// serverConfig returns nil without files. The files must exist.
func (f TLSFiles) serverConfig(logger *slog.Logger) (*tls.Config, error) {
	switch {
	case f == TLSFiles{}:
		return nil, nil
	case f.Cert == "" || f.Key == "":
		return nil, errors.New("a certificate needs its key: set both files, or none for plain HTTP")
	}
	c := &certificate{files: f, logger: logger}
	if err := c.loadFiles(); err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: c.getCertificate, MinVersion: tls.VersionTLS12}, nil
}

// certificate is the last valid certificate of the files.
type certificate struct {
	files  TLSFiles
	logger *slog.Logger

	mu        sync.Mutex
	cert, key []byte
	current   *tls.Certificate
	problem   string // last logged problem
}

// getCertificate returns the certificate for a connection. If the files cannot be read, it returns the
// previous one.
func (c *certificate) getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	problem := ""
	if err := c.loadFiles(); err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != c.problem {
		c.logger.Error("reloading a certificate; the previous one stays in use", "error", problem)
	}
	c.problem = problem
	return c.current, nil
}

func (c *certificate) loadFiles() error {
	cert, err := os.ReadFile(c.files.Cert)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	key, err := os.ReadFile(c.files.Key)
	if err != nil {
		return fmt.Errorf("reading the certificate's key: %w", err)
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("reading the certificate %s: %w", c.files.Cert, err)
	}
	c.cert, c.key, c.current = cert, key, &pair
	return nil
}

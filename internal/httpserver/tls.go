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

// maxStreams is the most requests at a time on one HTTP/2 connection.
const maxStreams = 100

// TLSFiles name a certificate (PEM, with its chain) and its key. They are looked
// at for every connection, so that they may be replaced at any time.
type TLSFiles struct{ Cert, Key string }

// Bind adds the flags --PREFIX-tls-cert-file and --PREFIX-tls-key-file.
func (f *TLSFiles) Bind(flags *pflag.FlagSet, prefix, port string) {
	flags.StringVar(&f.Cert, prefix+"-tls-cert-file", "", "file of the certificate of "+port+", read anew when it changes; plain HTTP without it")
	flags.StringVar(&f.Key, prefix+"-tls-key-file", "", "file of that certificate's key")
}

// config is nil where no files are named. The files must be there.
func (f TLSFiles) config(logger *slog.Logger) (*tls.Config, error) {
	switch {
	case f == TLSFiles{}:
		return nil, nil
	case f.Cert == "" || f.Key == "":
		return nil, errors.New("a certificate and its key belong together: name both files, or none for plain HTTP")
	}
	c := &certificate{files: f, logger: logger}
	if err := c.load(); err != nil {
		return nil, err
	}
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12}, nil
}

// certificate is what the files held when they last held a certificate.
type certificate struct {
	files  TLSFiles
	logger *slog.Logger

	mu        sync.Mutex
	cert, key []byte
	current   *tls.Certificate
	problem   string // what was logged last
}

// get answers a connection's question for a certificate. One that cannot be read
// does not end the service: the one before is shown on.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	problem := ""
	if err := c.load(); err != nil {
		problem = err.Error()
	}
	if problem != "" && problem != c.problem {
		c.logger.Error("reading a certificate anew; the one before is shown on", "error", problem)
	}
	c.problem = problem
	return c.current, nil
}

func (c *certificate) load() error {
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

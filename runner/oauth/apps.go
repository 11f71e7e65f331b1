// SPDX-License-Identifier: Apache-2.0

package oauth

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

const (
	// tokenTimeout limits a request for the token of an app.
	tokenTimeout = 10 * time.Second
	// maxApps is the number of apps whose tokens are kept. An environment has fewer.
	maxApps = 64
)

// Apps has the tokens of OAuth apps. The tools and MCP servers of all runs share them. It is safe for concurrent use.
type Apps struct {
	cfg AppsConfig

	mu      sync.Mutex
	sources *cache.Cache[[sha256.Size]byte, *Source] // by the digest of all values of the app
}

// AppsConfig configures Apps.
type AppsConfig struct {
	// HTTP is the guarded client for token requests.
	HTTP *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Timeout limits a request for a token; 0 means 10 seconds.
	Timeout time.Duration
}

// NewApps returns apps without tokens.
func NewApps(cfg AppsConfig) *Apps {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, tokenTimeout)
	return &Apps{cfg: cfg, sources: cache.New[[sha256.Size]byte, *Source](maxApps, 0, cfg.Now)}
}

// Source returns the source of an app's tokens. An app with another client secret has another source.
func (a *Apps) Source(app runnerconfig.OAuthApp) *Source {
	text, err := json.Marshal(app) //nolint:gosec // only its digest is kept
	if err != nil {
		text = []byte(app.Name) // Impossible: all are texts.
	}
	key := sha256.Sum256(text)
	a.mu.Lock()
	defer a.mu.Unlock()
	s, known := a.sources.Get(key)
	if !known {
		s = NewSource(Config{
			App:  app.Name,
			HTTP: a.cfg.HTTP, Now: a.cfg.Now, Timeout: a.cfg.Timeout, ClientID: app.ClientID, ClientSecret: app.ClientSecret,
			Endpoint: Endpoint{URL: app.TokenURL, Scopes: app.Scopes, Audience: app.Audience},
		})
		a.sources.Put(key, s)
	}
	return s
}

// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// DefaultTimeout is how long an attempt takes at most where the connector does not
	// say, MaxTimeout the most that it may say.
	DefaultTimeout = 15 * time.Second
	MaxTimeout     = 60 * time.Second
	// MaxAttempts is the most attempts of a delivery.
	MaxAttempts = 20
	// maxWait is the longest that an attempt waits after the one before.
	maxWait = 24 * time.Hour
)

// DefaultSchedule is how long each attempt waits after the one before.
var DefaultSchedule = []time.Duration{
	0, 5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
	20 * time.Hour, 24 * time.Hour,
}

// Keys derive and open what a connector sends with.
type Keys interface {
	SigningSecret(keyID string, of seal.Generated) (string, error)
	Open(field seal.Field, sealed []byte) ([]byte, error)
	// SealingKey is the id of a key, "" until there are keys: nothing is claimed before.
	SealingKey() string
}

// config is the configuration of an outbound connector in its REST shape.
type config struct {
	URL            string `json:"url"`
	TimeoutSeconds int    `json:"timeout_seconds"`
	Retry          struct {
		MaxAttempts     int   `json:"max_attempts"`
		ScheduleSeconds []int `json:"schedule_seconds"`
	} `json:"retry"`
}

// destination is where a connector sends, and how.
type destination struct {
	url      *url.URL
	headers  http.Header
	secret   string
	timeout  time.Duration
	schedule []time.Duration
}

// destinationOf reads a connector. An error says what is wrong with it in words for its
// owner; *keyring.MissingError and keyring.ErrNoKeys are this process's own.
func destinationOf(c store.Connector, keys Keys) (to destination, err error) {
	var (
		conf   config
		sealed seal.Credentials
	)
	if err := json.Unmarshal(c.Config, &conf); err != nil {
		return to, fmt.Errorf("reading the connector's configuration: %w", err)
	}
	if to.url, err = url.Parse(conf.URL); err != nil || to.url.Host == "" {
		return to, fmt.Errorf("the connector's url is not one that can be called")
	}
	if len(c.Sealed) > 0 {
		plain, err := keys.Open(seal.CredentialsField(c.ProjectID, c.ID), c.Sealed)
		if err != nil {
			return to, fmt.Errorf("opening the connector's credentials: %w", err)
		}
		if err := json.Unmarshal(plain, &sealed); err != nil {
			return to, fmt.Errorf("the connector's credentials cannot be read")
		}
	}
	if to.secret = sealed.SigningSecret; to.secret == "" {
		to.secret, err = keys.SigningSecret(c.SecretKey, seal.Generated{ProjectID: c.ProjectID, ConnectorID: c.ID, Version: c.SecretVersion})
		if err != nil {
			return to, fmt.Errorf("deriving the signing secret: %w", err)
		}
	}
	to.headers = http.Header{}
	for name, value := range sealed.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return to, fmt.Errorf("the value of the connector's header %q has characters that no header may have", name)
		}
		to.headers.Set(name, value)
	}
	to.timeout, to.schedule = conf.timeout(), conf.schedule()
	return to, nil
}

func (c config) timeout() time.Duration {
	if c.TimeoutSeconds <= 0 {
		return DefaultTimeout
	}
	return min(time.Duration(c.TimeoutSeconds)*time.Second, MaxTimeout)
}

// schedule has an entry for each attempt; the last one of the connector's goes on.
func (c config) schedule() []time.Duration {
	schedule := DefaultSchedule
	if len(c.Retry.ScheduleSeconds) > 0 {
		schedule = nil
		for _, seconds := range c.Retry.ScheduleSeconds {
			schedule = append(schedule, time.Duration(min(max(seconds, 0), int(maxWait.Seconds())))*time.Second)
		}
	}
	attempts := len(schedule)
	if c.Retry.MaxAttempts > 0 {
		attempts = c.Retry.MaxAttempts
	}
	attempts = min(attempts, MaxAttempts)
	for len(schedule) < attempts {
		schedule = append(schedule[:len(schedule):len(schedule)], schedule[len(schedule)-1])
	}
	return schedule[:attempts]
}

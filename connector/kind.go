// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"slices"
	"time"
)

// Types of connectors, as in the REST API, the store and the files of a repository.
const (
	TypeWebhook = "webhook"
	TypeCron    = "cron"
)

// Kind is a type of connector with its mode: the mode of a webhook, or Cron.
type Kind string

// Kinds of connectors.
const (
	Inbound  Kind = "inbound"
	Sync     Kind = "sync"
	Outbound Kind = "outbound"
	Cron     Kind = "cron"
)

// definition has the properties of a kind.
type definition struct {
	kind                Kind
	typeName, mode      string
	hasCallers          bool // takes requests at a URL
	sends               bool // sends results, and starts no runs
	timeout, maxTimeout time.Duration
	check               func(Config) []FieldError
}

// definitions are the properties of all kinds. CONTRIBUTING.md lists the other places of a new kind.
var definitions = []definition{
	{kind: Inbound, typeName: TypeWebhook, mode: "inbound", hasCallers: true, check: Config.checkCallers},
	{kind: Sync, typeName: TypeWebhook, mode: "sync", hasCallers: true, timeout: 5 * time.Minute, maxTimeout: 15 * time.Minute, check: Config.checkCallers},
	{kind: Outbound, typeName: TypeWebhook, mode: "outbound", sends: true, timeout: 15 * time.Second, maxTimeout: MaxTimeout, check: Config.checkDelivery},
	{kind: Cron, typeName: TypeCron, mode: "inbound", check: Config.checkSchedule},
}

// Kinds returns all kinds.
func Kinds() (kinds []Kind) {
	for _, d := range definitions {
		kinds = append(kinds, d.kind)
	}
	return kinds
}

// KindOf returns the kind of a type and a mode, or "" if no kind has both.
func KindOf(typeName, mode string) Kind {
	for _, d := range definitions {
		if d.typeName == typeName && d.mode == mode {
			return d.kind
		}
	}
	return ""
}

// definition returns the properties of the kind; the zero value for an unknown kind.
func (k Kind) definition() definition {
	if i := slices.IndexFunc(definitions, func(d definition) bool { return d.kind == k }); i >= 0 {
		return definitions[i]
	}
	return definition{}
}

// Mode returns the mode of the kind.
func (k Kind) Mode() string { return k.definition().mode }

// HasCallers reports whether callers send events to a URL.
func (k Kind) HasCallers() bool { return k.definition().hasCallers }

// Sends reports whether the kind sends results. The other kinds start runs.
func (k Kind) Sends() bool { return k.definition().sends }

// DefaultTimeout returns the default time limit of the kind, 0 for a kind without one.
func (k Kind) DefaultTimeout() time.Duration { return k.definition().timeout }

// String describes the kind for people: "sync webhook", "cron".
func (k Kind) String() string {
	if k.definition().typeName == TypeWebhook {
		return string(k) + " webhook"
	}
	return string(k)
}

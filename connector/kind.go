// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"slices"
	"strings"
	"time"
)

// Types of connectors, as in the REST API, the store and the files of a repository. The settings of a type are the field of the
// same name in the spec of a Connector.
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

// definition has the facts of a kind. Other code asks for these facts, and rarely compares kinds.
type definition struct {
	kind                Kind
	typeName, mode      string
	hasCallers          bool // takes requests at a URL
	answers             bool // a request waits for the results of its runs
	sends               bool // sends results, and starts no runs
	timeout, maxTimeout time.Duration
	check               func(Config) []FieldError
	// does continues the name of the mode, and works says what goes on while the connector is enabled.
	does, works string
}

// definitions are the facts of all kinds. CONTRIBUTING.md lists the other places of a new kind.
var definitions = []definition{
	{
		kind: Inbound, typeName: TypeWebhook, mode: "inbound", hasCallers: true, check: Config.checkCallers,
		does: "responds to an event with run IDs at once", works: "webhooks are accepted",
	}, {
		kind: Sync, typeName: TypeWebhook, mode: "sync", hasCallers: true, answers: true, timeout: 5 * time.Minute, maxTimeout: 15 * time.Minute,
		check: Config.checkCallers, does: "responds with the agent's result", works: "webhooks are accepted",
	}, {
		kind: Outbound, typeName: TypeWebhook, mode: "outbound", sends: true, timeout: 15 * time.Second, maxTimeout: MaxTimeout,
		check: Config.checkDelivery, does: "sends results", works: "results are sent",
	}, {
		kind: Cron, typeName: TypeCron, mode: "inbound", check: Config.checkSchedule,
		does: "runs on a schedule", works: "its schedule continues",
	},
}

// types are all types, with a phrase that continues the name of each.
var types = []struct{ name, does string }{
	{TypeWebhook, "receives events at a URL or sends results to one"},
	{TypeCron, "creates events on a schedule"},
}

// TypeNames returns all types.
func TypeNames() (names []string) {
	for _, t := range types {
		names = append(names, t.name)
	}
	return names
}

// DescribeTypes describes the types, with their names in quotes.
func DescribeTypes(quote string) string {
	var texts []string
	for _, t := range types {
		texts = append(texts, quote+t.name+quote+" "+t.does)
	}
	return strings.Join(texts, ", ")
}

// DescribeModes describes the modes of webhooks, with their names in quotes.
func DescribeModes(quote string) string {
	var texts []string
	for _, k := range KindsOf(TypeWebhook) {
		texts = append(texts, quote+k.Mode()+quote+" "+k.Does())
	}
	return strings.Join(texts, ", ")
}

// Kinds returns all kinds.
func Kinds() (kinds []Kind) {
	for _, d := range definitions {
		kinds = append(kinds, d.kind)
	}
	return kinds
}

// KindsOf returns the kinds of a type. A type with one kind has a fixed mode.
func KindsOf(typeName string) []Kind {
	return slices.DeleteFunc(Kinds(), func(k Kind) bool { return k.Type() != typeName })
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

// Modes returns the modes of the kinds with a property.
func Modes(has func(Kind) bool) (modes []string) {
	for _, k := range Kinds() {
		if has(k) && !slices.Contains(modes, k.Mode()) {
			modes = append(modes, k.Mode())
		}
	}
	return modes
}

// NamesOf lists the kinds with a property, as in "inbound, sync and cron".
func NamesOf(has func(Kind) bool, conjunction string) string {
	var names []string
	for _, k := range Kinds() {
		if has(k) {
			names = append(names, string(k))
		}
	}
	return joinNames(names, conjunction)
}

// joinNames joins names with commas, and the last one with a conjunction.
func joinNames(names []string, conjunction string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " " + conjunction + " " + names[last]
}

// definition returns the facts of the kind; the zero value for an unknown kind.
func (k Kind) definition() definition {
	if i := slices.IndexFunc(definitions, func(d definition) bool { return d.kind == k }); i >= 0 {
		return definitions[i]
	}
	return definition{}
}

// Type returns the type of the kind.
func (k Kind) Type() string { return k.definition().typeName }

// Mode returns the mode of the kind.
func (k Kind) Mode() string { return k.definition().mode }

// HasFixedMode reports whether the type of the kind has no other mode.
func (k Kind) HasFixedMode() bool { return len(KindsOf(k.Type())) == 1 }

// HasCallers reports whether callers send events to a URL.
func (k Kind) HasCallers() bool { return k.definition().hasCallers }

// IsKnown reports whether the kind is in the table.
func (k Kind) IsKnown() bool { return k.Type() != "" }

// Answers reports whether a request waits for the results of its runs.
func (k Kind) Answers() bool { return k.definition().answers }

// Sends reports whether the kind sends results. The other kinds start runs.
func (k Kind) Sends() bool { return k.definition().sends }

// StartsRuns reports whether events of the kind start runs.
func (k Kind) StartsRuns() bool { return k.IsKnown() && !k.Sends() }

// DefaultTimeout returns the default time limit of the kind, 0 for a kind without one.
func (k Kind) DefaultTimeout() time.Duration { return k.definition().timeout }

// Does returns a phrase that continues the name of the kind: "sends results".
func (k Kind) Does() string { return k.definition().does }

// Works returns what goes on while a connector of the kind is enabled: "results are sent".
func (k Kind) Works() string { return k.definition().works }

// String describes the kind for people: "sync webhook", "cron".
func (k Kind) String() string {
	if !k.IsKnown() || k.HasFixedMode() {
		return string(k)
	}
	return string(k) + " " + k.Type()
}

// Noun describes a connector of the kind: "webhook of mode sync", "cron connector".
func (k Kind) Noun() string {
	if k.HasFixedMode() {
		return string(k) + " connector"
	}
	return k.Type() + " of mode " + k.Mode()
}

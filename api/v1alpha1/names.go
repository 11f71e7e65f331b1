// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// MaxNameLength is the most characters of an environment's name, a connector
// file's stem and a slug.
const MaxNameLength = 40

// Labels and annotations of the platform.
const (
	// LabelProject holds the project's id.
	LabelProject = "agentplatform.dev/project-id"
	// LabelEnvironment holds the name of the Environment that a child belongs to.
	LabelEnvironment = "agentplatform.dev/environment"
	// LabelManagedBy, with the value ManagedBy, marks what the platform made.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "agentplatform"
	// LabelDeployment holds the name of the Deployment that a child belongs to.
	LabelDeployment = "agentplatform.dev/deployment"
	// LabelConnector holds the name of the Connector that a child belongs to,
	// where it fits into a label (at most 63 characters).
	LabelConnector = "agentplatform.dev/connector"
	// LabelDefinedInCode is "true" on Connectors and ConnectorLinks that mirror a
	// file of connectors/.
	LabelDefinedInCode = "agentplatform.dev/defined-in-code"
	// LabelActivation is, beside LabelDefinedInCode, the rank of the activation that the
	// object mirrors, a number; LabelRetired is "true" where the code has the connector
	// no more; LabelPosition is which link of its connector's file a link is.
	LabelActivation = "agentplatform.dev/activation"
	LabelRetired    = "agentplatform.dev/retired"
	LabelPosition   = "agentplatform.dev/position"
)

// AnnotationRotationGrace of a Connector is how long the secrets before one rotation stay valid, in place of
// spec.secretGracePeriodSeconds: the version that the rotation made, the period of the spec, and the seconds, such as
// "3/86400=600". At any other version or period, and where it cannot be read, it says nothing.
const AnnotationRotationGrace = "agentplatform.dev/rotation-grace"

// CodeConnectorName is the name of the Connector that mirrors the file of that stem in an
// environment, CodeLinkName that of the ConnectorLink of one of its agents.
func CodeConnectorName(environment EnvironmentName, stem string) string {
	return string(environment) + "." + stem
}

// CodeConnectorStem is the stem of the file of which a Connector of an environment has the name; any
// other name it returns as it is.
func CodeConnectorStem(environment EnvironmentName, name string) string {
	return strings.TrimPrefix(name, string(environment)+".")
}

// CodeConnectorFile is the file of that stem in a project's repository.
func CodeConnectorFile(stem string) string { return "connectors/" + stem + ".yaml" }

// CodeLinkName: see CodeConnectorName.
func CodeLinkName(connector, agent string) string { return connector + "." + agent }

// activationOf is the rank in the labels of an object that code defines; 0 of others, and
// where somebody has changed it to no number.
func activationOf(labels map[string]string) int64 {
	if labels[LabelDefinedInCode] != "true" {
		return 0
	}
	rank, err := strconv.ParseInt(labels[LabelActivation], 10, 64)
	if err != nil {
		return 0
	}
	return rank
}

// Slug turns a name for people into a DNS label of at most MaxNameLength: lower
// case, marks of letters dropped ("Köln" becomes koln), everything else between
// letters and digits one '-'. It is "" when nothing of the name is left, as with
// one in another script.
func Slug(displayName string) string {
	var b strings.Builder
	gap := false
	for _, r := range norm.NFKD.String(displayName) {
		part := slugPart(r)
		switch {
		case unicode.Is(unicode.Mn, r):
			continue
		case part == "":
			gap = b.Len() > 0
			continue
		}
		if gap {
			part = "-" + part
			gap = false
		}
		if b.Len()+len(part) > MaxNameLength {
			break
		}
		b.WriteString(part)
	}
	return b.String()
}

// plainLetters are Latin letters that have no decomposition.
var plainLetters = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'đ': "d", 'ð': "d", 'þ': "th", 'ł': "l", 'ħ': "h", 'ı': "i",
}

// slugPart is what becomes of one character; "" when it separates.
func slugPart(r rune) string {
	r = unicode.ToLower(r)
	if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
		return string(r)
	}
	return plainLetters[r]
}

// NameFor is the name of an object that the facade makes for a display name: its
// slug, cut, and a suffix of random lower-case letters and digits. What is named
// has at most MaxNameLength characters.
func NameFor(displayName, fallback, suffix string) string {
	base := Slug(displayName)
	if base == "" {
		base = fallback
	}
	if most := MaxNameLength - 1 - len(suffix); len(base) > most {
		base = base[:most]
	}
	return strings.TrimRight(base, "-") + "-" + suffix
}

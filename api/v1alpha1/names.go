// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// MaxNameLength limits an environment's name, the stem of a connector file and a slug, in
// characters.
const MaxNameLength = 40

// Labels and annotations of the platform.
const (
	// LabelProject holds the project's id.
	LabelProject = "agentplatform.dev/project-id"
	// LabelEnvironment holds the name of the Environment that a child belongs to.
	LabelEnvironment = "agentplatform.dev/environment"
	// LabelManagedBy, with the value ManagedBy, marks objects that the platform created.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "agentplatform"
	// LabelDeployment holds the name of the Deployment that a child belongs to.
	LabelDeployment = "agentplatform.dev/deployment"
	// LabelConnector holds the name of the Connector that a child belongs to, if it fits into a
	// label (at most 63 characters).
	LabelConnector = "agentplatform.dev/connector"
	// LabelDefinedInCode is "true" on Connectors and ConnectorLinks that mirror a
	// file of connectors/.
	LabelDefinedInCode = "agentplatform.dev/defined-in-code"
	// LabelActivation, with LabelDefinedInCode, holds the rank of the activation that the object
	// mirrors. LabelRetired is "true" if the code no longer has the connector. LabelPosition is the
	// position of a link in its connector's file.
	LabelActivation = "agentplatform.dev/activation"
	LabelRetired    = "agentplatform.dev/retired"
	LabelPosition   = "agentplatform.dev/position"
)

// AnnotationRotationGrace holds the grace period of one rotation, which replaces
// spec.secretGracePeriodSeconds: the version of the rotation, the period in the spec, and the
// seconds, such as "3/86400=600". It has no effect for another version or period, or if it cannot
// be read.
const AnnotationRotationGrace = "agentplatform.dev/rotation-grace"

// CodeConnectorName returns the name of the Connector that mirrors the file with that stem in an
// environment.
func CodeConnectorName(environment EnvironmentName, stem string) string {
	return string(environment) + "." + stem
}

// CodeConnectorStem returns the file stem for a Connector of an environment. It returns any other
// name unchanged.
func CodeConnectorStem(environment EnvironmentName, name string) string {
	return strings.TrimPrefix(name, string(environment)+".")
}

// CodeConnectorFile returns the file with that stem in a project's repository.
func CodeConnectorFile(stem string) string { return "connectors/" + stem + ".yaml" }

// CodeLinkName returns the name of the ConnectorLink for an agent of a connector in code.
func CodeLinkName(connector, agent string) string { return connector + "." + agent }

// activationOf returns the rank in the labels of an object in code. It returns 0 for other objects
// and for an invalid number.
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

// Slug turns a display name into a DNS label of at most MaxNameLength. It uses lower case, drops
// marks of letters ("Köln" becomes koln) and replaces all other characters with one '-'. It returns
// "" if nothing is left, as for a name in another script.
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

// plainLetters maps Latin letters without a decomposition.
var plainLetters = map[rune]string{
	'ß': "ss", 'æ': "ae", 'œ': "oe", 'ø': "o", 'đ': "d", 'ð': "d", 'þ': "th", 'ł': "l", 'ħ': "h", 'ı': "i",
}

// slugPart returns the replacement of one character, or "" if it separates.
func slugPart(r rune) string {
	r = unicode.ToLower(r)
	if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
		return string(r)
	}
	return plainLetters[r]
}

// NameFor returns a name for an object that the facade creates: the slug of the display name, cut,
// and a suffix of random lower-case letters and digits. The result has at most MaxNameLength
// characters.
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

// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"unicode"
)

// Enumerations are written in CamelCase here, as Kubernetes does, and in lower case
// by the REST API, the store and the files of a repository.

// Word is the mode in lower case.
func (m ConnectorMode) Word() string { return strings.ToLower(string(m)) }

// ConnectorModeOf is the mode that a word means; "" for anything else.
func ConnectorModeOf(word string) ConnectorMode {
	return ofWord(word, ModeInbound, ModeSync, ModeOutbound)
}

// Word is the kind in lower case.
func (k EnvironmentKind) Word() string { return strings.ToLower(string(k)) }

// EnvironmentKindOf is the kind that a word means; "" for anything else.
func EnvironmentKindOf(word string) EnvironmentKind {
	return ofWord(word, EnvironmentStandard, EnvironmentTest)
}

// Word is the type in lower case.
func (t ModelProviderType) Word() string { return strings.ToLower(string(t)) }

// WebhookAuthentications are all ways to authenticate callers.
var WebhookAuthentications = []WebhookAuthentication{
	AuthenticationSecret, AuthenticationNone, AuthenticationGitHub, AuthenticationGitLab, AuthenticationStripe, AuthenticationSlack,
	AuthenticationStandardWebhooks,
}

// Word is how the callers are authenticated, in lower case: "github", "standard_webhooks".
func (a WebhookAuthentication) Word() string {
	if a == AuthenticationStandardWebhooks {
		return "standard_webhooks"
	}
	return strings.ToLower(string(a))
}

// WebhookAuthenticationOf is what a word means; "" for anything else.
func WebhookAuthenticationOf(word string) WebhookAuthentication {
	for _, a := range WebhookAuthentications {
		if a.Word() == word {
			return a
		}
	}
	return ""
}

// Word is the way to go on after missed ticks, in lower case.
func (m MissedTicks) Word() string { return strings.ToLower(string(m)) }

// MissedTicksOf is what a word means; "" for anything else.
func MissedTicksOf(word string) MissedTicks { return ofWord(word, MissedTicksSkip, MissedTicksLatest) }

// Word is the mode in lower case, its words apart.
func (m LinkMode) Word() string { return words(string(m)) }

// LinkModeOf is what a word means; "" for anything else.
func LinkModeOf(word string) LinkMode {
	return ofWords(word, LinkAutomatic, LinkAgentTool, LinkMiddleware)
}

// Word is the status in lower case, its words apart.
func (s LinkStatus) Word() string { return words(string(s)) }

// LinkStatusOf is what a word means; "" for anything else.
func LinkStatusOf(word string) LinkStatus {
	return ofWords(word, LinkCompleted, LinkFailed, LinkCancelled, LinkDeliveryFailed)
}

// words are those of a value in CamelCase, in lower case with underscores between them.
func words(value string) string {
	var out strings.Builder
	for i, r := range value {
		if i > 0 && unicode.IsUpper(r) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// ofWords is the value of which these are the words; "" when there is none.
func ofWords[T ~string](word string, values ...T) T {
	for _, v := range values {
		if words(string(v)) == word {
			return v
		}
	}
	return ""
}

// DeploymentPhaseOf is the phase that a status of the store means ("pending", …); "" for
// anything else.
func DeploymentPhaseOf(status string) DeploymentPhase {
	return ofWord(status, DeploymentPending, DeploymentBuilding, DeploymentDeployed, DeploymentFailed, DeploymentCancelled)
}

// DeploymentStepOf is the step that a phase of the store means ("fetching", …); ""
// for anything else.
func DeploymentStepOf(phase string) DeploymentStep {
	return ofWord(phase, StepFetching, StepPacking, StepTesting, StepConnecting)
}

// DeploymentFailureOf is the failure that a reason of the store means
// ("build_failed", …); "" for anything else.
func DeploymentFailureOf(reason string) DeploymentFailure {
	return map[string]DeploymentFailure{
		"build_failed":      FailureBuild,
		"tests_failed":      FailureTests,
		"connectors_failed": FailureConnectors,
		"deadline_exceeded": FailureDeadline,
		"store_restored":    FailureStoreRestored,
	}[reason]
}

// ofWord is the value that is written so in lower case; "" when there is none.
func ofWord[T ~string](word string, values ...T) T {
	for _, v := range values {
		if strings.ToLower(string(v)) == word {
			return v
		}
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"unicode"
)

// Enumerations use CamelCase here, as in Kubernetes, and lower case in the REST API, the store and
// the files of a repository.

// Word is the mode in lower case.
func (m ConnectorMode) Word() string { return strings.ToLower(string(m)) }

// ConnectorModeOf returns the mode for a word, or "".
func ConnectorModeOf(word string) ConnectorMode {
	return valueOfWord(word, ModeInbound, ModeSync, ModeOutbound)
}

// Word is the kind in lower case.
func (k EnvironmentKind) Word() string { return strings.ToLower(string(k)) }

// EnvironmentKindOf returns the kind for a word, or "".
func EnvironmentKindOf(word string) EnvironmentKind {
	return valueOfWord(word, EnvironmentStandard, EnvironmentTest)
}

// Word is the type in lower case.
func (t ModelProviderType) Word() string { return strings.ToLower(string(t)) }

// WebhookAuthentications are all ways to authenticate callers.
var WebhookAuthentications = []WebhookAuthentication{
	AuthenticationSecret, AuthenticationNone, AuthenticationGitHub, AuthenticationGitLab, AuthenticationStripe, AuthenticationSlack,
	AuthenticationStandardWebhooks,
}

// Word is the authentication in lower case: "github", "standard_webhooks".
func (a WebhookAuthentication) Word() string {
	if a == AuthenticationStandardWebhooks {
		return "standard_webhooks"
	}
	return strings.ToLower(string(a))
}

// WebhookAuthenticationOf returns the authentication for a word, or "".
func WebhookAuthenticationOf(word string) WebhookAuthentication {
	for _, a := range WebhookAuthentications {
		if a.Word() == word {
			return a
		}
	}
	return ""
}

// Word is the treatment of missed ticks in lower case.
func (m MissedTicks) Word() string { return strings.ToLower(string(m)) }

// MissedTicksOf returns the treatment of missed ticks for a word, or "".
func MissedTicksOf(word string) MissedTicks {
	return valueOfWord(word, MissedTicksSkip, MissedTicksLatest)
}

// Word is the mode in lower case with underscores.
func (m LinkMode) Word() string { return splitWords(string(m)) }

// LinkModeOf returns the mode for a word, or "".
func LinkModeOf(word string) LinkMode {
	return ofWords(word, LinkAutomatic, LinkAgentTool, LinkMiddleware)
}

// Word is the status in lower case with underscores.
func (s LinkStatus) Word() string { return splitWords(string(s)) }

// LinkStatusOf returns the status for a word, or "".
func LinkStatusOf(word string) LinkStatus {
	return ofWords(word, LinkCompleted, LinkFailed, LinkCancelled, LinkDeliveryFailed)
}

// splitWords converts CamelCase to lower case with underscores.
func splitWords(value string) string {
	var out strings.Builder
	for i, r := range value {
		if i > 0 && unicode.IsUpper(r) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// ofWords returns the value whose words these are, or "".
func ofWords[T ~string](word string, values ...T) T {
	for _, v := range values {
		if splitWords(string(v)) == word {
			return v
		}
	}
	return ""
}

// DeploymentPhaseOf returns the phase for a status of the store ("pending", …), or "".
func DeploymentPhaseOf(status string) DeploymentPhase {
	return valueOfWord(status, DeploymentPending, DeploymentBuilding, DeploymentDeployed, DeploymentFailed, DeploymentCancelled)
}

// DeploymentStepOf returns the step for a phase of the store ("fetching", …), or "".
func DeploymentStepOf(phase string) DeploymentStep {
	return valueOfWord(phase, StepFetching, StepPacking, StepTesting, StepConnecting)
}

// DeploymentFailureOf returns the failure for a reason of the store ("build_failed", …), or "".
func DeploymentFailureOf(reason string) DeploymentFailure {
	return map[string]DeploymentFailure{
		"build_failed":      FailureBuild,
		"tests_failed":      FailureTests,
		"connectors_failed": FailureConnectors,
		"deadline_exceeded": FailureDeadline,
		"store_restored":    FailureStoreRestored,
	}[reason]
}

// valueOfWord returns the value for a lower-case word, or "".
func valueOfWord[T ~string](word string, values ...T) T {
	for _, v := range values {
		if strings.ToLower(string(v)) == word {
			return v
		}
	}
	return ""
}

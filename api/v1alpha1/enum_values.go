// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"strings"
	"unicode"
)

// Enumerations use CamelCase here, as in Kubernetes. Their enum values in the REST API, the store and the files of a repository
// are in lower case with underscores.

// EnumValue is the mode in lower case.
func (m ConnectorMode) EnumValue() string { return strings.ToLower(string(m)) }

// ConnectorModeOf returns the mode for an enum value, or "".
func ConnectorModeOf(value string) ConnectorMode {
	return parseEnum(value, ConnectorModes...)
}

// EnumValue is the kind in lower case.
func (k EnvironmentKind) EnumValue() string { return strings.ToLower(string(k)) }

// EnvironmentKindOf returns the kind for an enum value, or "".
func EnvironmentKindOf(value string) EnvironmentKind {
	return parseEnum(value, EnvironmentStandard, EnvironmentTest)
}

// EnumValue is the type in lower case.
func (t ModelProviderType) EnumValue() string { return strings.ToLower(string(t)) }

// EnumValue is the authentication in lower case: "github", "standard_webhooks".
func (a WebhookAuthentication) EnumValue() string {
	if a == AuthenticationStandardWebhooks {
		return "standard_webhooks"
	}
	return strings.ToLower(string(a))
}

// EnumValue is the mode in lower case with underscores.
func (m LinkMode) EnumValue() string { return snakeCase(string(m)) }

// LinkModeOf returns the mode for an enum value, or "".
func LinkModeOf(value string) LinkMode {
	return parseEnum(value, LinkAutomatic, LinkAgentTool, LinkMiddleware)
}

// EnumValue is the status in lower case with underscores.
func (s LinkStatus) EnumValue() string { return snakeCase(string(s)) }

// LinkStatusOf returns the status for an enum value, or "".
func LinkStatusOf(value string) LinkStatus {
	return parseEnum(value, LinkCompleted, LinkFailed, LinkCancelled, LinkDeliveryFailed)
}

// snakeCase converts CamelCase to lower case with underscores.
func snakeCase(value string) string {
	var out strings.Builder
	for i, r := range value {
		if i > 0 && unicode.IsUpper(r) {
			out.WriteByte('_')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}

// DeploymentPhaseOf returns the phase for a status of the store ("pending", …), or "".
func DeploymentPhaseOf(status string) DeploymentPhase {
	return parseEnum(status, DeploymentPending, DeploymentBuilding, DeploymentDeployed, DeploymentFailed, DeploymentCancelled)
}

// DeploymentStepOf returns the step for a phase of the store ("fetching", …), or "".
func DeploymentStepOf(phase string) DeploymentStep {
	return parseEnum(phase, StepFetching, StepPacking, StepTesting, StepConnecting)
}

// DeploymentFailureOf returns the failure for a reason of the store ("build_failed", …), or "".
func DeploymentFailureOf(reason string) DeploymentFailure {
	return map[string]DeploymentFailure{
		"build_failed":           FailureBuild,
		"tests_failed":           FailureTests,
		"model_provider_missing": FailureModelProvider,
		"connectors_failed":      FailureConnectors,
		"deadline_exceeded":      FailureDeadline,
		"store_restored":         FailureStoreRestored,
	}[reason]
}

// parseEnum returns the value whose form in lower case with underscores is text, or "".
func parseEnum[T ~string](text string, values ...T) T {
	for _, v := range values {
		if snakeCase(string(v)) == text {
			return v
		}
	}
	return ""
}

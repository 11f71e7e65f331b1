// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// Enums are types of their own, so that the description has each of them once. Clients must accept new values.

// DeploymentStatus is the status of a deployment.
type DeploymentStatus string

func (DeploymentStatus) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "DeploymentStatus", "The status of a deployment. deployed, failed and cancelled are final.",
		"pending", "building", "deployed", "failed", "cancelled")
}

// DeploymentPhase is the phase of a building deployment.
type DeploymentPhase string

func (DeploymentPhase) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "DeploymentPhase", "The phase of a building deployment.", "fetching", "packing", "testing", "connecting")
}

// FailureReason is the reason of a failed deployment.
type FailureReason string

func (FailureReason) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "FailureReason", "Why a deployment failed. model_provider_missing: an agent names a model whose provider the "+
		"project does not have. store_restored: it is newer than the backup that the store was restored from.",
		"build_failed", "tests_failed", "model_provider_missing", "connectors_failed", "deadline_exceeded", "store_restored")
}

// CommitState is the state of a commit at the Git provider.
type CommitState string

func (CommitState) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "CommitState", "The state of a commit at the Git provider.", "pending", "success", "failure", "error")
}

// SourceType is the source of the code of a deployment.
type SourceType string

func (SourceType) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "SourceType", "The source of a deployment's code.", "git", "upload")
}

// ConnectorAction is the action of a deployment on a connector.
type ConnectorAction string

func (ConnectorAction) Schema(r huma.Registry) *huma.Schema {
	return rest.Enumeration(r, "ConnectorAction", "The action of a deployment on a connector of its code.",
		"created", "updated", "unchanged", "retired", "skipped", "failed")
}

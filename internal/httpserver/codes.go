// SPDX-License-Identifier: Apache-2.0

package httpserver

// Code identifies an error for programs. Codes never change.
type Code string

// REST API
const (
	CodeMalformed          Code = "malformed_request"      // 400: the upload could not be read completely
	CodeSlugTaken          Code = "slug_taken"             // 400: another environment of the project has this slug
	CodeDefaultEnvironment Code = "default_environment"    // 400: the environment is the project's default
	CodeLastEnvironment    Code = "last_environment"       // 400: the project has no other standard environment
	CodeNoGit              Code = "no_git_repository"      // 400: the project has no Git repository
	CodeNothingToOverride  Code = "nothing_to_override"    // 400: neither tests nor connectors of the deployment failed
	CodeUnauthorized       Code = "unauthorized"           // 401: the API key is missing, unknown or not in effect
	CodeForbidden          Code = "forbidden"              // 403: the key or its owner lacks the permission
	CodeNotPublic          Code = "not_public"             // 403: the path is not an endpoint
	CodeQuotaExceeded      Code = "quota_exceeded"         // 403: a quota of the namespace is used up
	CodeRefused            Code = "refused"                // 403: Kubernetes rejects the change
	CodePlan               Code = "beyond_plan"            // 403: the plan of the project does not allow it
	CodeNotFound           Code = "not_found"              // 404: the project has no such resource
	CodeTimeout            Code = "request_timeout"        // 408: the body did not arrive in time
	CodeConflict           Code = "conflict"               // 409: the resource changed at the same time
	CodeAlreadyExists      Code = "already_exists"         // 409: the resource exists already
	CodeNameTaken          Code = "name_taken"             // 409: another resource of the environment has this name
	CodeLimitReached       Code = "limit_reached"          // 409: the limit of resources is reached
	CodeDefinedInCode      Code = "defined_in_code"        // 409: only a deployment of the project's code can change it
	CodeGitOps             Code = "managed_by_gitops"      // 409: a GitOps controller owns the resource and would revert the change
	CodeNoSecret           Code = "no_generated_secret"    // 409: the platform generates no secret for this connector
	CodeGone               Code = "gone"                   // 409: the stored data is deleted
	CodeInProgress         Code = "in_progress"            // 409: the run to replay has not ended
	CodeTestSession        Code = "test_session_active"    // 409: the environment has an active test session
	CodeConnectorPaused    Code = "connector_paused"       // 409: deliveries of the connector are paused
	CodeNotOutbound        Code = "not_outbound"           // 409: the connector has no outbound deliveries
	CodeNotDeployed        Code = "not_deployed"           // 409: only a deployment with status deployed can go live
	CodeBundleGone         Code = "bundle_gone"            // 409: the bundle of the deployment is deleted
	CodeUploadGone         Code = "upload_gone"            // 409: the uploaded folder is deleted
	CodeModelProvider      Code = "model_provider_missing" // 409: the project does not have the provider of an agent's model
	CodeConnectorsFailed   Code = "connectors_failed"      // 409: connectors of the deployment's code cannot be applied
	CodeSuperseded         Code = "superseded"             // 409: another deployment was activated later
	CodeTerminating        Code = "namespace_terminating"  // 409: the namespace of the project is being deleted
	CodePrecondition       Code = "precondition_failed"    // 412: the resource does not match If-Match
	CodeRequestTooLarge    Code = "request_too_large"      // 413: the body exceeds the size limit
	CodeUnsupportedMedia   Code = "unsupported_media_type" // 415: the media type of the body is not supported
	CodeInvalid            Code = "invalid_request"        // 422: fields are invalid; errors names them
	CodeKeyReused          Code = "idempotency_key_reused" // 422: the key was used for a different request
	CodeSearchTooBroad     Code = "search_too_broad"       // 422: the search would read too many runs
	CodeRateLimited        Code = "rate_limited"           // 429: the rate limit of the project is reached
	CodeInternal           Code = "internal_error"         // 500: the service failed
	CodeNotImplemented     Code = "not_implemented"        // 501: this release does not support it
	CodeStoreUnavailable   Code = "store_unavailable"      // 503: the store does not answer
	CodeClusterUnavailable Code = "kubernetes_unavailable" // 503: the Kubernetes API does not answer
	CodeBusy               Code = "busy"                   // 503: too many requests of this kind are in progress
	CodeKeyring            Code = "platform_key_missing"   // 503: a platform key is not in use yet
	CodeNotInEffect        Code = "not_in_effect"          // 503: the change is written, but not in effect yet
	CodeGivenUp            Code = "request_given_up"       // 503: the request took too long, or the client disconnected
	CodeNotRecorded        Code = "audit_unavailable"      // 503: the audit log cannot be written, so nothing changed
)

// Webhooks
const (
	CodeOutboundOnly        Code = "outbound_only"            // 400: the connector accepts no requests
	CodeNoWebhook           Code = "not_a_webhook"            // 400: the connector runs on a schedule
	CodeBodyUnreadable      Code = "body_unreadable"          // 400: the body could not be read completely
	CodeInvalidJSON         Code = "invalid_json"             // 400: the body is not a JSON object
	CodeInvalidForm         Code = "invalid_form"             // 400: the body or the query is not a valid form
	CodeKeyTooLong          Code = "idempotency_key_too_long" // 400: the key is too long
	CodeKeyInvalid          Code = "idempotency_key_invalid"  // 400: the key has invalid characters
	CodeKeyExpired          Code = "idempotency_key_expired"  // 503: the key expired during the request
	CodeInvalidSecret       Code = "invalid_secret"           // 401: the secret is missing or wrong
	CodeInvalidSignature    Code = "invalid_signature"        // 401: the provider's signature or token is missing, wrong or too old
	CodeTooManyWrong        Code = "too_many_wrong_secrets"   // 429: too many requests had wrong secrets or signatures
	CodeTooManyUnverified   Code = "too_many_unverified"      // 429: too many bytes with an unverified signature arrive at once
	CodeSecretChanged       Code = "secret_changed"           // 503: the connector's secret changed during the request
	CodeWebhookNotFound     Code = "webhook_not_found"        // 404: no webhook has this URL
	CodeMethodNotAllowed    Code = "method_not_allowed"       // 405: the path allows other methods; see the header Allow
	CodeConnectorRetired    Code = "connector_retired"        // 409: the connector was removed from the code
	CodeConnectorDisabled   Code = "connector_disabled"       // 409: the connector is disabled
	CodeNoAgent             Code = "no_agent"                 // 409: no agent is linked
	CodeNoLiveDeployment    Code = "no_live_deployment"       // 409: no deployment is live, so a sync webhook cannot be answered
	CodeEnvironmentGone     Code = "environment_gone"         // 409: the environment of the connector was deleted
	CodeTooManyHops         Code = "too_many_hops"            // 422: delivery loop: the event passed too many deliveries
	CodeUnsupportedEncoding Code = "unsupported_encoding"     // 415: the body is compressed
	CodeTooManyLargeBodies  Code = "too_many_large_bodies"    // 429: the project sends too many large bodies at once
	CodeTooManyWaiting      Code = "too_many_waiting"         // 429: the project has too many requests in progress
	CodeTooManyCallers      Code = "too_many_callers"         // 429: too many callers wait for results
	CodeBacklogFull         Code = "backlog_full"             // 429: the environment has too many open runs
	CodeStorageFull         Code = "project_storage_full"     // 429: the storage limit of the project is reached; 422 for data that a run sends or saves
	CodeTooManyUnknown      Code = "too_many_unknown_urls"    // 503: too many requests go to unknown URLs
	CodeGatewayStopping     Code = "gateway_stopping"         // 504: the gateway stops; the run continues
	CodeStopping            Code = "stopping"                 // 503: the gateway stops
	CodeNotConnected        Code = "not_connected"            // 503: the gateway has not reached the store yet
	CodeSyncTimeout         Code = "sync_timeout"             // 504: the run did not end in time; it continues
)

// Internal port for runners and builds
const (
	CodeInvalidStatus  Code = "invalid_status"   // 400: no run ends with this status
	CodeInvalidToken   Code = "invalid_token"    // 401: the token is missing, unknown or expired
	CodeWrongToken     Code = "wrong_token"      // 403: the token is of another kind
	CodeFenced         Code = "fenced"           // 409: the lease is no longer current
	CodeTooLarge       Code = "too_large"        // 413: the data exceeds the size limit of the store
	CodeBundleTooLarge Code = "bundle_too_large" // 413: the bundle exceeds the size limit
	CodeWrongDigest    Code = "wrong_digest"     // 422: the bytes do not match the digest
	CodeTooManySends   Code = "too_many_sends"   // 422: the run reached its limit of deliveries
	CodeTooMuchSent    Code = "too_much_sent"    // 422: the run reached its limit of delivered bytes
	CodeReservedKind   Code = "reserved_kind"    // 422: only the platform writes journal entries of this kind
)

// SPDX-License-Identifier: Apache-2.0

package httpserver

// Code says to programs what is wrong. Codes do not change once given.
type Code string

// Codes of the REST facade, and of several servers.
const (
	CodeMalformed          Code = "malformed_request"      // 400: an upload could not be read whole
	CodeSlugTaken          Code = "slug_taken"             // 400: another environment of the project has the slug
	CodeDefaultEnvironment Code = "default_environment"    // 400: the environment is the project's default
	CodeLastEnvironment    Code = "last_environment"       // 400: the project has no other standard environment
	CodeNoGit              Code = "no_git_repository"      // 400: the project has no repository to deploy from
	CodeNothingToOverride  Code = "nothing_to_override"    // 400: neither tests nor connectors of the deployment failed
	CodeUnauthorized       Code = "unauthorized"           // 401: the API key is missing, unknown or no longer in force
	CodeForbidden          Code = "forbidden"              // 403: the key or its owner may not do this
	CodeNotPublic          Code = "not_public"             // 403: the path is not an endpoint
	CodeQuotaExceeded      Code = "quota_exceeded"         // 403: a quota of the namespace is used up
	CodeRefused            Code = "refused"                // 403: Kubernetes does not allow the change
	CodePlan               Code = "beyond_plan"            // 403: the plan of the project does not allow it
	CodeNotFound           Code = "not_found"              // 404: the project has no such thing
	CodeTimeout            Code = "request_timeout"        // 408: the body did not come in time
	CodeConflict           Code = "conflict"               // 409: somebody else changed it at the same time
	CodeAlreadyExists      Code = "already_exists"         // 409: there is one already
	CodeNameTaken          Code = "name_taken"             // 409: another one of the environment has the name
	CodeLimitReached       Code = "limit_reached"          // 409: there are as many as there may be
	CodeDefinedInCode      Code = "defined_in_code"        // 409: it is changed by a deployment of the project's code
	CodeGitOps             Code = "managed_by_gitops"      // 409: a GitOps controller owns it and would undo the change
	CodeNoSecret           Code = "no_generated_secret"    // 409: the connector has no secret that the platform generates
	CodeGone               Code = "gone"                   // 409: what it is about is not stored any more
	CodeInProgress         Code = "in_progress"            // 409: what is to be repeated has not ended
	CodeTestSession        Code = "test_session_active"    // 409: somebody tests in the environment
	CodeConnectorPaused    Code = "connector_paused"       // 409: the connector sends nothing for the time being
	CodeNotOutbound        Code = "not_outbound"           // 409: the connector sends nothing
	CodeNotDeployed        Code = "not_deployed"           // 409: only a deployed deployment can be live
	CodeBundleGone         Code = "bundle_gone"            // 409: what the deployment's build made is not stored any more
	CodeUploadGone         Code = "upload_gone"            // 409: what was uploaded is not stored any more
	CodeConnectorsFailed   Code = "connectors_failed"      // 409: connectors of the deployment's code cannot be applied
	CodeSuperseded         Code = "superseded"             // 409: another deployment was activated later
	CodeTerminating        Code = "namespace_terminating"  // 409: the project's namespace is being deleted
	CodePrecondition       Code = "precondition_failed"    // 412: it is not what If-Match names
	CodeRequestTooLarge    Code = "request_too_large"      // 413: the body is larger than the limit
	CodeUnsupportedMedia   Code = "unsupported_media_type" // 415: the body is not of a type that is read
	CodeInvalid            Code = "invalid_request"        // 422: fields are wrong; errors names them
	CodeKeyReused          Code = "idempotency_key_reused" // 422: the key was sent before with another request
	CodeSearchTooBroad     Code = "search_too_broad"       // 422: too many runs would have to be looked at
	CodeRateLimited        Code = "rate_limited"           // 429: the project has no requests left at the moment
	CodeInternal           Code = "internal_error"         // 500: a mistake of the service
	CodeNotImplemented     Code = "not_implemented"        // 501: this release does not do it
	CodeStoreUnavailable   Code = "store_unavailable"      // 503: the store does not answer
	CodeClusterUnavailable Code = "kubernetes_unavailable" // 503: the Kubernetes API does not answer
	CodeBusy               Code = "busy"                   // 503: too much of this is under way
	CodeKeyring            Code = "platform_key_missing"   // 503: a key of the platform is being brought into use
	CodeNotInEffect        Code = "not_in_effect"          // 503: it is written, and not in effect yet
	CodeGivenUp            Code = "request_given_up"       // 503: the request took too long, or its client went
	CodeNotRecorded        Code = "audit_unavailable"      // 503: the audit log cannot be written, so nothing was done
)

// Codes of webhooks.
const (
	CodeOutboundOnly        Code = "outbound_only"            // 400: the connector takes no requests
	CodeNoWebhook           Code = "not_a_webhook"            // 400: the connector runs by its schedule
	CodeBodyUnreadable      Code = "body_unreadable"          // 400: the body could not be read whole
	CodeInvalidJSON         Code = "invalid_json"             // 400: the body is not a JSON object
	CodeInvalidForm         Code = "invalid_form"             // 400: the body or the query is no form that can be read
	CodeKeyTooLong          Code = "idempotency_key_too_long" // 400: the key is too long
	CodeKeyInvalid          Code = "idempotency_key_invalid"  // 400: the key has characters that it may not have
	CodeKeyExpired          Code = "idempotency_key_expired"  // 503: the key was forgotten in this very moment
	CodeInvalidSecret       Code = "invalid_secret"           // 401: the secret is missing or wrong
	CodeInvalidSignature    Code = "invalid_signature"        // 401: the provider's signature or token is missing, wrong or old
	CodeTooManyWrong        Code = "too_many_wrong_secrets"   // 429: too many requests with wrong secrets or signatures have come
	CodeTooManyUnverified   Code = "too_many_unverified"      // 429: too much comes in of which the signature is not judged yet
	CodeSecretChanged       Code = "secret_changed"           // 503: the connector's secret was changed while the request came in
	CodeWebhookNotFound     Code = "webhook_not_found"        // 404: no webhook has this URL
	CodeMethodNotAllowed    Code = "method_not_allowed"       // 405: the path takes other methods, as Allow says
	CodeConnectorRetired    Code = "connector_retired"        // 409: the connector was removed from the code
	CodeConnectorDisabled   Code = "connector_disabled"       // 409: the connector is disabled
	CodeNoAgent             Code = "no_agent"                 // 409: no agent is linked
	CodeNoLiveDeployment    Code = "no_live_deployment"       // 409: nothing is live that could answer a sync webhook
	CodeEnvironmentGone     Code = "environment_gone"         // 409: the connector's environment was deleted
	CodeTooManyHops         Code = "too_many_hops"            // 422: it has come by as many deliveries as an event may
	CodeUnsupportedEncoding Code = "unsupported_encoding"     // 415: the body is compressed
	CodeTooManyLargeBodies  Code = "too_many_large_bodies"    // 429: as many of the project's large bodies come in as may
	CodeTooManyWaiting      Code = "too_many_waiting"         // 429: as many of the project's requests wait as may
	CodeTooManyCallers      Code = "too_many_callers"         // 429: as many callers wait for an answer as may
	CodeBacklogFull         Code = "backlog_full"             // 429: as many runs of the environment are open as may
	CodeStorageFull         Code = "project_storage_full"     // 429: the project has stored as much as it may; 422 of what a run sends
	CodeTooManyUnknown      Code = "too_many_unknown_urls"    // 503: too many ask for URLs that nobody knows
	CodeGatewayStopping     Code = "gateway_stopping"         // 504: the gateway stops; the run goes on
	CodeStopping            Code = "stopping"                 // 503: the gateway stops
	CodeNotConnected        Code = "not_connected"            // 503: the gateway has not reached the store yet
	CodeSyncTimeout         Code = "sync_timeout"             // 504: the agent has not finished in time; the run goes on
)

// Codes of the port that runners and builds call.
const (
	CodeInvalidStatus  Code = "invalid_status"   // 400: no run ends so
	CodeInvalidToken   Code = "invalid_token"    // 401: the token is missing, unknown or ended
	CodeWrongToken     Code = "wrong_token"      // 403: the token is of another kind
	CodeFenced         Code = "fenced"           // 409: the claim is no longer current
	CodeTooLarge       Code = "too_large"        // 413: it is larger than the store takes
	CodeBundleTooLarge Code = "bundle_too_large" // 413: a bundle is larger than the limit
	CodeWrongDigest    Code = "wrong_digest"     // 422: the bytes do not have the digest
	CodeTooManySends   Code = "too_many_sends"   // 422: the run has sent as often as it may
	CodeTooMuchSent    Code = "too_much_sent"    // 422: the run would have sent more bytes than it may
	CodeReservedKind   Code = "reserved_kind"    // 422: the platform alone writes journal entries of this kind
)

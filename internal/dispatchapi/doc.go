// SPDX-License-Identifier: Apache-2.0

// Package dispatchapi is what runners and builds say to the gateway's internal
// port: the wire types and the client. The port speaks HTTP/1.1 with JSON
// bodies; every request carries `Authorization: Bearer <token>`, the token of
// an environment's runner pool or of one deployment's build, which also says
// which environment or deployment is meant.
//
//	POST /v1/claim                 ClaimRequest → ClaimResponse, waits up to wait_seconds
//	POST /v1/heartbeat             HeartbeatRequest → HeartbeatResponse
//	POST /v1/runs/{id}/journal     JournalRequest → 204, 409 fenced
//	GET  /v1/runs/{id}/journal     ?token=<fencing token> → a JournalEntry a line, for a journal that was
//	                               too large for the claim; 409 fenced
//	POST /v1/runs/{id}/complete    CompleteRequest → 204, 409 fenced
//	POST /v1/runs/{id}/release     ReleaseRequest → 204, 409 fenced
//	POST /v1/runs/{id}/sends       SendRequest → SendResponse, a payload to an outbound connector; 409 fenced,
//	                               404 the run's agent has no such link, 413 too large, 422 too many
//	GET  /v1/runs/{id}/input       → raw bytes of an input that was too large for the claim
//	GET  /v1/runs/{id}/files       → Files, the attachments of the input
//	GET  /v1/runs/{id}/files/{n}   → the bytes of the accepted one of a number, from 0
//	GET  /v1/bundles/{digest}      → the bundle's bytes
//	POST /v1/build/report          BuildReport → 204
//	POST /v1/build/log             BuildLog → 204
//	GET  /v1/build/upload          → the bytes that were uploaded to be deployed; 404 of a commit, or gone
//	PUT  /v1/build/bundle/{digest} the bundle's bytes → 204, 422 wrong digest, 413 too large
//	POST /v1/build/result          BuildResult → 204
//
// Errors are problem+json. All calls may be repeated: a call whose answer was
// lost has the same effect when sent again. Any call may be answered 429 or 503: the
// project, or the gateway, has no room for it at the moment.
package dispatchapi

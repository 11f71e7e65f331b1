// SPDX-License-Identifier: Apache-2.0

// Package dispatchapi contains the wire types and the client of the gateway's internal port, for
// runners and builds. The port uses HTTP/1.1 with JSON bodies. Each request has the header
// `Authorization: Bearer <token>`. The token belongs to an environment's runner pool or to a
// deployment's build and identifies the environment or the deployment.
//
//	POST /v1/claim                 ClaimRequest → ClaimResponse, waits up to wait_seconds
//	POST /v1/heartbeat             HeartbeatRequest → HeartbeatResponse
//	POST /v1/journals              AppendRequest → AppendResponse, appends of several runs; 503 send each alone
//	POST /v1/runs/{id}/journal     JournalRequest → 204, 409 fenced
//	GET  /v1/runs/{id}/journal     ?token=<fencing token> → one JournalEntry per line, for a journal that was
//	                               too large for the claim; 409 fenced
//	POST /v1/runs/{id}/complete    CompleteRequest → 204, 409 fenced
//	POST /v1/runs/{id}/release     ReleaseRequest → 204, 409 fenced
//	POST /v1/runs/{id}/sends       SendRequest → SendResponse, a payload to an outbound connector; 409 fenced,
//	                               404 the run's agent has no such link, 413 too large, 422 too many
//	GET  /v1/runs/{id}/input       → raw bytes of an input that was too large for the claim
//	GET  /v1/runs/{id}/files       → Files, the attachments of the input
//	GET  /v1/runs/{id}/files/{n}   → the bytes of an accepted attachment by its number, from 0
//	PUT  /v1/runs/{id}/saved       ?journal=<bytes>: a SaveRequest of this size, and then the bytes of the file that it
//	                               saves → 204, 409 fenced, 413 too large, 422 other bytes, or with the code
//	                               project_storage_full a project whose storage is full: nothing is appended
//	GET  /v1/runs/{id}/saved/{file} ?token=<fencing token>&offset=&length= → a part of a saved file; 409 fenced
//	GET  /v1/bundles/{digest}      → the bundle's bytes
//	POST /v1/build/report          BuildReport → 204
//	POST /v1/build/log             BuildLog → 204
//	GET  /v1/build/upload          → the upload to deploy; 404 for a commit, or if the upload was deleted
//	PUT  /v1/build/bundle/{digest} the bundle's bytes → 204, 422 wrong digest, 413 too large
//	POST /v1/build/result          BuildResult → 204
//
// Errors are problem+json. All calls can be repeated: a call whose response was lost has the same
// effect when it is sent again. Any call can return 429 or 503 if the project or the gateway has no
// capacity for it.
package dispatchapi

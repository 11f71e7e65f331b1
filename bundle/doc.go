// SPDX-License-Identifier: Apache-2.0

// Package bundle holds a project repository as a value: it reads the folder
// layout, validates every file and names each problem with file, line and
// column, packs the files into a bundle and opens bundles again.
//
// A repository has no manifest; the folder decides what a file is:
//
//	agents/**/*.yaml      one agent a file; _defaults.yaml folds into the files at and below its folder
//	connectors/*.yaml     one connector a file; the stem is its key
//	models/*.yaml         scripts of the deterministic model scripted/<stem>
//	middleware/, hooks/, tools/, guardrails/ (*.star), schemas/ (*.json), tests/
//
// Everything else in a repository is neither read nor packed.
//
// A bundle is those files as a tar in one zstd frame, named by the SHA-256 of
// its bytes. Packing is deterministic: equal files give equal bytes and so the
// same name. Repositories and bundles are untrusted: sizes, depth, numbers of
// files and expansions of aliases are bounded, see limits.go.
package bundle

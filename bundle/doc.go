// SPDX-License-Identifier: Apache-2.0

// Package bundle holds a project repository as a value. It reads the folders, validates each file, reports each problem
// with file, line and column, packs the files into a bundle, and opens bundles.
//
// A repository has no manifest. The folder of a file decides its kind:
//
//	agents/**/*.yaml      one agent a file; _defaults.yaml applies to the files at and below its folder
//	connectors/*.yaml     one connector a file; the stem of the file is its key
//	models/*.yaml         scripts of the deterministic models scripted/<stem>
//	middleware/, hooks/, tools/, guardrails/ (*.star), knowledge/ (*.yaml), schemas/ (*.json), tests/
//
// No other file is read or packed.
//
// A key of a YAML file is a field of a struct. Its tags describe the key completely, see type field: the decoder enforces
// them, and the JSON Schemas, the reference page and the tests of all keys are derived from them.
//
// A bundle is a tar archive of these files in one zstd frame. Its name is the SHA-256 of its bytes. Packing is
// deterministic: equal files give equal bytes, and so the same name. Repositories and bundles are untrusted, so sizes,
// depth, numbers of files and the expansion of aliases are limited, see limits.go.
package bundle

// SPDX-License-Identifier: Apache-2.0

// Package build builds a bundle from a commit or an upload. A commit needs two steps that share a
// folder. An upload needs only the second step, which fetches it.
//
// Fetch runs in the init container, the only place with Git credentials. It writes the commit's
// files of the repository layout and a Result. A problem of the repository does not fail it: the
// Result contains the error with cause and remedy.
//
// Pack runs in the main container, which has the build's token. It reports the fetch to dispatch,
// validates, packs, uploads, and streams log lines.
//
// All data from the repository or its server is untrusted. Sizes, numbers and depths are limited,
// and files are written through os.Root.
package build

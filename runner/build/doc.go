// SPDX-License-Identifier: Apache-2.0

// Package build turns a commit, or a folder that was uploaded, into a bundle. A commit takes
// two steps that share a folder; of an upload there is the second alone, which fetches it.
//
// Fetch runs in the init container, the only place with Git credentials: it
// takes the commit's files of a repository's layout and writes them with a
// Result beside. It never fails for the repository's sake: what went wrong
// stands in the Result, with cause and remedy.
//
// Pack runs in the main container, which has the build's token instead: it
// tells dispatch what became of the fetch, validates, packs, uploads, and
// streams log lines all along.
//
// Everything that comes from the repository or its server is untrusted: sizes,
// numbers and depths are bounded, files are written through os.Root.
package build

// SPDX-License-Identifier: Apache-2.0

package push

import "net/http"

// events are the headers in which providers name what has happened, with the word for a push
// to a branch. Forgejo sends those of Gitea and GitHub too, and Gitea that of GitHub: the
// first that a request has counts.
var events = []struct{ header, push string }{
	{"X-Forgejo-Event", "push"},
	{"X-Gitea-Event", "push"},
	{"X-Gitlab-Event", "Push Hook"},
	{"X-GitHub-Event", "push"},
}

// isPush says whether a request is about a push. One that names no event is: somebody else
// sends it for that reason, such as a hook of a Git server.
func isPush(header http.Header) bool {
	for _, e := range events {
		if said := header.Values(e.header); len(said) > 0 {
			return said[0] == e.push
		}
	}
	return true
}

// SPDX-License-Identifier: Apache-2.0

package push

import "net/http"

// events has the headers that name an event, with the value for a push to a branch. Forgejo also
// sends the headers of Gitea and GitHub, and Gitea also sends that of GitHub. The first header in a
// request counts.
var events = []struct{ header, push string }{
	{"X-Forgejo-Event", "push"},
	{"X-Gitea-Event", "push"},
	{"X-Gitlab-Event", "Push Hook"},
	{"X-GitHub-Event", "push"},
}

// isPush reports whether a request is about a push. A request without an event header counts as a
// push, because other clients, such as the hook of a Git server, only send it for pushes.
func isPush(header http.Header) bool {
	for _, e := range events {
		if said := header.Values(e.header); len(said) > 0 {
			return said[0] == e.push
		}
	}
	return true
}

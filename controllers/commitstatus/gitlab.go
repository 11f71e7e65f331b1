// SPDX-License-Identifier: Apache-2.0

package commitstatus

import (
	"net/http"
	"net/url"
	"strings"
)

// gitLabStatus is the body of GitLab's "set commit pipeline status".
type gitLabStatus struct {
	State       string `json:"state"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

var gitLabStates = map[State]string{Pending: "pending", Success: "success", Failure: "failed", Error: "canceled"}

// gitLabCall identifies the repository by its whole path, with groups, as one part of the URL.
func (r Repository) gitLabCall(s Status, token string) call {
	return call{
		url:           r.api + "/projects/" + url.PathEscape(r.path) + "/statuses/" + s.Commit,
		authorization: "Bearer " + token,
		body:          gitLabStatus{State: gitLabStates[s.State], Name: s.Context, Description: s.Description},
	}
}

// isKnownToGitLab reports whether GitLab rejected a status because the commit already has it. This
// happens for a pending status if the commit is deployed again.
func isKnownToGitLab(state State, code int, answer string) bool {
	return code == http.StatusBadRequest && strings.Contains(answer, "Cannot transition status via") &&
		strings.Contains(answer, "from :"+gitLabStates[state])
}

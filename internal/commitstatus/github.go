// SPDX-License-Identifier: Apache-2.0

package commitstatus

// gitHubStatus is the body of GitHub's "create a commit status".
type gitHubStatus struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
}

var gitHubStates = map[State]string{Pending: "pending", Success: "success", Failure: "failure", Error: "error"}

// gitHub asks github.com at its API's own host, and a GitHub Enterprise Server below /api/v3.
func (r Repository) gitHub(s Status, token string) call {
	api := r.Shown()
	if api == r.base.String() {
		api += "/api/v3"
	}
	return call{
		url:           api + "/repos/" + r.owned() + "/statuses/" + s.Commit,
		authorization: "Bearer " + token,
		body:          gitHubStatus{State: gitHubStates[s.State], Context: s.Context, Description: s.Description},
	}
}

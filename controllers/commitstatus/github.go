// SPDX-License-Identifier: Apache-2.0

package commitstatus

// gitHubStatus is the body of GitHub's "create a commit status".
type gitHubStatus struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
}

var gitHubStates = map[State]string{Pending: "pending", Success: "success", Failure: "failure", Error: "error"}

// gitHubCall is the same for github.com and a GitHub Enterprise Server.
func (r Repository) gitHubCall(s Status, token string) call {
	return call{
		url:           r.api + "/repos/" + r.ownerAndName() + "/statuses/" + s.Commit,
		authorization: "Bearer " + token,
		body:          gitHubStatus{State: gitHubStates[s.State], Context: s.Context, Description: s.Description},
	}
}
